"""Arrays between the usual order and that of the accelerator: blocks of channels and filters become tiles.

Channels and filters that do not fill a block are filled with zeros. Wrong shapes, and numbers that do not fit the
elements of the accelerator, are a ``BadFeed``.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed

Numbers: TypeAlias = NDArray[np.integer]


def packed_data(data: Numbers, config: Config) -> Array:
    """(batch, channels, height, width) as (channel blocks, height, width, batch, block_in); one block of the batch."""
    if data.ndim != 4 or data.shape[0] != config.batch:
        raise BadFeed(f"data are {data.shape}; give (batch={config.batch}, channels, height, width)")
    whole = _filled(data, 1, config.block_in)
    blocks = whole.reshape(config.batch, -1, config.block_in, *data.shape[2:])
    return _narrowed(blocks.transpose(1, 3, 4, 0, 2), config.dtype(Scratchpad.INP))


def packed_filters(filters: Numbers, config: Config) -> Array:
    """(filters, channels, height, width) as (filter blocks, channel blocks, height, width, block_out, block_in)."""
    if filters.ndim != 4:
        raise BadFeed(f"filters are {filters.shape}; give (filters, channels, height, width)")
    whole = _filled(_filled(filters, 0, config.block_out), 1, config.block_in)
    outputs, inputs = whole.shape[0] // config.block_out, whole.shape[1] // config.block_in
    blocks = whole.reshape(outputs, config.block_out, inputs, config.block_in, *filters.shape[2:])
    return _narrowed(blocks.transpose(0, 2, 4, 5, 1, 3), config.dtype(Scratchpad.WGT))


def unpacked_result(result: Array, filters: int) -> Array:
    """(filter blocks, height, width, batch, block_out) as (batch, filters, height, width)."""
    blocks, height, width, batch, block = result.shape
    return result.transpose(3, 0, 4, 1, 2).reshape(batch, blocks * block, height, width)[:, :filters]


def _filled(array: Numbers, axis: int, block: int) -> Numbers:
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, -array.shape[axis] % block)
    return np.pad(array, widths)


def _narrowed(array: Numbers, dtype: np.dtype[np.generic]) -> Array:
    """The same numbers as another type, in a new array."""
    narrow = array.astype(dtype, order="C")
    if not np.array_equal(narrow, array):
        raise BadFeed(f"numbers from {array.min()} to {array.max()} do not fit {dtype}; quantize them first")
    return narrow

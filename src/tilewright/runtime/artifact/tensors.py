"""Arrays in the safetensors format, aligned for use in a mapped file.

    u64 length of the header, little endian
    header: JSON {name: {"dtype", "shape", "data_offsets"}}, padded with spaces
    the data: row-major, little endian, without holes

The format has no holes, so arrays whose size is a multiple of ``ALIGNMENT`` come first: all of them are aligned. The
layout follows from names, dtypes and shapes alone; a reader computes the header from these and compares. Tensors are
named ``<position>:<name>``, so that no name collides with a keyword of the format.

Source: the format section of the safetensors project's README.
"""

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType
from tilewright.base.errors import CorruptArtifact
from tilewright.runtime.abi import ALIGNMENT
from tilewright.runtime.manifest import TensorSpec, byte_size

_NAMES: Final = {dtype: str(dtype).upper() for dtype in dtypes.ALL}


def encode(specs: Sequence[TensorSpec], arrays: Sequence[Array]) -> list[bytes | memoryview]:
    """The file's bytes in parts, for C-contiguous ``arrays`` with the dtypes and shapes of ``specs``."""
    return [_header(specs), *(_bytes(arrays[position]) for position in _order(specs))]


def decode(data: memoryview, specs: Sequence[TensorSpec]) -> list[Array]:
    """The arrays of ``specs``, as views of ``data``. Raises ``CorruptArtifact`` if ``data`` differ from that form."""
    header = _header(specs)
    if bytes(data[: len(header)]) != header or len(data) != len(header) + sum(map(_size, specs)):
        raise CorruptArtifact("the weights are not those that the manifest lists")
    return [
        np.ndarray(_shape(spec), spec.dtype.numpy, data, len(header) + start)
        for spec, start in zip(specs, _starts(specs), strict=True)
    ]


def _header(specs: Sequence[TensorSpec]) -> bytes:
    """Length and header; they end on a multiple of ``ALIGNMENT``."""
    starts = _starts(specs)
    text = json.dumps(
        {
            f"{position}:{specs[position].name}": {
                "dtype": _name(specs[position].dtype),
                "shape": _shape(specs[position]),
                "data_offsets": [starts[position], starts[position] + _size(specs[position])],
            }
            for position in _order(specs)
        }
    )
    padded = text.encode("ascii") + b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(padded).to_bytes(8, "little") + padded


def _order(specs: Sequence[TensorSpec]) -> list[int]:
    """Positions of the tensors in the file's order."""
    return sorted(range(len(specs)), key=lambda position: _size(specs[position]) % ALIGNMENT != 0)


def _starts(specs: Sequence[TensorSpec]) -> list[int]:
    """Where the data of each tensor start, after the header."""
    order = _order(specs)
    ends = accumulate((_size(specs[position]) for position in order), initial=0)
    found = dict(zip(order, ends, strict=False))
    return [found[position] for position in range(len(specs))]


def _name(dtype: DType) -> str:
    return _NAMES[dtype]


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    return spec.static_shape or ()


def _size(spec: TensorSpec) -> int:
    return byte_size(spec.dtype, _shape(spec))


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data

"""How weights of bytes are packed for dot products, and for matrix units: in groups of four that lie side by side."""

import numpy as np

from tilewright.graph import Array
from tilewright.kernels.packing import pack
from tilewright.schedule.index_map import IndexMap

GROUP = 4
"""Products of one instruction per accumulator."""


def packed_filters(weight: Array, lanes: int, divisor: int, group: int = GROUP) -> Array:
    """``[F, C, kernel...]`` as ``[F/lanes, C/group, kernel..., lanes, group]``: as matrices, one for each tap."""
    filters, channels, *kernel = weight.shape
    taps = np.moveaxis(weight.reshape(filters, channels, -1), 2, 0)
    packed = np.stack([packed_matrix(np.ascontiguousarray(tap.T), lanes, divisor, group) for tap in taps], axis=2)
    strips, groups = packed.shape[:2]
    return packed.reshape(strips, groups, *kernel, lanes, group)


def packed_blocks(weight: Array, width: int, lanes: int, group: int = GROUP) -> Array:
    """``[F, C, kernel...]`` as ``[F/lanes, C/width, kernel..., width/group, lanes, group]``."""
    filters, channels, *kernel = weight.shape
    padding = (-filters % lanes, -channels % width, *(0 for _ in kernel))
    whole = np.pad(weight, [(0, missing) for missing in padding])
    split = whole.reshape(-1, lanes, whole.shape[1] // width, width // group, group, *kernel)
    taps = range(5, split.ndim)
    return np.ascontiguousarray(split.transpose(0, 2, *taps, 3, 1, 4))


def with_others(weight: Array, groups: int, joined: int) -> Array:
    """``[F, c, kernel...]`` of ``groups`` as ``[F, joined * c, kernel...]``: with zeros for the channels of the other
    groups that are ``joined``."""
    filters, own, *kernel = weight.shape
    apart = weight.reshape(groups // joined, joined, filters // groups, own, *kernel)
    made = np.zeros((*apart.shape[:3], joined, *apart.shape[3:]), weight.dtype)
    for group in range(joined):
        made[:, group, :, group] = apart[:, group]
    return made.reshape(filters, joined * own, *kernel)


def packed_by_lanes(weight: Array, lanes: int) -> Array:
    """``[C, kernel...]`` as ``[C/lanes, kernel..., lanes]``."""
    channels, *kernel = weight.shape
    whole = np.pad(weight, [(0, -channels % lanes), *((0, 0) for _ in kernel)])
    return np.ascontiguousarray(np.moveaxis(whole.reshape(-1, lanes, *kernel), 1, -1))


def packed_matrix(b: Array, panel: int, divisor: int, group: int = GROUP) -> Array:
    """In groups, in panels of columns, and with columns of zeros until there are a multiple of ``divisor``."""
    depth, columns = b.shape
    stored = IndexMap.parse(f"k, n -> n // {panel}, k // {group}, n % {panel}, k % {group}")
    return pack(np.pad(b, ((0, -depth % group), (0, -columns % divisor))), stored)


def packed_pixels(weight: Array, lanes: int) -> Array:
    """``[F, C, kernel...]`` of up to four channels as ``[F/lanes, kernel..., lanes, 4]``."""
    filters, channels, *kernel = weight.shape
    whole = np.pad(weight, [(0, -filters % lanes), (0, GROUP - channels), *((0, 0) for _ in kernel)])
    split = whole.reshape(-1, lanes, GROUP, *kernel)
    return np.ascontiguousarray(np.moveaxis(split, (1, 2), (-2, -1)))

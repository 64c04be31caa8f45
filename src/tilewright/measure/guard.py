"""Arrays between pages that nobody may touch: an access beside them ends the process instead of going unseen.

A page is larger than an element, so only one end of an array can touch a guard page. Two runs, one with arrays at the
right end of their pages and one at the left, catch both ends. What is left of the pages beside an array is filled with
a pattern, which ``untouched`` finds altered by writes that stay on the page.
"""

import math
from enum import Enum

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType
from tilewright.runtime.memory import PAGE, Pages, round_up

_NONE = 0  # PROT_NONE; the module mmap has no name for it
PATTERN = 0xA5
"""The byte beside arrays, and in outputs that are no floats."""


class Side(Enum):
    """Which end of an array touches a guard page."""

    RIGHT = "right"
    LEFT = "left"


class Guarded:
    """An array with a guard page at one end. Its memory goes when ``array`` goes."""

    def __init__(self, shape: tuple[int, ...], dtype: DType, side: Side) -> None:
        size = math.prod(shape) * dtype.itemsize
        inner = round_up(max(size, 1), PAGE)
        pages = Pages(inner + 2 * PAGE)
        begin = PAGE + (inner - size if side is Side.RIGHT else 0)
        whole = np.frombuffer(pages.view(), np.uint8)
        whole[PAGE : PAGE + inner] = PATTERN
        self._beside = (whole[PAGE:begin], whole[begin + size : PAGE + inner])
        self.array: Array = np.ndarray(shape, dtype.numpy, whole, begin)
        pages.protect(0, PAGE, _NONE)
        pages.protect(PAGE + inner, PAGE, _NONE)

    def untouched(self) -> bool:
        """Whether nobody has written beside the array."""
        return all(bool((part == PATTERN).all()) for part in self._beside)


def poison(array: Array) -> None:
    """Fill an output so that elements which nobody writes can't look right: with NaN, or with bytes 0xA5."""
    if array.dtype.kind in "fV":  # V: NumPy's kind of bfloat16
        array.fill(np.array(np.nan).astype(array.dtype)[()])
    else:
        array.reshape(-1).view(np.uint8)[...] = PATTERN


def same_bytes(a: Array, b: Array) -> bool:
    """Whether two C-contiguous arrays of one shape and type have the same bytes."""
    return bool(np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)))

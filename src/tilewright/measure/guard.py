"""Arrays next to protected guard pages: an access outside of an array ends the process instead of being unnoticed.

A page is larger than an element, so only one end of an array can adjoin a guard page. Two runs, one with arrays at the
right end of their pages and one at the left, check both ends. The rest of the pages is filled with a pattern, in which
``untouched`` detects writes that stay on the page.
"""

import math
from enum import Enum

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType
from tilewright.runtime.memory import PAGE, Pages, round_up

PATTERN = 0xA5
"""The byte next to arrays, and in outputs that are not floats."""


class Side(Enum):
    """The end of an array that adjoins a guard page."""

    RIGHT = "right"
    LEFT = "left"


class Guarded:
    """An array with a guard page at one end. Its memory is freed with ``array``."""

    def __init__(self, shape: tuple[int, ...], dtype: DType, side: Side) -> None:
        size = math.prod(shape) * dtype.itemsize
        inner = round_up(max(size, 1), PAGE)
        pages = Pages(inner + 2 * PAGE)
        begin = PAGE + (inner - size if side is Side.RIGHT else 0)
        whole = np.frombuffer(pages.view(), np.uint8)
        whole[PAGE : PAGE + inner] = PATTERN
        self._beside = (whole[PAGE:begin], whole[begin + size : PAGE + inner])
        self.array: Array = np.ndarray(shape, dtype.numpy, whole, begin)
        pages.forbid(0, PAGE)
        pages.forbid(PAGE + inner, PAGE)

    def untouched(self) -> bool:
        """Whether nothing was written next to the array."""
        return all(bool((part == PATTERN).all()) for part in self._beside)


def poison(array: Array) -> None:
    """Fill an output with NaN, or with bytes 0xA5, so that unwritten elements can't look right."""
    if array.dtype.kind in "fV":  # V: NumPy's kind of bfloat16
        array.fill(np.array(np.nan).astype(array.dtype)[()])
    else:
        array.reshape(-1).view(np.uint8)[...] = PATTERN


def same_bytes(a: Array, b: Array) -> bool:
    """Whether two C-contiguous arrays of one shape and type have the same bytes."""
    return bool(np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8)))

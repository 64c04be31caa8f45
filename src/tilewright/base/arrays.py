"""Allocates aligned memory for arrays, and makes random arrays as inputs of models and loop programs."""

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import DType
from tilewright.base.errors import OutOfMemory
from tilewright.base.memory import available

Array: TypeAlias = NDArray[np.generic]
Bytes: TypeAlias = NDArray[np.uint8]

CACHE_LINE = 64
"""Alignment of constants, in bytes: native code reads aligned constants in place, without a copy."""


_LARGE = 1 << 28
"""Allocations above this many bytes are first compared with the available memory. The system reserves addresses first
and memory on first use; if none is left by then, it kills the process."""


def new_bytes(size: int, what: str, alignment: int = CACHE_LINE) -> Bytes:
    """``size`` uninitialized bytes for ``what``, aligned to ``alignment``. Raises ``OutOfMemory``."""
    raw = new_array(size + alignment, what)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]


def new_array(size: int, what: str) -> Bytes:
    """``size`` uninitialized bytes for ``what``. Raises ``OutOfMemory``."""
    if size > _LARGE and size > (left := available()):
        raise OutOfMemory(f"{what} takes {size} bytes of memory, and {left} are available; use smaller sizes")
    try:
        return np.empty(size, np.uint8)
    except (MemoryError, ValueError) as error:  # ValueError: more than the address space
        raise OutOfMemory(f"{what} takes {size} bytes of memory: {error}; use smaller sizes") from error


def random_array(dtype: DType, shape: Sequence[int], generator: np.random.Generator) -> Array:
    """A random array: normal floats; 0 and 1 for other types, as integers are often indices, lengths or masks.

    Draws do not depend on the width of ``dtype``; they are rounded to it.
    """
    drawn = generator.standard_normal(shape) if dtype.is_float else generator.integers(0, 2, shape)
    return np.asarray(drawn, dtype.numpy)


def random_integers(dtype: DType, shape: Sequence[int], generator: np.random.Generator) -> Array:
    """Integers of all magnitudes that ``dtype`` has: some are the smallest or the largest one, some are small."""
    low, high = int(dtype.min), int(dtype.max)
    ends = generator.choice(np.array([low, high], dtype.numpy), shape)
    shifts = generator.integers(0, dtype.bits, shape)
    drawn = np.right_shift(generator.integers(low, high, shape, dtype.numpy, endpoint=True), shifts.astype(dtype.numpy))
    return np.where(generator.random(shape) < _AT_END, ends, drawn)


_AT_END = 0.3
"""The fraction of random integers that are the smallest or the largest one."""


def has_same_bits(a: Array, b: Array) -> bool:
    """Whether all elements have the same bits, or are both NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    old, new = (np.ascontiguousarray(array) for array in (a, b))
    width = np.dtype(f"u{old.dtype.itemsize}")
    are_nan = (old != old) & (new != new)
    return bool(np.all((old.view(width) == new.view(width)) | are_nan))


def own(array: Array) -> Array:
    """``array``; a copy if its memory belongs to another library, whose users may write to it (a tensor's memory)."""
    holder: object = array
    while isinstance(holder, np.ndarray):
        holder = cast(object, holder.base)
    if holder is None or isinstance(holder, bytes | memoryview):
        return array
    copy = new_bytes(array.nbytes, "a constant").view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy

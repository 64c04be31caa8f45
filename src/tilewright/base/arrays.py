"""Arrays of any element type, memory for them, and random ones: inputs of a model or loop program that nobody gives."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import DType
from tilewright.base.errors import OutOfMemory
from tilewright.base.memory import available

Array: TypeAlias = NDArray[np.generic]
Bytes: TypeAlias = NDArray[np.uint8]

CACHE_LINE = 64
"""Bytes: constants that start on a multiple of so many are read by native code where they are."""


_LARGE = 1 << 28
"""Bytes: of more, it is looked up whether they are there. The system gives addresses first, and memory when it is
used; where there is none by then, it ends the process."""


def new_bytes(size: int, what: str, alignment: int = CACHE_LINE) -> Bytes:
    """``size`` uninitialized bytes for ``what``, from a multiple of ``alignment`` on. Raises ``OutOfMemory``."""
    raw = new_array(size + alignment, what)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]


def new_array(size: int, what: str) -> Bytes:
    """``size`` uninitialized bytes for ``what``. Raises ``OutOfMemory``."""
    if size > _LARGE and size > (left := available()):
        raise OutOfMemory(f"{what} takes {size} bytes of memory, and {left} are available; use smaller sizes")
    try:
        return np.empty(size, np.uint8)
    except (MemoryError, ValueError) as error:  # ValueError: more than there are addresses
        raise OutOfMemory(f"{what} takes {size} bytes of memory: {error}; use smaller sizes") from error


def random_array(dtype: DType, shape: Sequence[int], generator: np.random.Generator) -> Array:
    """Normal floats; of all other types 0 and 1, as integers are often indices, lengths or masks.

    What is drawn does not depend on the width of ``dtype``: it is rounded to it.
    """
    drawn = generator.standard_normal(shape) if dtype.is_float else generator.integers(0, 2, shape)
    return np.asarray(drawn, dtype.numpy)

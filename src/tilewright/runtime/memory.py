"""Pages with settable protection, and arrays aligned to cache lines."""

import ctypes
import math
import mmap
from typing import Final, cast

import numpy as np

from tilewright.base.arrays import Array, Bytes, new_bytes
from tilewright.base.errors import InternalError, OutOfMemory
from tilewright.base.files import reason
from tilewright.runtime.abi import ALIGNMENT

PAGE: Final = mmap.PAGESIZE
READ: Final = mmap.PROT_READ
WRITE: Final = mmap.PROT_WRITE
EXECUTE: Final = mmap.PROT_EXEC

_libc = ctypes.CDLL(None, use_errno=True)
_byte_at = ctypes.c_char.from_buffer


class Pages:
    """Private zeroed pages, initially readable and writable. They are unmapped with the object.

    Private, not shared: after a fork the child has its own copy.
    """

    def __init__(self, size: int) -> None:
        """Raises ``OutOfMemory``."""
        self.size = round_up(max(size, 1), PAGE)
        try:
            self._map = mmap.mmap(-1, self.size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise OutOfMemory(f"{self.size} bytes for code can't be mapped: {reason(error)}") from error
        self._first = ctypes.c_char.from_buffer(self._map)
        self.address = ctypes.addressof(self._first)

    def view(self) -> memoryview:
        """All bytes, writable. Release it before the pages are protected."""
        return memoryview(self._map)

    def protect(self, start: int, size: int, access: int) -> None:
        """Set the protection of the pages of ``size`` bytes from ``start``, a page boundary."""
        where = ctypes.c_void_p(self.address + start)
        if size and _libc.mprotect(where, ctypes.c_size_t(round_up(size, PAGE)), access) != 0:
            reason = ctypes.get_errno()
            raise InternalError(f"mprotect refused access {access} for {size} bytes: error {reason}")


def round_up(size: int, unit: int) -> int:
    """``size`` rounded up to a multiple of ``unit``."""
    return -(-size // unit) * unit


def aligned(size: int, what: str = "an array") -> Bytes:
    """``size`` uninitialized bytes for ``what``, aligned to ``ALIGNMENT``. Raises ``OutOfMemory``."""
    return new_bytes(size, what, ALIGNMENT)


def aligned_copy(array: Array) -> Array:
    """The array itself if it is C-contiguous and aligned to ``ALIGNMENT``; else a copy that is."""
    if array.flags.c_contiguous and address_of(array) % ALIGNMENT == 0:
        return array
    copy = aligned_array(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """An uninitialized C-contiguous array aligned to ``ALIGNMENT``."""
    return np.ndarray(shape, dtype, aligned(math.prod(shape) * dtype.itemsize))


def address_of(array: Array) -> int:
    """The address of an array's elements. Valid during the array's life."""
    try:
        # Five times faster than the other way, but only for writable, non-empty arrays of the standard dtypes.
        return ctypes.addressof(_byte_at(cast(bytearray, array)))
    except (TypeError, ValueError):
        return array.ctypes.data

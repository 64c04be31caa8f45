"""Pages with settable protection, and arrays aligned to cache lines."""

import ctypes
import math
import mmap
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, cast

import numpy as np

from tilewright.base.arrays import Array, Bytes, new_bytes
from tilewright.base.errors import InternalError, OutOfMemory
from tilewright.base.files import reason
from tilewright.runtime.abi import ALIGNMENT
from tilewright.runtime.system import here
from tilewright.runtime.system.api import Access, OperatingSystem

PAGE: Final = mmap.PAGESIZE

_byte_at = ctypes.c_char.from_buffer


class Pages:
    """Private zeroed pages, initially readable and writable. They are unmapped with the object and its views.

    Private, not shared: after a fork the child has its own copy.
    """

    def __init__(self, size: int, *, for_code: bool = False, system: OperatingSystem | None = None) -> None:
        """``for_code``: some are to become executable. Raises ``OutOfMemory``."""
        self.size = round_up(max(size, 1), PAGE)
        self._system = system or here()
        try:
            self.address = self._system.map(self.size, for_code=for_code)
        except OSError as error:
            raise OutOfMemory(f"{self.size} bytes for code can't be mapped: {reason(error)}") from error
        self._bytes = (ctypes.c_ubyte * self.size).from_address(self.address)
        # Threads may still run code when the process ends.
        weakref.finalize(self._bytes, self._system.unmap, self.address, self.size).atexit = False

    def view(self) -> memoryview:
        """All bytes, writable. Release it before the pages are protected."""
        return np.frombuffer(memoryview(self._bytes), np.uint8).data

    @contextmanager
    def written(self) -> Generator[memoryview]:
        """``view`` of pages ``for_code``, for this thread to write into; it runs no images meanwhile."""
        with self._system.writing(), self.view() as memory:
            yield memory

    def forbid(self, start: int, size: int) -> None:
        """Let nobody read or write the pages of ``size`` bytes from ``start``."""
        self.protect(start, size, Access.NONE)

    def protect(self, start: int, size: int, access: Access) -> None:
        """Set the protection of the pages of ``size`` bytes from ``start``, a page boundary."""
        try:
            if size:
                self._system.protect(self.address + start, round_up(size, PAGE), access)
        except OSError as error:
            raise InternalError(f"{size} bytes can't be made {access.value}: {reason(error)}") from error


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

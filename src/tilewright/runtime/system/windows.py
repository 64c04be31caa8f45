"""Windows from 8 on, 64 bits. Written from Microsoft's documents; it has never run there.

On 64 bits, C and the system have one convention of calls, which ``ctypes`` has for both. Code has no unwind tables: an
exception inside of it ends the process.
"""

import ctypes
import errno
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from tilewright.runtime.system.api import INT, SIZE, STACK_BYTES, WORD, Access, Find, bound, refuse_pinning

LIBRARIES: Final = ("kernel32", "api-ms-win-core-synch-l1-2-0", "ucrtbase", "ntdll")
"""Where the functions are: pages and threads, waiting, the C library, and what touches the pages of a large frame."""

_COMMIT_RESERVE, _RELEASE = 0x3000, 0x8000
_PROTECTIONS = {Access.NONE: 0x01, Access.READ: 0x02, Access.WRITE: 0x04, Access.EXECUTE: 0x20}
_THIS_PROCESS: Final = (1 << 64) - 1
"""What ``GetCurrentProcess`` returns."""
_SIZE_IS_RESERVED, _FOR_EVER = 0x10000, 0xFFFFFFFF


class Windows:
    """The interface by functions of ``LIBRARIES``."""

    imports = frozenset(
        (
            "WaitOnAddress",
            "WakeByAddressSingle",
            "WakeByAddressAll",
            "QueryPerformanceCounter",
            "QueryPerformanceFrequency",
            "__chkstk",
        )
    )

    def __init__(self, find: Find) -> None:
        self.function = find
        self._allocate = bound(find, "VirtualAlloc", WORD, WORD, SIZE, INT, INT)
        self._free = bound(find, "VirtualFree", INT, WORD, SIZE, INT)
        self._protect = bound(find, "VirtualProtect", INT, WORD, SIZE, INT, WORD)
        self._show_code = bound(find, "FlushInstructionCache", INT, WORD, WORD, SIZE)
        self._create = bound(find, "CreateThread", WORD, WORD, SIZE, WORD, WORD, INT, WORD)
        self._wait = bound(find, "WaitForSingleObject", INT, WORD, INT)
        self._close = bound(find, "CloseHandle", INT, WORD)
        self._last_error = bound(find, "GetLastError", INT)

    def map(self, size: int, *, for_code: bool) -> int:
        """As in ``OperatingSystem``. Any page can become code."""
        del for_code
        address = self._allocate(None, size, _COMMIT_RESERVE, _PROTECTIONS[Access.WRITE])
        return address or self._fail("VirtualAlloc", errno.ENOMEM)

    def unmap(self, address: int, size: int) -> None:
        """As in ``OperatingSystem``."""
        del size  # what one call has allocated
        if not self._free(address, 0, _RELEASE):
            self._fail("VirtualFree", errno.EINVAL)

    def writing(self) -> AbstractContextManager[None]:
        """As in ``OperatingSystem``."""
        return nullcontext()

    def protect(self, address: int, size: int, access: Access) -> None:
        """As in ``OperatingSystem``."""
        before = INT()
        if not self._protect(address, size, _PROTECTIONS[access], ctypes.addressof(before)):
            self._fail("VirtualProtect", errno.EACCES)
        if access is Access.EXECUTE and not self._show_code(_THIS_PROCESS, address, size):
            self._fail("FlushInstructionCache", errno.EINVAL)

    def create_thread(self, function: int, argument: int) -> int:
        """As in ``OperatingSystem``."""
        thread = self._create(None, STACK_BYTES, function, argument, _SIZE_IS_RESERVED, None)
        return thread or self._fail("CreateThread", errno.EAGAIN)

    def join_thread(self, thread: int) -> None:
        """As in ``OperatingSystem``."""
        self._wait(thread, _FOR_EVER)
        self._close(thread)

    def pinned(self, threads: Sequence[int], processors: Sequence[int]) -> AbstractContextManager[None]:
        """As in ``OperatingSystem``."""
        del threads
        refuse_pinning("Windows", processors)
        return nullcontext()

    def _fail(self, function: str, number: int) -> int:
        """Raise ``OSError``. The number of Windows is for people: between the calls others may have failed."""
        raise OSError(number, f"{function} failed, and Windows gives the error {self._last_error()}")

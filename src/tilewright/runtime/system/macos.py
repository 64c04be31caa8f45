"""macOS from 11 on. Written from Apple's documents; it has never run there.

Pages that become code are mapped readable, writable and executable at once, and each thread can either write into all
such pages of the process, or run them (Apple, "Porting just-in-time compilers to Apple silicon"). A program with the
hardened runtime needs the entitlement ``com.apple.security.cs.allow-jit`` for that.
"""

import ctypes
import errno
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from tilewright.runtime.system.api import INT, SIZE, STACK_BYTES, WORD, Access, Find, bound, refuse_pinning
from tilewright.runtime.system.posix import EXECUTE, PRIVATE, READ, WRITE, Posix

_ANONYMOUS: Final = 0x1000
_FOR_CODE: Final = 0x800
"""``MAP_JIT``."""
_ATTRIBUTE_WORDS: Final = 8
"""Of ``pthread_attr_t``."""


class MacOS(Posix):
    """The interface by functions of libSystem."""

    imports = frozenset(("__ulock_wait", "__ulock_wake", "clock_gettime", "pthread_main_np"))

    def __init__(self, find: Find) -> None:
        super().__init__(find)
        self.function = find
        self._protect_from_writes = bound(find, "pthread_jit_write_protect_np", None, INT)
        self._show_code = bound(find, "sys_icache_invalidate", None, WORD, SIZE)
        self._attributes = (ctypes.c_int64 * _ATTRIBUTE_WORDS)()  # once: pthread_create reads them only
        bound(find, "pthread_attr_init", INT, WORD)(ctypes.addressof(self._attributes))
        bound(find, "pthread_attr_setstacksize", INT, WORD, SIZE)(ctypes.addressof(self._attributes), STACK_BYTES)

    def map(self, size: int, *, for_code: bool) -> int:
        """As in ``OperatingSystem``."""
        if for_code:
            return self.mapped(size, READ | WRITE | EXECUTE, PRIVATE | _ANONYMOUS | _FOR_CODE)
        return self.mapped(size, READ | WRITE, PRIVATE | _ANONYMOUS)

    @contextmanager
    def writing(self) -> Generator[None]:
        """As in ``OperatingSystem``."""
        self._protect_from_writes(0)
        try:
            yield
        finally:
            self._protect_from_writes(1)

    def protect(self, address: int, size: int, access: Access) -> None:
        """As in ``OperatingSystem``. At its end, what ``writing`` wrote can be run, and no more be written."""
        match access:
            case Access.EXECUTE:
                self._show_code(address, size)
            case Access.READ:
                pass
            case Access.WRITE:
                raise OSError(errno.ENOTSUP, "no data can be written beside code on macOS")
            case Access.NONE:
                super().protect(address, size, access)

    def create_thread(self, function: int, argument: int, attributes: int | None = None) -> int:
        """As in ``OperatingSystem``. By default a stack would have 512 KiB."""
        return super().create_thread(function, argument, attributes or ctypes.addressof(self._attributes))

    def pinned(self, threads: Sequence[int], processors: Sequence[int]) -> AbstractContextManager[None]:
        """As in ``OperatingSystem``."""
        del threads
        refuse_pinning("macOS", processors)
        return nullcontext()

"""Pages and threads as Linux and macOS have them. Source: POSIX.1-2024; the numbers are equal on both."""

import ctypes
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from tilewright.runtime.system.api import INT, SIZE, WORD, Access, Find, bound

READ, WRITE, EXECUTE = 1, 2, 4
"""Protections."""
PRIVATE: Final = 2
_PROTECTIONS = {
    Access.NONE: 0,
    Access.READ: READ,
    Access.WRITE: READ | WRITE,
    Access.EXECUTE: READ | EXECUTE,
}
_FAILED = (1 << 64) - 1


class Posix:
    """Functions of POSIX, found by ``find``."""

    def __init__(self, find: Find) -> None:
        self._map = bound(find, "mmap", WORD, WORD, SIZE, INT, INT, INT, ctypes.c_long)
        self._unmap = bound(find, "munmap", INT, WORD, SIZE)
        self._protect = bound(find, "mprotect", INT, WORD, SIZE, INT)
        self._create = bound(find, "pthread_create", INT, WORD, WORD, WORD, WORD)
        self._join = bound(find, "pthread_join", INT, WORD, WORD)

    def mapped(self, size: int, protection: int, flags: int) -> int:
        """New pages."""
        address = self._map(None, size, protection, flags, -1, 0)
        if address in (None, _FAILED):
            raise _failure("mmap", ctypes.get_errno())
        return address

    def unmap(self, address: int, size: int) -> None:
        """As in ``OperatingSystem``."""
        if self._unmap(address, size) != 0:
            raise _failure("munmap", ctypes.get_errno())

    def protect(self, address: int, size: int, access: Access) -> None:
        """As in ``OperatingSystem``."""
        if self._protect(address, size, _PROTECTIONS[access]) != 0:
            raise _failure("mprotect", ctypes.get_errno())

    def create_thread(self, function: int, argument: int, attributes: int | None = None) -> int:
        """As in ``OperatingSystem``; with attributes of POSIX."""
        handle = WORD()
        with _without_signals():
            error = self._create(ctypes.addressof(handle), attributes, function, argument)
        if error:
            raise _failure("pthread_create", error)
        return handle.value or 0

    def join_thread(self, thread: int) -> None:
        """As in ``OperatingSystem``."""
        self._join(thread, None)


def _failure(function: str, error: int) -> OSError:
    return OSError(error, f"{os.strerror(error)}, by {function}")


@contextmanager
def _without_signals() -> Generator[None]:
    """Threads inherit the signal mask of their creator.

    Faults of a kernel are delivered to the thread that causes them; all other signals to Python's threads.
    """
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT}
    old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)

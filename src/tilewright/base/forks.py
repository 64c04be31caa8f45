"""Locks and ``fork``: a child has its parent's locks as they were, and none of the threads that would release them.

A thread may hold a lock of a library that is not Python's (LLVM's, SQLite's) just when another one forks; the child
would wait for it for ever. So the use of such a library is put under a ``ForkLock``, which a fork waits for. It
may be held for a moment only. What is held for long is a ``ProcessLock``: the child's is another, and free.

    LLVM = ForkLock()  # of a module
    with LLVM.lock: ...
"""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager


class ForkLock:
    """A lock that no fork of this process happens under, but one by its holder. One for each library: it stays.

    Its two parts are Python's own locks: an interrupt can't leave them held.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """For ``with``."""
        self._gate = threading.RLock()
        os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._open)

    def give_way(self) -> None:
        """Let a fork go first that waits already. Who takes the lock again and again calls this before."""
        with self._gate:
            pass

    def _close(self) -> None:
        self._gate.acquire()
        self.lock.acquire()

    def _open(self) -> None:
        self.lock.release()
        self._gate.release()


class ProcessLock:
    """A lock between the threads of one process."""

    def __init__(self) -> None:
        self._locks: dict[int, threading.Lock] = {}
        """By process, the own one and perhaps its parent's."""

    @contextmanager
    def held(self) -> Generator[None]:
        """The lock, for the length of a ``with``."""
        process = os.getpid()
        lock = self._locks.setdefault(process, threading.Lock())
        for other in [number for number in self._locks.copy() if number != process]:
            self._locks.pop(other, None)
        with lock:
            yield

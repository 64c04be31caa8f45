"""Locks that are safe with ``fork``, where a child inherits locks but not the threads that would release them.

A thread may hold a lock of a library that is not Python's (LLVM's, SQLite's) while another one forks; the child would
wait for it forever. So such a library is used under a ``ForkLock``, which a fork waits for; hold it briefly. For longer
times, use a ``ProcessLock``: the child has a new, free one.

    LLVM = ForkLock()  # of a module
    with LLVM.lock: ...
"""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


def _nothing() -> None: ...


def at_fork(
    *,
    before: Callable[[], None] = _nothing,
    after_in_parent: Callable[[], None] = _nothing,
    after_in_child: Callable[[], None] = _nothing,
) -> None:
    """Have these called around each fork from now on; Windows has none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)


class ForkLock:
    """A lock during which only its holder can fork. There is one for each library, for the life of the process.

    It consists of two locks of Python: an interrupt can't leave them held.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """The lock, for ``with``."""
        self._gate = threading.RLock()
        at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._open)

    def give_way(self) -> None:
        """Let a waiting fork go first. A holder that takes the lock repeatedly calls this before."""
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
        """Locks by process: this one's, and perhaps its parent's."""

    @contextmanager
    def held(self) -> Generator[None]:
        """The lock, for the length of a ``with``."""
        process = os.getpid()
        lock = self._locks.setdefault(process, threading.Lock())
        for other in [number for number in self._locks.copy() if number != process]:
            self._locks.pop(other, None)
        with lock:
            yield

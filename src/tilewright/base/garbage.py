"""Makes Python's cyclic garbage collector run less often while a model is compiled.

The compiler makes many small long-lived objects and few cycles. Each time their number grows by a quarter, Python scans
all objects of the process: a twentieth of the compile time, and more if the process holds other objects.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

from tilewright.base.forks import ForkLock

NEW_OBJECTS = 50_000
"""The collector's threshold: number of new objects that starts a scan; Python's default is 700 or 2,000."""


class _Seldom:
    """The number of users, and the thresholds before the first of them."""

    def __init__(self) -> None:
        self._users = 0
        self._before = gc.get_threshold()
        self._lock = ForkLock()

    def enter(self) -> None:
        """Set the larger threshold, unless the process has set a larger one or disabled the collector (0)."""
        with self._lock.lock:
            if not self._users:
                self._before = gc.get_threshold()
                new, *rest = self._before
                gc.set_threshold(max(new, NEW_OBJECTS) if new else 0, *rest)
            self._users += 1

    def leave(self) -> None:
        """The last user restores the thresholds."""
        with self._lock.lock:
            self._users -= 1
            if not self._users:
                gc.set_threshold(*self._before)


_SELDOM = _Seldom()


@contextmanager
def seldom_collecting() -> Generator[None]:
    """A context manager: the collector runs less often, in all threads, until no thread is in the block."""
    _SELDOM.enter()
    try:
        yield
    finally:
        _SELDOM.leave()

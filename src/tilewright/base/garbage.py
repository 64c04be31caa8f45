"""Sets how often Python's collector of cyclic garbage runs while a model is compiled.

The compiler makes many small objects that live for long, and hardly any cycles. Each time their number has grown by a
quarter, Python looks at all objects of the process: a twentieth of the time of compiling, and more where the process
has much else in memory.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

from tilewright.base.forks import ForkLock

NEW_OBJECTS = 50_000
"""So many more objects than before are looked at: Python's own number is 700 or 2,000."""


class _Seldom:
    """The number of users, and what was set before the first of them."""

    def __init__(self) -> None:
        self._users = 0
        self._before = gc.get_threshold()
        self._lock = ForkLock()

    def enter(self) -> None:
        """Set the larger number, unless the process has set a larger one or looks for no garbage (0)."""
        with self._lock.lock:
            if not self._users:
                self._before = gc.get_threshold()
                new, *rest = self._before
                gc.set_threshold(max(new, NEW_OBJECTS) if new else 0, *rest)
            self._users += 1

    def leave(self) -> None:
        """The last one sets what was set before."""
        with self._lock.lock:
            self._users -= 1
            if not self._users:
                gc.set_threshold(*self._before)


_SELDOM = _Seldom()


@contextmanager
def seldom_collecting() -> Generator[None]:
    """Python looks for garbage less often, in all threads, until no thread is in here."""
    _SELDOM.enter()
    try:
        yield
    finally:
        _SELDOM.leave()

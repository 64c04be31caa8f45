"""The call from Python into an image, which releases the interpreter's lock unless the call is very short.

Handing the lock to another thread costs several microseconds. If the native code takes less, concurrent threads would
spend their time on wake-ups, and together be slower than a single one.
"""

import ctypes
import time
from collections.abc import Callable
from typing import Final

_Releasing = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_Holding = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)

SHORT_NANOSECONDS: Final = 12_000
"""Processor time up to which a call keeps the lock."""

_SAMPLES: Final = 16
_LONG_NANOSECONDS: Final = 100_000
_LONG_IN_A_ROW: Final = 16


class Entry:
    """``tw_enter`` at an address: ``entry.call(context)`` returns its error code.

    The first calls release the lock and are timed. If the shortest was short, later ones keep it, until several in a
    row take long (a single one may have been interrupted).
    """

    def __init__(self, address: int) -> None:
        self.releasing: Callable[[int], int] = _Releasing(address)
        """Always releases the lock."""
        self.call: Callable[[int], int] = self._sampled
        self._holding: Callable[[int], int] = _Holding(address)
        self._samples: list[int] = []
        self._long = 0

    def _sampled(self, context: int) -> int:
        """Processor time, not elapsed time: waiting for the lock does not count."""
        begin = time.thread_time_ns()
        code = self.releasing(context)
        self._samples.append(time.thread_time_ns() - begin)
        if len(self._samples) >= _SAMPLES:
            self.call = self._held if min(self._samples) <= SHORT_NANOSECONDS else self.releasing
        return code

    def _held(self, context: int) -> int:
        begin = time.perf_counter_ns()
        code = self._holding(context)
        if time.perf_counter_ns() - begin <= _LONG_NANOSECONDS:
            self._long = 0
        else:
            self._long += 1
            if self._long == _LONG_IN_A_ROW:
                self.call = self.releasing
        return code

"""Signals during native code: functions of CPython that run their handlers, and exceptions of these.

Python runs a handler on its main thread between two bytecodes, and a run is a single call. So the native code polls for
signals from time to time (``runtime.abi``, "Stopping a call"), as extension modules with long calls do.
"""

import ctypes
from typing import Final

_NAMES: Final = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch")

_word = ctypes.c_void_p
_restore = ctypes.PYFUNCTYPE(None, _word, _word, _word)(("PyErr_Restore", ctypes.pythonapi))


def hooks() -> tuple[int, ...]:
    """Addresses of the functions, in the order of ``abi.POOL_HOOKS``."""
    functions = (getattr(ctypes.pythonapi, name) for name in _NAMES)
    return tuple(ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)


def raise_fetched(exception: tuple[int, int, int]) -> None:
    """Raise the exception from ``PyErr_Fetch`` (pointers to type, value and traceback), once: it consumes the
    references."""
    _restore(*exception)

"""The operating system, as the runtime sees it: pages that become code, threads, functions that images import.

In: requests of the interface ``api.OperatingSystem``. Out: addresses, threads, ``OSError``.

    api        the interface, and how functions of libraries are found and called
    linux      what runs every day; posix: what it shares with macOS
    macos      written from Apple's documents, tested against functions of this project's own: never run on macOS
    windows    the same, from Microsoft's documents: never run on Windows

``here()`` is the system of this process. A class takes ``Find``, which gives addresses of functions by their names, so
that tests can give others. Code waits, wakes and reads the clock by itself: ``backend.cpu.systems``.

New system: a class here, a line in ``_SYSTEMS``, its text in ``backend.cpu.systems``.
"""

import sys
from collections.abc import Callable, Mapping
from functools import cache

from tilewright.base.errors import UnsupportedTarget
from tilewright.base.processors import System
from tilewright.runtime.system.api import OperatingSystem, in_libraries
from tilewright.runtime.system.linux import Linux
from tilewright.runtime.system.macos import MacOS
from tilewright.runtime.system.windows import LIBRARIES, Windows

_NAMES = {"linux": System.LINUX, "darwin": System.MACOS, "win32": System.WINDOWS}
"""By Python's names."""
_SYSTEMS: Mapping[System, Callable[[], OperatingSystem]] = {
    System.LINUX: lambda: Linux(in_libraries(None, "libm.so.6")),
    System.MACOS: lambda: MacOS(in_libraries(None)),
    System.WINDOWS: lambda: Windows(in_libraries(*LIBRARIES)),
}


def system() -> System:
    """The name of this process's system. Raises ``UnsupportedTarget`` for one that is not in ``System``."""
    if sys.platform not in _NAMES:
        known = ", ".join(one.value for one in System)
        raise UnsupportedTarget(f"this system is {sys.platform}; images can be loaded on {known}")
    return _NAMES[sys.platform]


@cache
def here() -> OperatingSystem:
    """The system of this process. Raises ``UnsupportedTarget`` as ``system``, and for one that lacks a function."""
    return _SYSTEMS[system()]()

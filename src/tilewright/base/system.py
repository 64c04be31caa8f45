"""The operating system of this process, and what is for Linux only."""

import sys

from tilewright.base.errors import Unsupported, UnsupportedTarget
from tilewright.base.processors import System

_SYSTEMS = {"linux": System.LINUX, "darwin": System.MACOS, "win32": System.WINDOWS}
"""By Python's names."""


def system() -> System:
    """The operating system. Raises ``UnsupportedTarget`` for one that is not in ``System``."""
    if sys.platform not in _SYSTEMS:
        known = ", ".join(one.value for one in System)
        raise UnsupportedTarget(f"this system is {sys.platform}; Tilewright knows {known}")
    return _SYSTEMS[sys.platform]


def require_linux(what: str) -> None:
    """Raise ``Unsupported`` on another system, for ``what``, which needs the compiler."""
    if sys.platform != "linux":
        raise Unsupported(
            f"{what} needs the compiler, which is for Linux, and this is {sys.platform}: compile there, for the target "
            "x86_64-windows or aarch64-macos, save the model, and load it here"
        )

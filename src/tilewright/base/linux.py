"""What is for Linux only: the compiler, and all that measures."""

import sys

from tilewright.base.errors import Unsupported


def require_linux(what: str) -> None:
    """Raise ``Unsupported`` on another system, for ``what``, which needs the compiler."""
    if sys.platform != "linux":
        raise Unsupported(
            f"{what} needs the compiler, which is for Linux, and this is {sys.platform}: compile there, for the target "
            "x86_64-windows or aarch64-macos, save the model, and load it here"
        )

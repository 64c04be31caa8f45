"""Runs Yosys and nextpnr: those of the system, or the packages that carry them as WebAssembly (extra ``synthesis``)."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewright.base.errors import Timeout, Unsupported

MOST_SECONDS = 3600.0
_LINES = 8
"""Of what a tool said last, that an error shows."""


def command_of(tool: str) -> Path | None:
    """The program of a tool, such as ``nextpnr-ecp5``: the system's, or that of the package beside this Python."""
    packaged = f"yowasp-{tool}"
    beside = Path(sys.executable).parent / packaged
    found = shutil.which(tool) or shutil.which(packaged) or (str(beside) if beside.exists() else None)
    return None if found is None else Path(found)


def required(tool: str) -> Path:
    """The program of a tool. Raises ``Unsupported`` if it is not installed: ask before long work."""
    program = command_of(tool)
    if program is None:
        raise Unsupported(
            f"{tool} is not installed: pip install 'tilewright[synthesis]', or install your system's package {tool}"
        )
    return program


def run(tool: str, arguments: Sequence[str], folder: Path) -> str:
    """What a tool prints. Files are named relative to ``folder``.

    Raises ``Unsupported`` if it is not installed, or fails, ``Timeout`` after ``MOST_SECONDS``.
    """
    program = required(tool)
    try:
        done = subprocess.run(
            [program, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Timeout(f"{tool} ran for {MOST_SECONDS:.0f} s, and was stopped: give a smaller configuration") from error
    if done.returncode:
        said = "\n".join(done.stdout.strip().splitlines()[-_LINES:])
        raise Unsupported(f"{tool} fails with status {done.returncode}:\n{said}")
    return done.stdout

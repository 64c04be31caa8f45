"""Files of secret keys: created once, never replaced, and read only if no other user could read them."""

import os
import stat
import sys
from pathlib import Path

from tilewright.base.files import create_file, sweep


def make_secret(path: Path, content: bytes) -> None:
    """Write a new file, mode 0600. Raises ``FileExistsError`` if it exists, and ``OSError``."""
    sweep(path.parent)
    create_file(path, content, mode=0o600)


def read_secret(path: Path, most: int) -> bytes:
    """The content, or its first ``most`` bytes. Raises ``OSError`` if it is missing, or other users could read it."""
    if sys.platform == "win32":
        raise PermissionError(0, "Tilewright can't tell on Windows who could read it")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            raise PermissionError(0, "it is no file of this user's")
        if facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise PermissionError(0, "other users can read or write it (chmod 600 it, or remove it)")
        return file.read(most)

"""Files that appear whole or not at all, and folders that nobody else can write to."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path


def own_folder(folder: Path) -> str | None:
    """Make ``folder``, mode 0700, if it is missing; what is wrong with it if others could write to it, else None.

    Raises ``OSError`` if it can't be made or looked at.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    facts = folder.stat()
    if not stat.S_ISDIR(facts.st_mode):
        return "is no folder"
    if facts.st_uid != os.geteuid() or folder.lstat().st_uid != os.geteuid():
        return "belongs to another user"
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users can write to it (chmod 700 it)"
    return None


def replace_file(path: Path, parts: Iterable[bytes | memoryview], *, durable: bool = True) -> None:
    """Write ``parts``, one after the other, to a file that appears at once.

    It is on disk when this returns, unless it need not be ``durable``: what nobody wants after a power cut.
    Readers of an older file at ``path``, mapped or open, keep it as it was. Raises ``OSError``; nothing is left then.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(parts)
            file.flush()
            if durable:
                os.fsync(descriptor)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Without this, a power cut could take back the renaming."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason(error: OSError) -> str:
    """What the system says, without the number and the path."""
    return error.strerror or str(error)

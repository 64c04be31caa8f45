"""Writes files atomically, and checks that other users can't write to a folder.

A file is written to ``.tilewright-<16 digits>.part`` in the same folder, locked by its writer, and renamed when it is
complete. The part of a killed writer has no lock: ``sweep`` removes such parts, and none that is still being written.
On Windows, which has neither such locks nor the owners and modes of POSIX, files are only read.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tilewright.base.pieces import in_pieces

_HINTS = ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT")
READING = os.O_RDONLY | sum(getattr(os, name, 0) for name in _HINTS)
"""Flags to open a file of unknown kind: never wait for a pipe, keep it from children, read bytes as they are."""
_PART = re.compile(r"\.tilewright-[0-9a-f]{16}\.part")


def stamp(facts: os.stat_result) -> tuple[int, ...]:
    """File attributes that change when a file is written to."""
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def text_of(path: Path) -> str:
    """What a file of the system says, without space around it; nothing if it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def own_folder(folder: Path) -> str | None:
    """Make ``folder``, mode 0700, if it is missing; return the problem if other users could write to it, else None.

    Raises ``OSError`` if it can't be made or inspected.
    """
    if sys.platform == "win32":
        return "is on Windows, where Tilewright can't tell who may write to it"
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


@contextmanager
def replacing(path: Path, *, mode: int = 0o666, durable: bool = True) -> Generator[BinaryIO]:
    """A context manager: a file that replaces ``path`` atomically if the block ends without an error; else it is
    removed.

    ``durable``: flush it to disk. Readers of an older file at ``path``, mapped or open, keep the old content; the new
    file gets its permissions and owner (if allowed), or else ``mode`` less the umask. Raises ``OSError``.
    """
    part, descriptor = _new_part(path.parent, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            _take_permissions(path, descriptor)
            if durable:
                os.fsync(descriptor)
            part.replace(path)  # keep the lock until the rename, so that no sweep removes the part
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            part.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def replace_file(path: Path, parts: Iterable[bytes | memoryview], *, durable: bool = True) -> None:
    """Write ``parts`` in order to a file that appears atomically; see ``replacing``. Raises ``OSError``."""
    with replacing(path, durable=durable) as file:
        file.writelines(in_pieces(parts))


def create_file(path: Path, content: bytes, *, mode: int) -> None:
    """Write a new file atomically, and flush it to disk. Raises ``OSError`` (``FileExistsError``).

    One of several concurrent processes succeeds: a link never replaces a file.
    """
    part, descriptor = _new_part(path.parent, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
            os.link(part, path)
    finally:
        part.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove parts in ``folder`` of processes of this user that have died. Never raises."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _PART.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                _sweep_part(Path(entry.path))


def _sweep_part(part: Path) -> None:
    import fcntl

    with contextlib.suppress(OSError):
        # Open for writing, too: network file systems require it for a lock.
        descriptor = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()
        finally:
            os.close(descriptor)


def _new_part(folder: Path, mode: int) -> tuple[Path, int]:
    """A new file in ``folder``, open and locked."""
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "Tilewright writes no files on Windows", str(folder))
    while True:
        part = folder / f".tilewright-{secrets.token_hex(8)}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            if _is_locked(descriptor):
                return part, descriptor
        except BaseException:
            os.close(descriptor)
            part.unlink(missing_ok=True)
            raise
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Lock an open file; false if it was swept before it was locked."""
    import fcntl

    with contextlib.suppress(OSError):  # a file system without locks; ``sweep`` removes nothing there
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return os.fstat(descriptor).st_nlink > 0


def _take_permissions(path: Path, descriptor: int) -> None:
    """Give the open file the owner and permissions of the file at ``path``, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        old, new = path.stat(follow_symlinks=False), os.fstat(descriptor)
        if not stat.S_ISREG(old.st_mode):
            return
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(old.st_mode) & 0o777)


def sync_folder(folder: Path) -> None:
    """Flush the folder: else a power failure could undo the rename."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason(error: OSError) -> str:
    """The system's error message, without the number and the path."""
    return error.strerror or str(error)

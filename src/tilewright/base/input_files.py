"""Reads files of unknown origin: opens regular files only, and never blocks.

A device has no end, a pipe makes its reader wait for a writer, and opening some devices has side effects. So a path is
checked before it is opened, and the open file again, as the path may have changed. Files are read, not mapped: access
to a mapped page of a truncated file ends the process (``SIGBUS``).
"""

import errno
import os
import stat
from io import BufferedReader
from typing import Protocol, runtime_checkable

from tilewright.base.errors import BadInput
from tilewright.base.files import READING
from tilewright.base.names import shown

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MOST_AT_ONCE = 1 << 30
"""Bytes per system call; the maximum is 2 GiB."""


def kind_of(facts: os.stat_result) -> str | None:
    """The kind of a file that is not regular; None if it has no name."""
    return _KINDS.get(stat.S_IFMT(facts.st_mode))


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file, open for reading. Raises ``OSError`` for any other file, without blocking."""
    try:
        _check(os.stat(path), path)
        descriptor = os.open(path, READING)
    except ValueError as error:  # a zero byte, or half of a surrogate pair
        raise OSError(errno.EINVAL, "no file can have such a name", os.fspath(path)) from error
    try:
        _check(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes. Raises ``OSError``."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if max(size, len(content)) > most:
        raise OSError(errno.EFBIG, f"it has {size} bytes, more than {most}", os.fspath(path))
    return content


def read_regular_text(path: str | os.PathLike[str], most: int) -> str:
    """The text, in UTF-8, of a regular file of at most ``most`` bytes. Raises ``OSError``."""
    try:
        return read_regular(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"it is no text in UTF-8: {error}", os.fspath(path)) from error


def read_at(descriptor: int, offset: int, target: memoryview) -> int:
    """Fill ``target`` with a file's bytes from ``offset``; return their number, smaller only at the end of the file."""
    done = 0
    while done < len(target):
        count = os.preadv(descriptor, [target[done : done + _MOST_AT_ONCE]], offset + done)
        if not count:
            break
        done += count
    return done


def _check(facts: os.stat_result, path: str | os.PathLike[str]) -> None:
    kind = stat.S_IFMT(facts.st_mode)
    if kind != stat.S_IFREG:
        code = errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL
        raise OSError(code, f"it is {kind_of(facts) or 'something else'}, no regular file", os.fspath(path))


@runtime_checkable
class BinaryFile(Protocol):
    """What is open for reading bytes: ``io.BytesIO``, ``open(path, "rb")``."""

    def read(self) -> object:
        """The bytes from the present position to the end."""
        ...


def all_bytes(given: bytes | bytearray | memoryview | BinaryFile, what: str) -> bytes:
    """The bytes of ``what``: given, or read from a file. Raises ``BadInput`` if the file gives none, or raises."""
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    try:
        content = given.read()
    except (OSError, ValueError) as error:  # ValueError: it is closed
        raise BadInput(f"{what} can't be read from {shown(given)}: {error}") from error
    if not isinstance(content, bytes):
        raise BadInput(f"{what} can't be read from {shown(given)}: it gives no bytes; open it by open(path, 'rb')")
    return content

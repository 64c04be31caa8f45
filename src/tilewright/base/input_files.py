"""Files that are read, whoever made them: only regular ones are opened, and nothing here waits.

A device has no end, a pipe makes its reader wait for a writer, and opening some devices does something. So what a path
leads to is looked at before it is opened, and what was opened is looked at again: the path may have changed meanwhile.
Files are read, not mapped: touching a mapped page of a file that somebody cuts short ends the process (``SIGBUS``).
"""

import errno
import os
import stat
from io import BufferedReader

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_MOST_AT_ONCE = 1 << 30
"""Bytes of one call to the system, which takes up to 2 GiB."""


def kind_of(facts: os.stat_result) -> str | None:
    """What a file is that is no regular one; None if there is no word for it."""
    return _KINDS.get(stat.S_IFMT(facts.st_mode))


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A regular file, open for reading. Raises ``OSError``: for what is no regular file at once."""
    try:
        _check(os.stat(path), path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
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
    """Fill ``target`` with a file's bytes from ``offset`` on; how many there were, less only at its end."""
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

"""A bounded cache of bytes on disk, by content hash, shared by processes; disk problems are only warnings.

An entry is one file, ``<first two digits of the key>/<key>``: eight bytes of magic, the SHA-256 of key and data, data.
Files appear by rename, so a reader sees an entry completely or not at all. Every read checks the hash; an entry that
fails is removed and counts as a miss. The time of last use is the file's modification time; when the folder exceeds its
bound, the least recently used entries are evicted.

A file with its own checksums (an artifact) can be stored unchanged, to be mapped: ``keep`` and ``path``. ``path`` does
not read it, so a caller that finds it damaged calls ``remove``.

Compiled code is read from here and run, so the folder must be owned by the user, with mode 0700; other folders are
refused. Disk problems (full, read-only, missing) are warnings, never errors.

    store = Store.open(Settings.from_environment())
    store.put(key, data)  # key: 64 hexadecimal digits
    store.get(key)  # the data, or None
"""

import contextlib
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tilewright.base.errors import InternalError
from tilewright.base.events import CacheLookup, Listener, Warned, ignore
from tilewright.base.files import own_folder, reason
from tilewright.base.pieces import in_pieces
from tilewright.base.settings import Settings
from tilewright.base.sizes import format_size

_MAGIC = b"TWSTORE1"
_HEADER_BYTES = len(_MAGIC) + hashlib.sha256().digest_size
_KEY = re.compile(r"[0-9a-f]{64}")
_PART = ".part"  # suffix of files being written
_ABANDONED_SECONDS = 3600.0  # a part older than this belongs to a process that died
_KEPT_FRACTION = 0.9  # fraction of the bound after eviction, so that not every put evicts
_SCAN_FRACTION = 1 / 16  # fraction of the bound: bytes written between scans of the folder


class Cache(Protocol):
    """A cache of bytes by key; entries may disappear."""

    def get(self, key: str) -> bytes | None:
        """The data stored under ``key``, or None."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key``, for a limited time."""
        ...


class Recent:
    """A cache in memory of the ``size`` most recently used entries."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        """The data stored under ``key``, or None. Marks it as used now."""
        data = self._entries.pop(key, None)
        if data is not None:
            self._entries[key] = data
        return data

    def put(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key``, and evict the least recently used entry."""
        self._entries[key] = data
        if len(self._entries) > self._size:
            del self._entries[next(iter(self._entries))]


@dataclass(frozen=True, slots=True)
class Usage:
    """Statistics of the folder: entries, and bytes of their files."""

    entries: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.entries} entries, {format_size(self.bytes)} bytes"


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    size: int
    used: float


@dataclass(slots=True)
class _Written:
    """Bytes that this process has written to a folder since it last looked at all of it."""

    unscanned: float = float("inf")


_WRITTEN: dict[tuple[Path, int], _Written] = {}
"""By folder and bound: each compilation opens the store anew, and a look at a full folder takes longer than LLVM."""


class Store:
    """The cache in one folder. Threads and processes may use one folder at once.

    Each process enforces the bound by itself: with n processes writing at once, the folder can exceed it by n / 16.
    """

    def __init__(self, directory: Path, limit_bytes: int, listener: Listener = ignore) -> None:
        """A store in ``directory``, which ``Store.open`` has made or checked; at most ``limit_bytes`` of files."""
        self.directory = directory
        self.limit_bytes = limit_bytes
        self._listener = listener
        self._warned: set[str] = set()
        self._written = _WRITTEN.setdefault((directory, limit_bytes), _Written())

    @staticmethod
    def open(settings: Settings, listener: Listener = ignore) -> "Store | None":
        """The store that ``settings`` configure; None if they disable it, or if the folder can't be trusted or made.

        ``listener`` gets a warning in the latter case.
        """
        if settings.cache_dir is None or settings.cache_bytes == 0:
            return None
        try:
            fault = own_folder(settings.cache_dir)
        except OSError as error:
            fault = reason(error)
        if fault is not None:
            listener(Warned(f"no cache on disk: {settings.cache_dir}: {fault}"))
            return None
        return Store(settings.cache_dir, settings.cache_bytes, listener)

    def get(self, key: str) -> bytes | None:
        """The data stored under ``key``, or None. Marks it as used now."""
        path = self._path(key)
        data = self._read(path, key)
        self._listener(CacheLookup(key, data is not None))
        return data

    def put(self, key: str, data: bytes) -> None:
        """Store ``data`` under ``key``, in place of older data. Data larger than the bound are not stored."""
        path = self._path(key)
        size = _HEADER_BYTES + len(data)
        if size > self.limit_bytes:
            self._warn(f"an entry of {size} bytes is larger than the cache ({format_size(self.limit_bytes)})")
            return
        self._write(path, size, [_MAGIC, _checksum(key, data), data])

    def keep(self, key: str, size: int, parts: Iterable[bytes | memoryview]) -> bool:
        """Store a file of about ``size`` bytes under ``key``, written part by part; return whether it was stored.

        A file larger than half of the bound is not stored: it would evict nearly all other entries.
        """
        if size > self.limit_bytes // 2:
            self._warn(f"a file of {size} bytes takes more than half of the cache ({format_size(self.limit_bytes)})")
            return False
        return self._write(self._path(key), size, parts)

    def path(self, key: str) -> Path | None:
        """The path of the file stored under ``key``, or None. Marks it as used now."""
        path = self._path(key)
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"can't read from the cache {self.directory}: {reason(error)}")
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return path

    def remove(self, key: str, fault: str) -> None:
        """Remove the entry ``key``, because of ``fault``."""
        self._remove(self._path(key))
        self._listener(Warned(f"the cache entry {key[:12]} was removed: {fault}"))

    def usage(self) -> Usage:
        """Statistics of the folder now."""
        files = list(self._files())
        return Usage(len(files), sum(file.size for file in files))

    def clear(self) -> None:
        """Remove all entries."""
        for file in self._files():
            self._remove(file.path)

    def _path(self, key: str) -> Path:
        if _KEY.fullmatch(key) is None:
            raise InternalError(f"the key of a cache entry is a SHA-256 in hexadecimal digits, not {key!r}")
        return self.directory / key[:2] / key

    def _write(self, path: Path, size: int, parts: Iterable[bytes | memoryview]) -> bool:
        """Write a file, and evict entries if necessary."""
        try:
            _write(path, parts)
        except OSError as error:
            self._warn(f"can't write to the cache {self.directory}: {reason(error)}")
            return False
        self._written.unscanned += size
        if self._written.unscanned > self.limit_bytes * _SCAN_FRACTION:
            self._evict(path)
        return True

    def _read(self, path: Path, key: str) -> bytes | None:
        try:
            content = _read_file(path)
        except OSError as error:
            self._warn(f"can't read from the cache {self.directory}: {reason(error)}")
            return None
        if content is None:
            return None
        data = content[_HEADER_BYTES:]
        if content[:_HEADER_BYTES] == _MAGIC + _checksum(key, data):
            with contextlib.suppress(OSError):  # evicted by another process, or a read-only disk
                os.utime(path)
            return data
        self._remove(path)
        self._listener(Warned(f"the cache entry {key[:12]} was damaged and has been removed"))
        return None

    def _evict(self, newest: Path) -> None:
        """Evict least recently used entries, but not ``newest``, until the folder is within its bound."""
        files = sorted(self._files(), key=lambda file: file.used)
        total = sum(file.size for file in files)
        self._written.unscanned = 0.0
        if total <= self.limit_bytes:
            return
        for file in files:
            if total <= self.limit_bytes * _KEPT_FRACTION:
                return
            if file.path != newest:
                self._remove(file.path)
                total -= file.size

    def _files(self) -> Iterator[_File]:
        """The entries on disk; removes parts of processes that died."""
        oldest_part = time.time() - _ABANDONED_SECONDS
        for folder in _entries(self.directory):
            for entry in _entries(Path(folder.path)) if re.fullmatch("[0-9a-f]{2}", folder.name) else ():
                with contextlib.suppress(FileNotFoundError):
                    facts = entry.stat(follow_symlinks=False)
                    if _KEY.fullmatch(entry.name) is not None:
                        yield _File(Path(entry.path), facts.st_size, facts.st_mtime)
                    elif entry.name.endswith(_PART) and facts.st_mtime < oldest_part:
                        self._remove(Path(entry.path))

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"can't remove from the cache {self.directory}: {reason(error)}")

    def _warn(self, text: str) -> None:
        """Warn once: disk problems tend to repeat."""
        if text not in self._warned:
            self._warned.add(text)
            self._listener(Warned(text))


def _checksum(key: str, data: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(data)
    return digest.digest()


def _read_file(path: Path) -> bytes | None:
    """The content of a regular file; None if it does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def _write(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file atomically. Raises ``OSError``."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_PART}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(in_pieces(parts))
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of ``folder``, by name; none if it can't be listed."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []

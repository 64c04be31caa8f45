"""The n-th call to the system, or the n-th array, fails: what is called by name in Python is replaced for a while.

    with injected(IO, nth=3) as faults: ...
    faults.count  # calls so far; if it is less than nth, nothing failed

Calls are counted at the names that the sources use: functions of ``os``, ``mmap``, methods of opened files, statements
of SQLite, and NumPy's functions that make arrays. What the interpreter opens to import is not counted.
"""

import errno
import hashlib
import io
import mmap
import os
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import cast

import numpy as np
import pytest


class Kind(Enum):
    """What fails."""

    IO = "io"
    MEMORY = "memory"
    DATABASE = "database"


_READING = ("open", "read", "pread", "preadv", "scandir", "listdir", "stat", "fstat")
_WRITING = ("write", "fsync", "replace", "rename", "link", "unlink", "remove", "mkdir", "rmdir", "utime")
_ARRAYS = ("empty", "zeros", "ones", "full", "array", "asarray", "ascontiguousarray", "arange", "concatenate")
_OF_FILES = frozenset({"read", "readline", "readinto", "write", "writelines", "flush"})


@dataclass
class Faults:
    """Counts calls; the ``nth`` fails."""

    kind: Kind
    nth: int
    count: int = 0
    failed: str = ""

    def happens(self, what: str) -> None:
        """Raises if it is this call's turn."""
        self.count += 1
        if self.count == self.nth:
            self.failed = what
            raise self._error()

    def _error(self) -> Exception:
        match self.kind:
            case Kind.IO:
                return OSError(errno.EIO, "injected")
            case Kind.MEMORY:
                return MemoryError("injected")
            case Kind.DATABASE:
                return sqlite3.OperationalError("injected: disk I/O error")


class _File:
    """An opened file whose methods may fail."""

    def __init__(self, file: object, faults: Faults) -> None:
        self._file = file
        self._faults = faults

    def __getattr__(self, name: str) -> object:
        if name in _OF_FILES:
            self._faults.happens(f"file.{name}")
        return getattr(self._file, name)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        cast(io.IOBase, self._file).close()

    def __iter__(self) -> object:
        return iter(cast(io.IOBase, self._file))


@contextmanager
def injected(kind: Kind, nth: int) -> Generator[Faults]:
    """Let the ``nth`` call of this kind fail; 0: none does, and they are counted."""
    faults = Faults(kind, nth)
    with pytest.MonkeyPatch.context() as patch:
        match kind:
            case Kind.IO:
                _patch_files(patch, faults)
            case Kind.MEMORY:
                for name in _ARRAYS:
                    patch.setattr(np, name, _counted(getattr(np, name), faults, f"numpy.{name}"))
                patch.setattr(mmap, "mmap", _counted(mmap.mmap, faults, "mmap"))
                patch.setattr(hashlib, "sha256", _counted(hashlib.sha256, faults, "hashlib.sha256"))
            case Kind.DATABASE:
                real = sqlite3.connect
                patch.setattr(sqlite3, "connect", lambda *a, **k: _connected(real, faults, *a, **k))
        yield faults


def _patch_files(patch: pytest.MonkeyPatch, faults: Faults) -> None:
    for name in (*_READING, *_WRITING):
        patch.setattr(os, name, _counted(getattr(os, name), faults, f"os.{name}"))
    real = os.fdopen
    patch.setattr(os, "fdopen", lambda *given, **options: _File(real(*given, **options), faults))
    by_name = _counted(io.open, faults, "io.open", is_file=True)
    by_number = io.open  # what ``os.fdopen`` is made of
    patch.setattr(io, "open", lambda name, *a, **k: (by_number if isinstance(name, int) else by_name)(name, *a, **k))
    patch.setattr(mmap, "mmap", _counted(mmap.mmap, faults, "mmap"))
    patch.setattr(subprocess, "Popen", _counted(subprocess.Popen, faults, "Popen"))
    patch.setattr(socket, "socketpair", _counted(socket.socketpair, faults, "socketpair"))
    patch.setattr(tempfile, "TemporaryFile", _counted(tempfile.TemporaryFile, faults, "TemporaryFile"))


def _counted(real: Callable[..., object], faults: Faults, what: str, *, is_file: bool = False) -> Callable[..., object]:
    def call(*arguments: object, **options: object) -> object:
        faults.happens(what)
        result = real(*arguments, **options)
        return _File(result, faults) if is_file else result

    return call


def _connected(real: Callable[..., object], faults: Faults, *arguments: object, **options: object) -> object:
    class Faulty(sqlite3.Connection):
        """A connection whose statements may fail."""

        def execute(self, *statement: object) -> sqlite3.Cursor:
            faults.happens(f"execute {str(statement[0])[:60]}")
            return super().execute(*statement)  # type: ignore[arg-type]

    faults.happens("connect")
    return real(*arguments, **{**options, "factory": Faulty})

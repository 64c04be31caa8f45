"""Files of the service, by the SHA-256 of their content: models and artifacts.

    FOLDER/models/<sha256>    FOLDER/artifacts/<sha256>    FOLDER/work/    what is not complete: uploads, running jobs

A file appears whole, flushed to disk, and is never changed. No part of a name comes from a client.
"""

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Final

from tilewright.base.errors import BadInput
from tilewright.base.files import own_folder, reason, sync_folder
from tilewright.service.limits import StoreFull, TooLarge

HASH: Final = re.compile(r"[0-9a-f]{64}")
_CHUNK: Final = 1 << 20
_WORK: Final = "work"
_JOB: Final = "job-"
_NEW: Final = "new-"


class Kind(Enum):
    """What a file is."""

    MODEL = "models"
    ARTIFACT = "artifacts"


class Upload:
    """A file that arrives piece by piece."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        """``most``: bytes that it may have."""
        self.size = 0
        self._file, self._most, self._hash = file, most, hashlib.sha256()

    def add(self, data: bytes) -> None:
        """The next piece. Raises ``TooLarge`` if that is too much, and ``OSError``."""
        self.size += len(data)
        if self.size > self._most:
            raise TooLarge(f"the model has more than the {self._most} bytes that this service takes")
        self._hash.update(data)
        self._file.write(data)

    @property
    def sha256(self) -> str:
        """The hash of what has arrived."""
        return self._hash.hexdigest()


@dataclass(frozen=True, slots=True)
class Store:
    """The files in ``folder``."""

    folder: Path

    @staticmethod
    def open(folder: Path) -> "Store":
        """The store, made if it is missing. Raises ``BadInput`` if it can't be made, or others could write to it."""
        store = Store(folder.absolute())
        try:
            for part in (store.folder, *(store.folder / kind.value for kind in Kind), store.folder / _WORK):
                fault = own_folder(part)
                if fault is not None:
                    raise BadInput(f"the service can't keep files in {part}: it {fault}")
        except OSError as error:
            raise BadInput(f"the service can't keep files in {folder}: {reason(error)}") from error
        return store

    def path(self, kind: Kind, sha256: str) -> Path:
        """Where the file with this hash is, if it is there. Raises ``BadInput`` for what is no hash."""
        if not HASH.fullmatch(sha256):
            raise BadInput("a hash has 64 small hexadecimal digits")
        return self.folder / kind.value / sha256

    def has_artifact(self, sha256: str) -> bool:
        """Whether the artifact is there."""
        return self.path(Kind.ARTIFACT, sha256).is_file()

    def check_room(self, coming: int, spare: int) -> None:
        """Raises ``StoreFull`` if fewer than ``spare`` bytes would be free after ``coming`` more."""
        free = shutil.disk_usage(self.folder).free
        if free < coming + spare:
            raise StoreFull(
                f"the service's disk is almost full ({free} bytes are free): remove old files from its folder"
            )

    @contextmanager
    def upload(self, kind: Kind, most: int) -> Generator[Upload]:
        """A context manager: a file that is there, under its hash, when the block ends without an error.

        Raises ``OSError``.
        """
        descriptor, part = tempfile.mkstemp(prefix=_NEW, dir=self.folder / _WORK)
        try:
            with os.fdopen(descriptor, "wb") as file:
                upload = Upload(file, most)
                yield upload
                file.flush()
                os.fsync(descriptor)
            os.replace(part, self.folder / kind.value / upload.sha256)
        except BaseException:
            os.unlink(part)
            raise
        sync_folder(self.folder / kind.value)

    def keep(self, kind: Kind, path: Path, most: int) -> str:
        """Copy a file that a child wrote, and return its hash.

        It may be a link to another's file, or a pipe. Raises ``TooLarge``, and ``OSError``, also for these.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file, self.upload(kind, most) as upload:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
                raise PermissionError(errno.EPERM, "it is no regular file of its own")
            while data := file.read(_CHUNK):
                upload.add(data)
        return upload.sha256

    @contextmanager
    def workplace(self, model: str) -> Generator[Path]:
        """A context manager: a folder with a copy of this model, ``model.onnx``, alone. Raises ``OSError``."""
        with tempfile.TemporaryDirectory(prefix=_JOB, dir=self.folder / _WORK, ignore_cleanup_errors=True) as name:
            shutil.copyfile(self.path(Kind.MODEL, model), Path(name, "model.onnx"))
            yield Path(name)

    def clear(self, older: float) -> None:
        """Remove what killed processes left, last changed before the time ``older``."""
        for path in (self.folder / _WORK).iterdir():
            with suppress(OSError):
                if path.lstat().st_mtime < older:
                    path.unlink() if path.is_file() else shutil.rmtree(path)

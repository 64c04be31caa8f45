"""Files of the service, by the SHA-256 of their content: models and artifacts.

    FOLDER/work/    what is not complete: uploads, running jobs
    complete files  ``objects``: FOLDER/models/<sha256>, FOLDER/artifacts/<sha256>, or a bucket

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tilewright.base.errors import BadInput
from tilewright.base.files import own_folder, reason
from tilewright.service.limits import StoreFull, TooLarge
from tilewright.service.objects import Folder, Kind, Objects, Stream

HASH: Final = re.compile(r"[0-9a-f]{64}")
_CHUNK: Final = 1 << 20
_WORK: Final = "work"
_JOB: Final = "job-"
_NEW: Final = "new-"


class Upload:
    """A file that arrives piece by piece. A context manager: unless it was kept, it is gone after the block."""

    def __init__(self, objects: Objects, kind: Kind, most: int, folder: Path) -> None:
        """``most``: bytes that it may have; ``folder``: where it is until it is complete. Raises ``OSError``."""
        self.size = 0
        self._objects, self._kind, self._most, self._hash = objects, kind, most, hashlib.sha256()
        descriptor, name = tempfile.mkstemp(prefix=_NEW, dir=folder)
        self.path, self._file = Path(name), os.fdopen(descriptor, "wb")

    def __enter__(self) -> "Upload":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was not kept."""
        try:
            self._file.close()
        finally:
            self.path.unlink(missing_ok=True)

    def add(self, data: bytes | bytearray) -> None:
        """The next piece. Raises ``TooLarge`` if that is too much, and ``OSError``."""
        self.size += len(data)
        if self.size > self._most:
            raise TooLarge(f"the model has more than the {self._most} bytes that this service takes")
        self._hash.update(data)
        self._file.write(data)

    def flush(self) -> None:
        """Let readers of ``path`` see what has arrived. Raises ``OSError``."""
        self._file.flush()

    def keep(self) -> str:
        """The hash of the file, which is complete now, and in the store. Raises ``OSError`` and ``Unavailable``."""
        self._file.flush()
        sha256 = self._hash.hexdigest()
        self._objects.put(self._kind, sha256, self.path)
        return sha256


def objects_in(place: str | None) -> Objects | None:
    """The bucket that ``place`` names, if it names one. Raises ``BadInput``."""
    if place is None:
        return None
    try:
        from tilewright.service.bucket import Bucket
    except ModuleNotFoundError as error:
        raise BadInput(f"there is no {error.name}: pip install 'tilewright[s3]'") from error
    return Bucket.open(place)


@dataclass(frozen=True, slots=True)
class Store:
    """The files; those that are not complete are in ``folder``, the others in ``objects``."""

    folder: Path
    objects: Objects = field(repr=False)

    @staticmethod
    def open(folder: Path, objects: Objects | None = None) -> "Store":
        """The store, made if it is missing; ``objects``: by default in ``folder``, too.

        Raises ``BadInput`` if it can't be made, or others could write to it.
        """
        folder = folder.absolute()
        parts = [folder, folder / _WORK]
        if objects is None:
            parts += [folder / kind.value for kind in Kind]
        try:
            for part in parts:
                fault = own_folder(part)
                if fault is not None:
                    raise BadInput(f"the service can't keep files in {part}: it {fault}")
        except OSError as error:
            raise BadInput(f"the service can't keep files in {folder}: {reason(error)}") from error
        return Store(folder, Folder(folder) if objects is None else objects)

    def has_artifact(self, sha256: str) -> bool:
        """Whether the artifact with this hash is there. Raises ``Unavailable``."""
        return self.objects.has(Kind.ARTIFACT, sha256)

    def artifact(self, sha256: str) -> Path | Stream | None:
        """The artifact with this hash; None if it is not there. Raises ``Unavailable``."""
        return self.objects.content(Kind.ARTIFACT, sha256)

    def check_room(self, coming: int, spare: int) -> None:
        """Raises ``StoreFull`` if fewer than ``spare`` bytes would be free after ``coming`` more."""
        free = shutil.disk_usage(self.folder).free
        if free < coming + spare:
            raise StoreFull(
                f"the service's disk is almost full ({free} bytes are free): remove old files from its folder"
            )

    def upload(self, kind: Kind, most: int) -> Upload:
        """A file that begins to arrive. Raises ``OSError``."""
        return Upload(self.objects, kind, most, self.folder / _WORK)

    def keep(self, kind: Kind, path: Path, most: int) -> str:
        """Copy a file that a child wrote, and return its hash.

        It may be a link to another's file, or a pipe. Raises ``TooLarge``, ``Unavailable`` and ``OSError``, also for
        these.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file, self.upload(kind, most) as upload:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
                raise PermissionError(errno.EPERM, "it is no regular file of its own")
            while data := file.read(_CHUNK):
                upload.add(data)
            return upload.keep()

    @contextmanager
    def workplace(self) -> Generator[Path]:
        """A context manager: an empty folder for a job. Raises ``OSError``."""
        with tempfile.TemporaryDirectory(prefix=_JOB, dir=self.folder / _WORK, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def fetch_model(self, sha256: str, to: Path) -> None:
        """Copy a model. Raises ``BadInput`` if it is not there, ``Unavailable`` and ``OSError``."""
        if not self.objects.fetch(Kind.MODEL, sha256, to):
            raise BadInput("the model was removed from the service's store: submit it again")

    def clear(self, older: float) -> None:
        """Remove what killed processes left, last changed before the time ``older``. Raises ``Unavailable``."""
        for path in (self.folder / _WORK).iterdir():
            with suppress(OSError):
                if path.lstat().st_mtime < older:
                    path.unlink() if path.is_file() else shutil.rmtree(path)
        self.objects.clear(older)


def check_hash(sha256: str) -> None:
    """Raises ``BadInput`` for what is no hash."""
    if not HASH.fullmatch(sha256):
        raise BadInput("a hash has 64 small hexadecimal digits")

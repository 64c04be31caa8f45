"""Where complete files are kept, by the SHA-256 of their content: a folder, or a bucket (``bucket``).

A file appears whole, or not at all, and is never changed.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from tilewright.base.files import sync_folder


class Kind(Enum):
    """What a file is."""

    MODEL = "models"
    ARTIFACT = "artifacts"


@dataclass(frozen=True, slots=True)
class Stream:
    """The content of a file that is elsewhere, in pieces."""

    size: int
    pieces: Iterator[bytes]


class Objects(Protocol):
    """Keeps files. Each function raises ``Unavailable`` if what it asks does not answer, and ``OSError``."""

    def put(self, kind: Kind, sha256: str, part: Path) -> None:
        """Keep the file ``part``, which is complete and has this hash; it may be moved."""
        ...

    def has(self, kind: Kind, sha256: str) -> bool:
        """Whether the file is there."""
        ...

    def fetch(self, kind: Kind, sha256: str, to: Path) -> bool:
        """Copy the file to ``to``; false if it is not there."""
        ...

    def content(self, kind: Kind, sha256: str) -> Path | Stream | None:
        """The file for a reader; None if it is not there."""
        ...

    def clear(self, older: float) -> None:
        """Remove what writers left incomplete before the time ``older``."""
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    """Files in ``folder``, which is on the same file system as those that are put."""

    folder: Path

    def put(self, kind: Kind, sha256: str, part: Path) -> None:
        """As ``Objects.put``. When it returns, a power failure loses nothing."""
        if self.has(kind, sha256):
            return
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, self._path(kind, sha256))
        sync_folder(self.folder / kind.value)

    def has(self, kind: Kind, sha256: str) -> bool:
        """As ``Objects.has``."""
        return self._path(kind, sha256).is_file()

    def fetch(self, kind: Kind, sha256: str, to: Path) -> bool:
        """As ``Objects.fetch``."""
        try:
            shutil.copyfile(self._path(kind, sha256), to)
        except FileNotFoundError:
            return False
        return True

    def content(self, kind: Kind, sha256: str) -> Path | Stream | None:
        """As ``Objects.content``."""
        path = self._path(kind, sha256)
        return path if path.is_file() else None

    def clear(self, older: float) -> None:
        """As ``Objects.clear``: ``put`` leaves nothing."""

    def _path(self, kind: Kind, sha256: str) -> Path:
        return self.folder / kind.value / sha256

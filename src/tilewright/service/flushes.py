"""Flushes of a file to the disk that threads share: many who come at the same time wait for one or two of them.

A disk takes milliseconds for each, so clients that submit at the same time would wait for each other's. Databases call
this a group commit.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

from tilewright.base.files import sync_folder


class Flushes:
    """Of the file ``path``, which need not be there: then there is nothing to flush."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._asked = 0
        self._done = 0
        """How many of those who asked had done so before the last flush began."""
        self._is_named = False

    def flush(self) -> None:
        """Return when all that was written before is on the disk. Raises ``OSError``."""
        with self._counting:
            self._asked += 1
            mine = self._asked
        with self._turn:
            if self._done >= mine:
                return
            with self._counting:
                asked = self._asked
            self._flush()
            self._done = asked

    def _flush(self) -> None:
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            os.fsync(file.fileno())
            if not self._is_named:
                sync_folder(self._path.parent)
                self._is_named = True

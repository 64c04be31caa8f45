"""Flushes of a file to the disk that threads share: many who come at the same time wait for one or two of them.

A disk takes milliseconds for each, so clients that submit at the same time would wait for each other's. Databases call
this a group commit.
"""

import os
import threading
from io import BufferedReader
from pathlib import Path

from tilewright.base.files import sync_folder


class Flushes:
    """Of the file ``path``, which need not be there: then there is nothing to flush. It may be removed and made anew,
    as SQLite does with its log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._asked = 0
        self._done = 0
        """How many of those who asked had done so before the last flush began."""
        self._file: BufferedReader | None = None
        """The file whose name is on the disk. It stays open, so that no other one can have its number."""

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

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._forget()

    def _flush(self) -> None:
        try:
            there = self._path.stat()
            if self._file is not None and os.path.samestat(there, os.fstat(self._file.fileno())):
                os.fsync(self._file.fileno())
                return
            opened = self._path.open("rb")
        except FileNotFoundError:
            return
        try:
            os.fsync(opened.fileno())
            sync_folder(self._path.parent)
        except BaseException:
            opened.close()
            raise
        self._forget()
        self._file = opened

    def _forget(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

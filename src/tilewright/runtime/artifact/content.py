"""The bytes of an artifact's file: copied to memory, or mapped.

A mapped file's pages change with the file: a write changes a model's numbers, and truncation ends the process (SIGBUS)
on the next access, which no check can prevent. So a file is copied, unless nobody writes into it: as in the cache of
models (``shared_bytes``), or if the user says so. ``Mapped.check`` detects changes before a run.
"""

import contextlib
import mmap
import os
import re
import stat
import weakref
from pathlib import Path
from typing import Final

import numpy as np

from tilewright.base.errors import BadInput, CorruptArtifact
from tilewright.base.files import READING, reason
from tilewright.base.outputs import AnyPath
from tilewright.base.pieces import HUGE_PAGE
from tilewright.runtime.memory import aligned


def own_bytes(path: AnyPath) -> memoryview:
    """All bytes of a regular file, in private read-only memory. Raises as ``Mapped``."""
    descriptor, facts = _opened(path)
    try:
        memory = aligned(facts.st_size, f"the artifact {os.fspath(path)}")
        done = 0
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            while done < facts.st_size:
                count = file.readinto(memory[done:].data)
                if not count:
                    raise CorruptArtifact(f"the artifact {os.fspath(path)} was cut while it was read; load it again")
                done += count
    except OSError as error:
        raise BadInput(f"the artifact {os.fspath(path)} can't be read: {reason(error)}") from error
    finally:
        os.close(descriptor)
    memory.flags.writeable = False
    return memory.data


def shared_bytes(path: AnyPath) -> memoryview:
    """All bytes of a regular file that nobody writes into: mapped, and so shared, if they lie in huge pages or are few;
    else as ``own_bytes``, whose memory has huge pages. Raises as ``Mapped``.

    Weights come from small pages with two thirds of the memory's bandwidth (docs/appendix/running.md).
    """
    mapped = Mapped(path).data
    return mapped if len(mapped) < _MANY or _lies_in_huge_pages(mapped) else own_bytes(path)


_MANY: Final = 8 << 20
"""What the translation buffers of processors reach in small pages."""


def _lies_in_huge_pages(mapped: memoryview) -> bool:
    """Whether most of a mapped file does. Where the system does not tell, it does."""
    found = mapped[::HUGE_PAGE].tobytes()  # an access to a huge page maps all of it
    address = np.frombuffer(mapped, np.uint8).ctypes.data
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return True
    inside = False
    for line in lines:
        if place := _PLACE.match(line):
            inside = int(place[1], 16) <= address < int(place[2], 16)
        elif inside and line.startswith("FilePmdMapped:"):
            return 4 * int(line.split()[1]) * 1024 >= 3 * (len(found) - 1) * HUGE_PAGE
    return True


_PLACE: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")
"""How the lines about a mapping begin."""


def in_memory(content: bytes) -> memoryview:
    """A read-only copy, aligned as the members of an archive are. Raises ``CorruptArtifact`` if it is empty."""
    if not content:
        raise CorruptArtifact("the artifact in memory is empty")
    memory = aligned(len(content), "the artifact in memory")
    memory.data[:] = content
    memory.flags.writeable = False
    return memory.data


class Mapped:
    """A regular file, mapped: shared by all processes that map it, and read from the disk as it is used.

    Raises ``BadInput`` if there is none, or it can't be opened; ``CorruptArtifact`` if it is empty.
    """

    def __init__(self, path: AnyPath) -> None:
        descriptor, facts = _opened(path)
        weakref.finalize(self, os.close, descriptor)
        self._path = path
        self._descriptor = descriptor
        self._stamp = _stamp(facts)
        try:
            mapped = mmap.mmap(descriptor, facts.st_size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else error
            raise BadInput(f"the artifact {os.fspath(path)} can't be mapped: {why}") from error
        with contextlib.suppress(OSError):  # a system without huge pages
            mapped.madvise(mmap.MADV_HUGEPAGE)
        self.data = memoryview(mapped)

    def check(self) -> None:
        """Raise ``CorruptArtifact`` if the file was written to since. (Another file may have replaced its name.)"""
        if _stamp(os.fstat(self._descriptor)) != self._stamp:
            raise CorruptArtifact(
                f"somebody wrote into the artifact {os.fspath(self._path)} while its model was in use: load it again, "
                "without mmap=True, or replace it by saving or renaming"
            )


def _opened(path: AnyPath) -> tuple[int, os.stat_result]:
    try:
        descriptor = os.open(path, READING)
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise BadInput(f"the artifact {os.fspath(path)!r} can't be opened: {why}") from error
    try:
        return descriptor, _facts(descriptor, path)
    except BadInput:
        os.close(descriptor)
        raise


def _facts(descriptor: int, path: AnyPath) -> os.stat_result:
    """The size of a regular, non-empty file."""
    try:
        facts = os.fstat(descriptor)
    except OSError as error:
        raise BadInput(f"the artifact {os.fspath(path)} can't be read: {reason(error)}") from error
    if not stat.S_ISREG(facts.st_mode):
        raise BadInput(f"{os.fspath(path)} is no regular file; give the file that CompiledModel.save wrote")
    if not facts.st_size:
        raise CorruptArtifact(f"the artifact {os.fspath(path)} is empty")
    return facts


def _stamp(facts: os.stat_result) -> tuple[int, int]:
    """File attributes that change with a write; not the change time, which renaming another file over it sets, too."""
    return facts.st_size, facts.st_mtime_ns

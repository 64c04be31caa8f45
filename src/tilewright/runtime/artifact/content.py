"""The bytes of an artifact's file: in memory of our own, or mapped.

Pages of a file that is mapped follow the file: whoever writes into it changes a model's numbers, and whoever makes it
shorter ends the process (SIGBUS) when it touches what is gone; no check can come between. So a file is read, unless it
is known that nobody writes into it: the cache of models has such files, and a user may say so. ``Mapped.check`` finds
out, before a run, that it was not true.
"""

import mmap
import os
import stat
import weakref

from tilewright.base.errors import BadInput, CorruptArtifact
from tilewright.base.files import reason
from tilewright.base.outputs import AnyPath
from tilewright.runtime.memory import aligned


def own_bytes(path: AnyPath) -> memoryview:
    """All bytes of a regular file, read-only, in memory that nobody else can write to. Raises as ``Mapped``."""
    descriptor, facts = _opened(path)
    try:
        memory = aligned(facts.st_size, f"the artifact {os.fspath(path)}")
        done = 0
        while done < facts.st_size:
            count = os.readv(descriptor, [memory[done:].data])
            if not count:
                raise CorruptArtifact(f"the artifact {os.fspath(path)} was cut while it was read; load it again")
            done += count
    except OSError as error:
        raise BadInput(f"the artifact {os.fspath(path)} can't be read: {reason(error)}") from error
    finally:
        os.close(descriptor)
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
            self.data = memoryview(mmap.mmap(descriptor, facts.st_size, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else error
            raise BadInput(f"the artifact {os.fspath(path)} can't be mapped: {why}") from error

    def check(self) -> None:
        """Raise ``CorruptArtifact`` if somebody has written into the file since. (Another file may have its name.)"""
        if _stamp(os.fstat(self._descriptor)) != self._stamp:
            raise CorruptArtifact(
                f"somebody wrote into the artifact {os.fspath(self._path)} while its model was in use: load it again, "
                "without mmap=True, or replace it by saving or renaming"
            )


def _opened(path: AnyPath) -> tuple[int, os.stat_result]:
    try:
        # Without waiting: opening a pipe would block until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise BadInput(f"the artifact {os.fspath(path)!r} can't be opened: {why}") from error
    try:
        return descriptor, _facts(descriptor, path)
    except BadInput:
        os.close(descriptor)
        raise


def _facts(descriptor: int, path: AnyPath) -> os.stat_result:
    """Of a regular file that is not empty."""
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
    """What changes when a file is written to; not its time of change, which renaming another one over it sets, too."""
    return facts.st_size, facts.st_mtime_ns

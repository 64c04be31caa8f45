"""Memories: where buffers live, as objects of a back end.

Whoever has to know who sees a buffer, or how much fits, asks the memory; nothing compares names. A back end declares
its own, as ``Memory("shared", 48 << 10, Sharing.BLOCK, alignment=128)``. Declared here are those that need no back end:
``GLOBAL`` and ``LOCAL``, which all have, and ``SHARED``, a block's memory without a bound.
"""

from dataclasses import dataclass
from enum import Enum


class Sharing(Enum):
    """Who sees what is in a memory."""

    ALL = "all"
    """Everybody: who calls, all workers, all threads of all blocks."""
    BLOCK = "block"
    """The threads of one block."""
    THREAD = "thread"
    """One thread, or one worker of a CPU."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A kind of memory. ``name`` is how programs write it (``alloc T: f32[8] in shared``)."""

    name: str
    capacity: int | None
    """Bytes that one holder (the device, a block, a thread) has of it; None: as much as there is."""
    sharing: Sharing
    alignment: int = 64
    """Bytes: buffers in it start at multiples, and so take multiples."""

    def __repr__(self) -> str:
        """Python that gives the same memory, where the names of this module are known."""
        if self in MEMORIES.values():
            return self.name.upper()
        return f"Memory({self.name!r}, {self.capacity}, Sharing.{self.sharing.name}, {self.alignment})"


GLOBAL = Memory("global", None, Sharing.ALL)
"""Arguments, and allocations that all workers see."""
LOCAL = Memory("local", None, Sharing.THREAD)
"""Private to one worker: registers where all indices become constants, else its stack or scratch."""
SHARED = Memory("shared", None, Sharing.BLOCK)
"""Shared by the threads of one block."""

MEMORIES = {memory.name: memory for memory in (GLOBAL, LOCAL, SHARED)}
"""The memories that a parser knows without a declaration."""

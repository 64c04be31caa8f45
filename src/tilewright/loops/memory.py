"""Memories: the address spaces of buffers, declared by back ends.

A memory has its visibility and its capacity; code never compares names of memories. A back end declares its own, as
``Memory("shared", 48 << 10, Sharing.BLOCK, alignment=128)``. Independent of back ends are ``GLOBAL`` and ``LOCAL``, and
``SHARED``, a block's memory of unbounded size.
"""

from dataclasses import dataclass
from enum import Enum


class Sharing(Enum):
    """Which threads share a memory."""

    ALL = "all"
    """The caller, all workers, all threads of all blocks."""
    BLOCK = "block"
    """The threads of one block."""
    THREAD = "thread"
    """One thread, or one worker of a CPU."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A kind of memory. ``name`` is its name in programs (``alloc T: f32[8] in shared``)."""

    name: str
    capacity: int | None
    """Capacity in bytes of one instance (per device, block or thread); None: unbounded."""
    sharing: Sharing
    alignment: int = 64
    """Bytes: starts and sizes of buffers are multiples of it."""

    def __repr__(self) -> str:
        """A Python expression for this memory, in the namespace of this module."""
        if self in MEMORIES.values():
            return self.name.upper()
        return f"Memory({self.name!r}, {self.capacity}, Sharing.{self.sharing.name}, {self.alignment})"


GLOBAL = Memory("global", None, Sharing.ALL)
"""Arguments, and allocations visible to all workers."""
LOCAL = Memory("local", None, Sharing.THREAD)
"""Private to one worker: registers if all indices become constants, else its stack or scratch."""
SHARED = Memory("shared", None, Sharing.BLOCK)
"""Shared by the threads of one block."""

MEMORIES = {memory.name: memory for memory in (GLOBAL, LOCAL, SHARED)}
"""The memories that a parser knows without a declaration."""

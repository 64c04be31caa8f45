"""Reports of runs on the reference back end: bytes, operations, and errors."""

from dataclasses import dataclass
from enum import Enum

from tilewright.base.errors import BadProgram
from tilewright.loops.memory import Memory

Coordinates = tuple[int, int, int]
"""Indices along x, y, z."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of a launch."""

    block: Coordinates
    thread: Coordinates

    def __str__(self) -> str:
        return f"thread {self.thread} of block {self.block}"


@dataclass(frozen=True, slots=True)
class Access:
    """One element, accessed by one thread (None: outside of all launches)."""

    statement: str
    """Its text, after the name of its block."""
    is_write: bool
    buffer: str
    index: tuple[int, ...]
    thread: Thread | None

    def __str__(self) -> str:
        verb = "writes" if self.is_write else "reads"
        return f"{self.thread or 'the host'} {verb} {self.buffer}{list(self.index)} in `{self.statement}`"


@dataclass(frozen=True, slots=True)
class Race:
    """Two threads access an element, one writes it, without a barrier between; blocks never have one."""

    first: Access
    second: Access

    def __str__(self) -> str:
        return f"race: {self.first}; {self.second}, with no barrier between"


class Fault(Enum):
    """Kinds of invalid accesses."""

    OUT_OF_BOUNDS = "outside of the buffer's shape"
    OUT_OF_SCOPE = "in a memory that the thread does not see: it is another's"
    NEVER_WRITTEN = "which was never written"


@dataclass(frozen=True, slots=True)
class Trouble:
    """An invalid access."""

    fault: Fault
    access: Access

    def __str__(self) -> str:
        return f"{self.access}: {self.fault.value}"


@dataclass(frozen=True, slots=True)
class Overflow:
    """More bytes allocated at once in a memory than one holder has."""

    memory: Memory
    bytes: int

    def __str__(self) -> str:
        return f"{self.bytes} bytes are held in {self.memory.name}, which has {self.memory.capacity}"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes loaded from a buffer, and stored to it, by all threads together."""

    buffer: str
    memory: Memory
    loaded: int
    stored: int


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a run. Of findings that differ only in threads and elements, the first is kept."""

    traffic: tuple[Traffic, ...]
    operations: int
    """Arithmetic on values (not on indices and conditions): a multiply-add counts as two."""
    barriers: int
    """Number of barriers that all threads of a block passed."""
    races: tuple[Race, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    overflows: tuple[Overflow, ...] = ()

    def loaded(self, memory: Memory | str) -> int:
        """Bytes loaded from ``memory``, or from the buffer of that name."""
        return sum(item.loaded for item in self.traffic if memory in (item.memory, item.buffer))

    def stored(self, memory: Memory | str) -> int:
        """Bytes stored to ``memory``, or to the buffer of that name."""
        return sum(item.stored for item in self.traffic if memory in (item.memory, item.buffer))

    @property
    def findings(self) -> tuple[Race | Trouble | Overflow, ...]:
        """All errors."""
        return (*self.races, *self.troubles, *self.overflows)

    def check(self) -> None:
        """Raise ``BadProgram`` if there are errors."""
        if self.findings:
            raise BadProgram("\n".join(map(str, self.findings)))

    def __str__(self) -> str:
        lines = [f"{'buffer':<16} {'memory':<10} {'loaded':>12} {'stored':>12}"]
        lines += (f"{t.buffer:<16} {t.memory.name:<10} {t.loaded:>12} {t.stored:>12}" for t in self.traffic)
        lines.append(f"{self.operations} operations, {self.barriers} barriers")
        return "\n".join([*lines, *map(str, self.findings)])

"""The elements of a buffer: their values, owners, and last accesses, for the detection of races.

Every element records the last thread that wrote it, two threads that have read it since the last barrier, and two from
different blocks that have read it in this launch: enough to detect an access of another thread.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.backend.reference.lanes import Mask, Numbers
from tilewright.base.arrays import Array
from tilewright.loops.ir import Buffer
from tilewright.loops.memory import Sharing


@dataclass(frozen=True, slots=True)
class Now:
    """The time of an access: ``epoch`` grows with each barrier, block and launch."""

    epoch: int
    launch: int
    """The first epoch of the launch."""
    threads: int
    """Threads of each block; thread ``i`` of block ``b`` has the number ``b * threads + i``."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """An earlier access (a thread, and the number of a statement) in conflict with the lane ``lane``."""

    lane: int
    thread: int
    statement: int
    is_write: bool


class _Marks:
    """For each element, a thread, a time, and a statement."""

    def __init__(self, size: int) -> None:
        self.who = np.full(size, -1, np.int64)
        self.when = np.zeros(size, np.int64)
        self.what = np.zeros(size, np.int32)

    def put(self, at: Numbers, who: Numbers, now: Now, statement: int) -> None:
        self.who[at], self.when[at], self.what[at] = who, now.epoch, statement

    def meeting(self, at: Numbers, clash: Mask, is_write: bool) -> Iterator[Meeting]:
        if clash.any():
            lane = int(clash.argmax())
            element = at[lane]
            yield Meeting(lane, int(self.who[element]), int(self.what[element]), is_write)


class Cells:
    """An allocated buffer; flat, row-major. ``copies``: each lane has its own."""

    def __init__(self, buffer: Buffer, shape: tuple[int, ...], copies: int = 0) -> None:
        self.buffer = buffer
        self.shape = shape
        self.size = int(np.prod(shape, dtype=np.int64))
        total = self.size * max(copies, 1)
        self.copies = copies
        self.values: Array = np.zeros(total, buffer.dtype.numpy)
        self.written = np.zeros(total, np.bool_)
        self._owner = np.full(0 if buffer.memory.sharing is Sharing.ALL else total, -1, np.int64)
        marks = 0 if copies or buffer.memory.sharing is Sharing.THREAD else total
        self._writer = _Marks(marks)
        self._readers = (_Marks(marks), _Marks(marks))
        far = marks if buffer.memory.sharing is Sharing.ALL else 0
        self._far_readers = (_Marks(far), _Marks(far))

    @property
    def bytes(self) -> int:
        """The bytes of one copy."""
        return self._taken(self.size)

    @property
    def bytes_by_owner(self) -> int:
        """The maximum bytes of one holder."""
        owned = self._owner[self._owner >= 0]
        return self._taken(int(np.bincount(owned).max())) if owned.size else 0

    def _taken(self, elements: int) -> int:
        unit = self.buffer.memory.alignment
        return -(-elements * self.buffer.dtype.itemsize // unit) * unit

    def forget(self) -> None:
        """Contents become undefined and unowned; accesses stay recorded, as the memory is the same."""
        self.written[:] = False
        self._owner[:] = -1

    def foreign(self, at: Numbers, who: Numbers, now: Now) -> Mask:
        """Which lanes access an element of another thread or block; unowned elements become theirs."""
        if not self._owner.size:
            return np.zeros(at.shape, np.bool_)
        holder = who if self.buffer.memory.sharing is Sharing.THREAD else who // now.threads
        free = self._owner[at] < 0
        self._owner[at[free]] = holder[free]
        return self._owner[at] != holder

    def read(self, at: Numbers, who: Numbers, now: Now, statement: int) -> Iterator[Meeting]:
        """Record that the lanes ``who`` read the elements ``at``; returns the conflicting writes."""
        if not self._writer.who.size:
            return
        yield from self._writer.meeting(at, self._unordered(self._writer, at, who, now), True)
        first, second = self._readers
        stale = first.when[at] != now.epoch
        first.put(at[stale], who[stale], now, statement)
        other = first.who[at] != who
        second.put(at[other], who[other], now, statement)
        if self._far_readers[0].who.size:
            first, second = self._far_readers
            stale = first.when[at] < now.launch
            first.put(at[stale], who[stale], now, statement)
            other = first.who[at] // now.threads != who // now.threads
            second.put(at[other], who[other], now, statement)

    def write(self, at: Numbers, who: Numbers, now: Now, statement: int) -> Iterator[Meeting]:
        """Record that the lanes ``who`` write the elements ``at``; returns the conflicting accesses."""
        if not self._writer.who.size:
            return
        yield from self._writer.meeting(at, self._unordered(self._writer, at, who, now), True)
        for marks in (*self._readers, *self._far_readers):
            if marks.who.size:
                yield from marks.meeting(at, self._unordered(marks, at, who, now), False)
        self._writer.put(at, who, now, statement)
        yield from self._writer.meeting(at, self._writer.who[at] != who, True)

    def _unordered(self, marks: _Marks, at: Numbers, who: Numbers, now: Now) -> Mask:
        """Whether the access in ``marks`` was by another thread in this epoch, or by another block in this launch."""
        before, when = marks.who[at], marks.when[at]
        is_far = before // now.threads != who // now.threads
        return (before != who) & (when >= now.launch) & ((when == now.epoch) | is_far)

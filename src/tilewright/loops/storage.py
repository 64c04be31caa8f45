"""Buffers of the interpreter: elements, which of them were written, and the executed points of blocks."""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram
from tilewright.loops.ir import Buffer

Point: TypeAlias = tuple[int, ...]
Box: TypeAlias = tuple[tuple[int, int], ...]
"""A region's start and extent in each dimension."""


@dataclass(slots=True)
class Progress:
    """The executed points of a block since the allocation of the buffer that it writes."""

    reduced: dict[tuple[object, ...], set[Point]] = field(default_factory=dict[tuple[object, ...], set[Point]])
    """The executed reduction points at each other point."""
    clock: dict[tuple[object, ...], Point] = field(default_factory=dict[tuple[object, ...], Point])
    """The last values of the ordered axes, at each spatial point."""
    points: int = 1
    """The number of reduction points."""


@dataclass(slots=True, eq=False)
class Storage:
    """An allocated buffer: its elements, which of them were written, and the record of its writers."""

    array: Array
    written: NDArray[np.bool_]
    progress: dict[str, Progress] = field(default_factory=dict[str, Progress])
    depth: int = 0
    """The number of active blocks at its allocation."""
    whole: tuple[range, ...] = field(init=False)
    """All indices, by dimension."""

    def __post_init__(self) -> None:
        self.whole = tuple(map(range, self.array.shape))

    @staticmethod
    def new(buffer: Buffer, shape: tuple[int, ...], depth: int = 0) -> "Storage":
        """A storage with undefined contents."""
        shape = tuple(max(extent, 0) for extent in shape)
        return Storage(np.zeros(shape, buffer.dtype.numpy), np.zeros(shape, np.bool_), depth=depth)

    @staticmethod
    def full(array: Array) -> "Storage":
        """A storage with the values of ``array``."""
        return Storage(array, np.ones(array.shape, np.bool_))

    def view(self, box: Box, rank: int) -> "Storage":
        """The part in ``box``, with leading dimensions dropped until ``rank`` are left."""
        leading = len(box) - rank
        slices = tuple(start if d < leading else slice(start, start + size) for d, (start, size) in enumerate(box))
        return Storage(self.array[*slices, ...], self.written[*slices, ...])  # `...`: a view, also of one element

    def reshaped(self, shape: tuple[int, ...]) -> "Storage":
        """All elements, row-major in another shape."""
        return Storage(self.array.reshape(shape), self.written.reshape(shape))

    def check_complete(self, program: str, name: str) -> None:
        """Raise ``BadProgram`` if an element of this output was never written."""
        if not self.written.all():
            missing = [int(i) for i in np.argwhere(~self.written)[0]]
            raise BadProgram(f"{program}: nothing writes the output element {name}{missing}")

    def finish(self) -> None:
        """The end of its lifetime: checks that all reductions into it are complete."""
        for block, progress in self.progress.items():
            for where, done in progress.reduced.items():
                if len(done) != progress.points:
                    raise BadProgram(
                        f"block {block}: at {where[-1]}, {len(done)} of {progress.points} reduction points are executed"
                    )

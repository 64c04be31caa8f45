"""Features of innermost statements (Zheng et al., "Ansor", OSDI 2020, section 5.2, appendix B): 164 of each.

However a program is structured, its statements have the same features, so one model serves all programs: it sums up
what it thinks of the statements. ``NAMES`` has the fields in their order; each number x is given as ``log2(x + 1)``:

- ``op``: operations that all iterations together do, by kind;
- ``vectorize``, ``unroll``, ``parallel``: how many loops, the product of their lengths, the length of the innermost
  one, and its place: the innermost or outermost of the loops along which different elements are written (spatial) or
  values are combined (reduce), or between these; ``mixed`` is both;
- ``gpu``: lengths of loops over blocks and threads;
- ``buffer0`` ... ``buffer4``: those that are accessed, most lines first: how it is accessed; bytes, different bytes,
  lines (``touched.py``); how data are used again: in a loop that does not move (after ``distance`` iterations that
  touch so many bytes, as often as that loop runs), by another statement, or not at all; the first four over how often
  that is (doubled where it is not); and the stride along the innermost loop;
- ``intensity``: flops over bytes while more and more loops run, at ten points of log2(flops), piecewise linear;
- ``allocated``: the buffer that is written, if it exists for a part of the program: bytes, elements of all times that
  it is made, how often it is made, iterations of the statement each time;
- ``outer``: iterations, loops, and vectors that are written out as unrolled loops are. (There are no pragmas here that
  ask for unrolling, which is what the third one is of in the paper.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import log2, prod

import numpy as np
from numpy.typing import NDArray

from tilewright.loops.ir import LoopKind
from tilewright.loops.program import Program
from tilewright.target.target import Target
from tilewright.tune.features.operations import Mode, Operation
from tilewright.tune.features.sites import Access, LoopAround, Site, sites
from tilewright.tune.features.touched import Touched, touched
from tilewright.tune.features.walk import Floats

BUFFERS = 5
SAMPLES = 10
GROUPS = {"vectorize": LoopKind.VECTORIZED, "unroll": LoopKind.UNROLLED, "parallel": LoopKind.PARALLEL}


class Position(Enum):
    """Where a loop is among those around a statement."""

    NONE = "none"
    INNER_SPATIAL = "inner_spatial"
    MIDDLE_SPATIAL = "middle_spatial"
    OUTER_SPATIAL = "outer_spatial"
    INNER_REDUCE = "inner_reduce"
    MIDDLE_REDUCE = "middle_reduce"
    OUTER_REDUCE = "outer_reduce"
    MIXED = "mixed"


_SPATIAL = (Position.INNER_SPATIAL, Position.MIDDLE_SPATIAL, Position.OUTER_SPATIAL)
_REDUCE = (Position.INNER_REDUCE, Position.MIDDLE_REDUCE, Position.OUTER_REDUCE)
LENGTHS = {
    "block_x": LoopKind.BLOCK_X,
    "block_y": LoopKind.BLOCK_Y,
    "block_z": LoopKind.BLOCK_Z,
    "thread_x": LoopKind.THREAD_X,
    "thread_y": LoopKind.THREAD_Y,
    "thread_z": LoopKind.THREAD_Z,
    "virtual": LoopKind.VIRTUAL_THREAD,
}
OF_BUFFER = (
    *("is_read", "is_written", "is_read_and_written"),
    *("bytes", "unique_bytes", "lines", "unique_lines"),
    *("reused_in_loop", "reused_by_statements", "not_reused"),
    *("distance", "distance_bytes", "reuses"),
    *("bytes_per_reuse", "unique_bytes_per_reuse", "lines_per_reuse", "unique_lines_per_reuse"),
    "stride",
)
NAMES: tuple[str, ...] = (
    *(f"op.{operation.value}" for operation in Operation),
    *(
        f"{group}.{name}"
        for group in GROUPS
        for name in ("count", "product", "length", *(f"is_{position.value}" for position in Position))
    ),
    "gpu.is_gpu",
    *(f"gpu.{name}" for name in LENGTHS),
    *(f"buffer{place}.{name}" for place in range(BUFFERS) for name in OF_BUFFER),
    *(f"intensity.{place}" for place in range(SAMPLES)),
    *("allocated.bytes", "allocated.elements", "allocated.times", "allocated.iterations"),
    *("outer.iterations", "outer.loops", "outer.vectors"),
)


_NO_ROWS: Floats = np.empty((0, len(NAMES)))


@dataclass(frozen=True, slots=True)
class StatementRows:
    """Statements of several programs: ``rows`` (statements, 164); those of program ``p`` are from ``offsets[p]`` up to
    ``offsets[p + 1]``, (programs + 1,)."""

    rows: Floats
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        """How many programs these are."""
        return len(self.offsets) - 1

    @classmethod
    def of(cls, features: Sequence[Floats]) -> "StatementRows":
        """``features``: those of the statements of each program, (statements, 164)."""
        offsets = np.cumsum([0, *map(len, features)], dtype=np.int64)
        return cls(np.concatenate([_NO_ROWS, *features]), offsets)

    @classmethod
    def joined(cls, parts: Sequence["StatementRows"]) -> "StatementRows":
        """All programs of ``parts``, one part after the other."""
        counts = [np.diff(part.offsets) for part in parts]
        offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))
        return cls(np.concatenate([_NO_ROWS, *(part.rows for part in parts)]), offsets)

    @property
    def programs(self) -> NDArray[np.int64]:
        """Which program each statement is of, (statements,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def take(self, programs: NDArray[np.int64]) -> "StatementRows":
        """Some of the programs, in the order in which they are given."""
        return StatementRows.of([self.rows[self.offsets[one] : self.offsets[one + 1]] for one in programs])


def program_matrix(programs: Sequence[Program], target: Target, mode: Mode = Mode.REPAIRED) -> StatementRows:
    """The features of all statements of ``programs``. Raises ``Unsupported`` as ``statement_features`` does."""
    return StatementRows.of([statement_features(program, target, mode) for program in programs])


def statement_features(program: Program, target: Target, mode: Mode = Mode.REPAIRED) -> Floats:
    """The features of the innermost statements of a scheduled program, in its order: (statements, ``NAMES``).

    Raises ``Unsupported`` for calls of other programs, and for loops that run as often as data say.
    """
    return np.log2(statement_numbers(program, target, mode) + 1.0)


def statement_numbers(program: Program, target: Target, mode: Mode = Mode.REPAIRED) -> Floats:
    """The features as they are before the logarithm is taken."""
    found = sites(program, mode)
    accessed = [[_Accessed(access, touched(access, site.loops)) for access in site.accesses] for site in found]
    traffic = _Traffic()
    for site, accesses in zip(found, accessed, strict=True):
        traffic.add(site.loops, accesses)
    rows = [
        [
            *_operations(site),
            *_annotations(site, mode),
            *_lengths(site.loops),
            *_buffers(site.loops, accesses, traffic),
            *_intensities(site, accesses),
            *_allocation(site),
            *_outer(site, target),
        ]
        for site, accesses in zip(found, accessed, strict=True)
    ]
    return np.array(rows, np.float64).reshape(len(rows), len(NAMES))


@dataclass(frozen=True, slots=True)
class _Accessed:
    """An access, and what it touches."""

    access: Access
    touched: Touched

    @property
    def itemsize(self) -> int:
        return self.access.buffer.dtype.itemsize


class _Traffic:
    """What all statements touch within each loop, which is known by its number."""

    def __init__(self) -> None:
        self.total: dict[int, int] = {}
        """Bytes."""
        self.single: dict[int, int] = {}
        """Bytes of one element of each access."""
        self.elements: dict[tuple[int, str], list[int]] = {}
        """Of a buffer, by each statement."""

    def add(self, loops: Sequence[LoopAround], accesses: Sequence[_Accessed]) -> None:
        for accessed in accesses:
            name, itemsize = accessed.access.buffer.name, accessed.itemsize
            for loop, elements in zip(loops, accessed.touched.elements, strict=False):  # one more: of no loop
                number = loop.number
                self.total[number] = self.total.get(number, 0) + elements * itemsize
                self.single[number] = self.single.get(number, 0) + itemsize
                self.elements.setdefault((number, name), []).append(elements)


def _operations(site: Site) -> list[int]:
    iterations = _iterations(site.loops)
    return [count * iterations for count in site.operations.counts]


def _iterations(loops: Sequence[LoopAround]) -> int:
    return prod([loop.extent for loop in loops])


def _annotations(site: Site, mode: Mode) -> list[int]:
    numbers: list[int] = []
    for kind in GROUPS.values():
        own = [loop for loop in site.loops if loop.kind is kind]
        if not own:
            numbers += [0, 0, 0, *(int(one is Position.NONE) for one in Position)]
            continue
        position = Position.MIXED if mode is Mode.COMPAT else _position(own[-1], site)
        numbers += [len(own), _iterations(own), own[-1].extent, *(int(one is position) for one in Position)]
    return numbers


def _position(loop: LoopAround, site: Site) -> Position:
    """Where ``loop`` is among the loops of its kind. One that no axis follows is around all that does: outermost."""
    is_spatial, is_reducing = loop.var in site.spatial, loop.var in site.reducing
    if is_spatial and is_reducing:
        return Position.MIXED
    if not is_spatial and not is_reducing:
        return Position.OUTER_SPATIAL
    inner, middle, outer = _SPATIAL if is_spatial else _REDUCE
    followed = site.spatial if is_spatial else site.reducing
    alike = [other for other in site.loops if other.var in followed]
    return inner if loop is alike[-1] else outer if loop is alike[0] else middle


def _lengths(loops: Sequence[LoopAround]) -> list[int]:
    if not any(loop.kind.is_of_device for loop in loops):
        return [0, *(1 for _ in LENGTHS)]
    return [1, *(_iterations([loop for loop in loops if loop.kind is kind]) for kind in LENGTHS.values())]


def _buffers(loops: Sequence[LoopAround], accesses: Sequence[_Accessed], traffic: _Traffic) -> list[float]:
    rows = [_buffer(loops, accessed, traffic) for accessed in accesses]
    lines, size = OF_BUFFER.index("lines"), OF_BUFFER.index("bytes")
    rows.sort(key=lambda row: (-row[lines], -row[size]))
    rows += [[0.0] * len(OF_BUFFER)] * (BUFFERS - len(rows))
    return [number for row in rows[:BUFFERS] for number in row]


def _buffer(loops: Sequence[LoopAround], accessed: _Accessed, traffic: _Traffic) -> list[float]:
    access, found = accessed.access, accessed.touched
    is_both = access.is_read and access.is_written
    amounts = (
        float(_iterations(loops) * access.elements * accessed.itemsize),
        float(found.elements[0] * accessed.itemsize),
        found.lines,
        found.unique_lines,
    )
    reuse = _reuse(loops, accessed, traffic)
    per_reuse = [amount / reuse.count if reuse.count else amount * 2 for amount in amounts]
    return [
        float(access.is_read and not is_both),
        float(access.is_written and not is_both),
        float(is_both),
        *amounts,
        float(reuse.is_in_loop),
        float(reuse.count > 0 and not reuse.is_in_loop),
        float(reuse.count == 0),
        reuse.distance,
        reuse.distance_bytes,
        float(reuse.count),
        *per_reuse,
        found.stride,
    ]


@dataclass(frozen=True, slots=True)
class _Reuse:
    """How data are used again: after so many iterations, in which so many bytes are touched, ``count`` times."""

    distance: float = 0.0
    distance_bytes: float = 0.0
    count: int = 0
    is_in_loop: bool = False


def _reuse(loops: Sequence[LoopAround], accessed: _Accessed, traffic: _Traffic) -> _Reuse:
    """By the innermost loop in which the same is accessed again, or in which another statement accesses the buffer."""
    distance, size = 1, None
    for loop, is_moved in zip(reversed(loops), reversed(accessed.touched.moves), strict=True):
        if not is_moved:
            return _Reuse(distance, traffic.single[loop.number] if size is None else size, loop.extent, True)
        distance *= loop.extent
        size = traffic.total[loop.number]
        elements = traffic.elements[loop.number, accessed.access.buffer.name]
        if len(elements) > 1:
            return _Reuse(min(elements) / loop.extent, size / loop.extent, len(elements) - 1)
    return _Reuse()


def _intensities(site: Site, accesses: Sequence[_Accessed]) -> list[float]:
    """Flops over bytes; 0 where there are none."""
    flops = site.operations.flops
    if not flops or not site.loops:
        return [0.0] * SAMPLES
    work: list[float] = []
    intensity: list[float] = []
    for depth in range(len(site.loops) - 1, -1, -1):
        flops *= site.loops[depth].extent
        work.append(log2(flops))
        intensity.append(flops / sum([one.touched.elements[depth] * one.itemsize for one in accesses]))
    samples = work[-1] / SAMPLES * np.arange(1, SAMPLES + 1)
    return np.interp(samples, work, intensity).tolist()


def _allocation(site: Site) -> list[float]:
    made = site.allocated
    if made is None:
        return [0.0] * 4
    iterations = _iterations(site.loops) / made.times
    return [made.elements * site.buffer.dtype.itemsize, made.elements * made.times, made.times, iterations]


def _outer(site: Site, target: Target) -> list[int]:
    unrolled, lanes = (
        _iterations([loop for loop in site.loops if loop.kind is kind])
        for kind in (LoopKind.UNROLLED, LoopKind.VECTORIZED)
    )
    vectors = -(-lanes // target.lanes(8 * site.buffer.dtype.itemsize))
    return [_iterations(site.loops), len(site.loops), unrolled * vectors]

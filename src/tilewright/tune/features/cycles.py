"""Estimates the cycles of a core that a scheduled program takes, from its innermost statements.

``cost.model`` rates the choices of the compiler's own nests, by facts of these; here, the program is all that is known,
whatever made the schedule. Of each statement (``sites``), the innermost loops that are lanes or written out are a
*tile*, whose values stay in registers. A tile takes as long as its operations, its loads or its stores, or as its sums
wait for themselves. What is touched by loops that do not fit into a cache comes from the next one (Williams et al.,
"Roofline", 2009). Of schedules of one program, the sum over all statements tells slow ones from fast ones; numbers that
are not those of the target were chosen by 400 measured candidates of ``benchmarks/unseen`` on Zen 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tilewright.loops.ir import LoopKind
from tilewright.loops.program import Program
from tilewright.target.target import Target
from tilewright.tune.features.operations import Mode, Operation
from tilewright.tune.features.sites import Access, LoopAround, Site, sites
from tilewright.tune.features.touched import LINE, Touched, touched

_WRITTEN_OUT = frozenset({LoopKind.UNROLLED, LoopKind.VECTORIZED})
_COSTS = {
    Operation.FLOAT_MAD: 1.0,
    Operation.FLOAT_ADDSUB: 1.0,
    Operation.FLOAT_MUL: 1.0,
    Operation.FLOAT_CMP: 1.0,
    Operation.FLOAT_OTHER: 1.0,
    Operation.SELECT: 1.0,
    Operation.FLOAT_DIVMOD: 8.0,
    Operation.FLOAT_MATH: 16.0,
}
"""In multiply-adds. Others are of indices, mostly."""
GATHERED = 4.0
"""Loads, or stores, for each lane that is far from its neighbours: their lines may evict each other, too."""
APART = 1.5
"""Loads for each register that lanes a few elements apart are picked from."""
TRANSPOSED = 0.4
"""Loads for each lane of a square that is transposed in registers."""
NEAR = 4
"""Elements between neighbours from which on they are far apart."""
ODD, ODD_REGISTERS = 1.5, 8.0
"""How many times as long lanes take that are no power of two: LLVM widens them, and takes longer vectors apart."""
MOVED = 0.5
"""Of an iteration that only moves data, in multiply-adds."""
ITERATION = 1.0
"""Cycles of a loop's step that are not hidden."""
HIDDEN = 0.7
"""The part of the shorter one of arithmetic and traffic that the longer one hides."""
SECOND, THIRD = 48.0, 24.0
"""Bytes in a cycle from the second cache, and from the third."""
WINDOW = 256
"""Instructions that a processor looks ahead: sums of fewer do not wait for each other."""
FETCHED = 4096
"""Instructions of a tile that take twice as long as few of them, as they have to be fetched and decoded."""
PART = 0.75
"""Of a cache that may be filled."""


def program_cycles(program: Program, target: Target) -> float:
    """Cycles of a scheduled program on one core, about.

    Raises ``Unsupported`` for calls of other programs, and for loops that run as often as data say.
    """
    found = sites(program, Mode.REPAIRED)
    whole = Whole.of(found)
    return sum(statement_cycles(site, whole, target) for site in found)


@dataclass(frozen=True, slots=True)
class Whole:
    """The bytes of all buffers of a program, and which are made on the way."""

    sizes: Mapping[str, int]
    made: frozenset[str]

    @staticmethod
    def of(found: Sequence[Site]) -> "Whole":
        """Of the program with these statements."""
        sizes = {a.buffer.name: prod(a.shape) * a.buffer.dtype.itemsize for site in found for a in site.accesses}
        return Whole(sizes, frozenset(site.buffer.name for site in found if site.allocated is not None))

    @property
    def bytes(self) -> int:
        """Of all buffers together."""
        return sum(self.sizes.values())


def statement_cycles(site: Site, whole: Whole, target: Target) -> float:
    """Cycles of one statement with the loops around it."""
    accessed = [_Accessed(access, touched(access, site.loops)) for access in site.accesses]
    busy, coming = _tile_cycles(site, accessed, target), _traffic(site, accessed, whole, target)
    return max(busy, coming) + (1 - HIDDEN) * min(busy, coming)


@dataclass(frozen=True, slots=True)
class _Accessed:
    access: Access
    touched: Touched

    @property
    def itemsize(self) -> int:
        return self.access.buffer.dtype.itemsize

    def kept(self, depth: int) -> int:
        """The outermost loop of those around ``depth`` that do not move it."""
        while depth > 0 and not self.touched.moves[depth - 1]:
            depth -= 1
        return depth


# --- arithmetic --------------------------------------------------------------------------------------------------


def _tile_cycles(site: Site, accessed: Sequence[_Accessed], target: Target) -> float:
    loops, machine = site.loops, target.machine
    depth = _tile_depth(loops)
    lanes = _Lanes.of(site, target)
    runs = _iterations(loops[:depth])
    result, *operands = accessed
    is_sum = result.access.is_read
    entered = _iterations(loops[: result.kept(depth)]) if is_sum else runs
    sums = lanes.vectors(result, depth)
    operations = lanes.operations(depth)
    needed = sums + 1 + sum(lanes.vectors(one, depth) for one in operands if lanes.is_shared(one, depth))
    fitting = min(1.0, target.vector_registers / needed)
    loads = sum(lanes.loads(one, depth, fitting) * _iterations(loops[: one.kept(depth)]) / runs for one in operands)
    arithmetic = operations * _cost(site) / target.fma_per_cycle
    written = 0.0 if is_sum else lanes.accesses(result, depth)
    spilled = max(0.0, sums + 2 - target.vector_registers) if is_sum else 0.0
    instructions = operations * _cost(site) + loads + written
    part = min(1.0, instructions * runs / entered / WINDOW)
    waiting = lanes.chain(result, depth) * machine.fma_latency * part if is_sum and entered < runs else 0.0
    busy = max(arithmetic, loads / target.loads_per_cycle + spilled, written + spilled, waiting)
    busy *= (1 + instructions / FETCHED) * lanes.waste
    steps = sum(_iterations(loops[: place + 1]) for place in range(depth))
    starts = entered * (machine.tile_start * part + lanes.accesses(result, depth)) if is_sum else 0.0
    return runs * (busy + machine.load_cycles * loads) + ITERATION * steps + starts


def _tile_depth(loops: Sequence[LoopAround]) -> int:
    depth = len(loops)
    while depth > 0 and loops[depth - 1].kind in _WRITTEN_OUT:
        depth -= 1
    return depth


def _cost(site: Site) -> float:
    """Of an iteration, in multiply-adds."""
    counts = zip(Operation, site.operations.counts, strict=True)
    return sum(_COSTS.get(operation, 0.0) * count for operation, count in counts) or MOVED


def _iterations(loops: Sequence[LoopAround]) -> int:
    return prod(loop.extent for loop in loops)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The loop of a statement that is lanes, if there is one; ``width``: of a register."""

    loops: tuple[LoopAround, ...]
    place: int | None
    width: int
    is_square: bool

    @staticmethod
    def of(site: Site, target: Target) -> "_Lanes":
        width = target.lanes(8 * max(access.buffer.dtype.itemsize for access in site.accesses))
        places = [place for place, loop in enumerate(site.loops) if loop.kind is LoopKind.VECTORIZED]
        is_moved = len(site.accesses) == 2 and not any(site.operations.counts)
        written_out = [loop.extent for loop in site.loops if loop.kind is LoopKind.UNROLLED]
        return _Lanes(site.loops, places[-1] if places else None, width, is_moved and max(written_out, default=1) >= 4)

    @property
    def extent(self) -> int:
        return 1 if self.place is None else self.loops[self.place].extent

    @property
    def registers(self) -> int:
        return -(-self.extent // self.width)

    @property
    def waste(self) -> float:
        """How many times as long vectors of this length take as those of full registers."""
        if self.extent & (self.extent - 1) == 0:
            return 1.0
        return ODD if self.extent < self.width else ODD_REGISTERS

    def operations(self, depth: int) -> float:
        """Of vectors or of elements, of a tile."""
        return _iterations(self.loops[depth:]) / self.extent * self.registers

    def vectors(self, one: _Accessed, depth: int) -> float:
        """Registers that hold what a tile accesses."""
        elements = one.touched.elements[depth]
        return elements / self.extent * self.registers if self._moves(one) else elements

    def accesses(self, one: _Accessed, depth: int) -> float:
        """Loads, or stores, of a tile."""
        return self.vectors(one, depth) * self.price(one)

    def price(self, one: _Accessed) -> float:
        """Loads for a register of it."""
        stride = self._stride(one) if self._moves(one) else 1.0
        if stride == 1:
            return 1.0
        if self.is_square:
            return TRANSPOSED * self.extent / self.registers
        return APART * stride if stride <= NEAR else GATHERED * self.extent / self.registers

    def is_shared(self, one: _Accessed, depth: int) -> bool:
        """Whether a tile uses the same elements several times."""
        return one.touched.elements[depth] < _iterations(self.loops[depth:]) * len(one.access.points)

    def loads(self, one: _Accessed, depth: int, fitting: float) -> float:
        """Of a tile, if this part of what it uses several times fits into the registers."""
        each, often = self.vectors(one, depth), self.operations(depth) * len(one.access.points)
        return self.price(one) * (each if often <= each else fitting * each + (1 - fitting) * often)

    def chain(self, result: _Accessed, depth: int) -> int:
        """How many additions to one sum a tile has."""
        moves = result.touched.moves
        return prod(loop.extent for place, loop in enumerate(self.loops) if place >= depth and not moves[place])

    def _moves(self, one: _Accessed) -> bool:
        return self.place is not None and one.touched.moves[self.place]

    def _stride(self, one: _Accessed) -> float:
        assert self.place is not None
        if self.place == len(self.loops) - 1:
            return one.touched.stride
        others = (*self.loops[: self.place], *self.loops[self.place + 1 :])
        return touched(one.access, (*others, self.loops[self.place])).stride


# --- traffic -----------------------------------------------------------------------------------------------------


def _traffic(site: Site, accessed: Sequence[_Accessed], whole: Whole, target: Target) -> float:
    levels = (
        (target.l1_bytes, SECOND),
        (target.l2_bytes, THIRD),
        (target.l3_bytes, target.machine.stream_bytes),
    )
    return sum(_bytes(site, accessed, whole, int(PART * size)) / rate for size, rate in levels)


def _bytes(site: Site, accessed: Sequence[_Accessed], whole: Whole, capacity: int) -> float:
    """Bytes that come into a cache of ``capacity`` bytes, or leave it."""
    if whole.bytes <= capacity:
        return 0.0
    depth = 0
    while depth < len(site.loops) and _footprint(accessed, depth) > capacity:
        depth += 1
    return sum(
        _lines(one, site.loops, depth) * LINE * (2 if one.access.is_written else 1)
        for one in accessed
        if one.access.buffer.name not in whole.made or whole.sizes[one.access.buffer.name] > capacity / 2
    )


def _footprint(accessed: Sequence[_Accessed], depth: int) -> int:
    return sum(one.touched.elements[depth] * one.itemsize for one in accessed)


def _lines(one: _Accessed, loops: tuple[LoopAround, ...], depth: int) -> float:
    """Lines that are accessed for the first time since they were evicted: what the loops from ``depth`` on touch stays.

    Neighbours of the next loop that moves share what they have in common.
    """
    moved = max(0, one.kept(depth) - 1)
    if moved == 0:
        return one.touched.unique_lines
    once = tuple(replace(loop, extent=1) for loop in loops[:moved])
    return touched(one.access, (*once, *loops[moved:])).unique_lines * _iterations(loops[:moved])

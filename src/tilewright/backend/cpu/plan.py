"""Memory planning of a main program: offsets of intermediates in the workspace, by liveness.

Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the largest
buffer first, each at the lowest offset where it overlaps no buffer alive at the same time. Ties are broken by first
use, independently of names.

Buffers whose size has no upper bound come after the others, in slots: those in one slot are never alive at the same
time, and its size is the maximum of theirs, known only at run time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.loops.ir import Alloc, Buffer, Call, If, Loop, LoopKind, Seq, Stmt
from tilewright.loops.memory import Sharing
from tilewright.loops.program import Program
from tilewright.loops.visit import allocations, children
from tilewright.runtime.abi import ALIGNMENT
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import ZERO, Expr, const, maximum
from tilewright.symbolic.simplify import prove, simplify


@dataclass(slots=True)
class _Lifetime:
    buffer: Buffer
    first: int
    last: int
    size: Expr
    """In bytes, a multiple of the alignment."""
    most: int | None
    """Upper bound of the size, if known."""

    def meets(self, other: "_Lifetime") -> bool:
        """Whether both are alive at some time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Plan:
    """The offsets of a program's allocations."""

    offsets: Mapping[str, int]
    """Offsets in bytes of allocations with bounded sizes."""
    bytes: int
    """Total size of these."""
    slots: Mapping[str, int]
    """The slots of the others."""
    slot_bytes: tuple[Expr, ...]
    """The size of each slot, a multiple of the alignment."""


def plan_memory(program: Program) -> Plan:
    """Offsets for all allocations of ``program``. Sizes are upper bounds over the run-time extents."""
    bounds = Bounds({}, {dim.var: dim.bound for dim in program.dims})
    lifetimes = _Liveness(program, bounds).lifetimes()
    bounded = ((item, item.most) for item in lifetimes if item.most is not None)
    order = sorted(bounded, key=lambda pair: (-pair[1], pair[0].first))
    places = _places([(lifetime.first, lifetime.last, size) for lifetime, size in order])
    offsets = {lifetime.buffer.name: at for (lifetime, _), at in zip(order, places, strict=True)}
    slots = _slots([lifetime for lifetime in lifetimes if lifetime.most is None])
    return Plan(
        offsets,
        max((at + size for (_, size), at in zip(order, places, strict=True)), default=0),
        {lifetime.buffer.name: number for number, slot in enumerate(slots) for lifetime in slot},
        tuple(largest((lifetime.size for lifetime in slot), bounds) for slot in slots),
    )


def _slots(lifetimes: Sequence[_Lifetime]) -> list[list[_Lifetime]]:
    """Assigns each to the first free slot; equal sizes share slots first, as that wastes nothing."""
    slots: list[list[_Lifetime]] = []
    for lifetime in sorted(lifetimes, key=lambda item: item.first):
        free = [slot for slot in slots if not any(other.meets(lifetime) for other in slot)]
        alike = [slot for slot in free if any(other.size == lifetime.size for other in slot)]
        if free:
            (alike or free)[0].append(lifetime)
        else:
            slots.append([lifetime])
    return slots


@dataclass(frozen=True, slots=True)
class Below:
    """A kernel's buffers of unbounded size: they are below its workspace, at negative offsets."""

    offsets: Mapping[str, Expr]
    bytes: Expr


def plan_below(program: Program) -> Below:
    """Slots for unbounded allocations of ``program`` outside of its parallel loops; one each."""
    bounds = Bounds({}, {dim.var: dim.bound for dim in program.dims})
    offsets: dict[str, Expr] = {}
    total: Expr = ZERO
    for buffer in _outside_regions(program.body):
        size = size_of(buffer, bounds)
        if interval(size, bounds).hi is None and buffer.memory.sharing is not Sharing.THREAD:
            total = total + size
            offsets[buffer.name] = ZERO - total
    return Below(offsets, total)


def _most(size: Expr, bounds: Bounds) -> int | None:
    """The upper bound of ``size``, at least one unit."""
    bound = interval(size, bounds).hi
    return None if bound is None else max(bound, ALIGNMENT)


def _outside_regions(stmt: Stmt) -> Iterator[Buffer]:
    match stmt:
        case Alloc():
            around, inner = allocations(stmt)
            yield from (alloc.buffer for alloc in around)
            yield from _outside_regions(inner)
        case Loop() if stmt.kind is LoopKind.PARALLEL:
            pass
        case _:
            for child in children(stmt):
                yield from _outside_regions(child)


def size_of(buffer: Buffer, bounds: Bounds) -> Expr:
    """The bytes of ``buffer``, rounded up to a multiple of the alignment."""
    size: Expr = const(buffer.dtype.itemsize)
    for extent in buffer.shape:
        size = size * extent
    return simplify((size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT, bounds)


def largest(sizes: Iterable[Expr], bounds: Bounds) -> Expr:
    """The maximum of ``sizes``, 0 if empty; sizes known to be smaller than others are left out."""
    kept: list[Expr] = []
    for size in dict.fromkeys(sizes):
        if not any(prove(size <= other, bounds) for other in kept):
            kept = [other for other in kept if not prove(other <= size, bounds)] + [size]
    return balanced(maximum, kept)


def balanced(join: Callable[[Expr, Expr], Expr], parts: Sequence[Expr]) -> Expr:
    """All ``parts`` joined by bisection, as evaluation is recursive. 0 if empty."""
    if len(parts) < 2:
        return parts[0] if parts else ZERO
    middle = len(parts) // 2
    return join(balanced(join, parts[:middle]), balanced(join, parts[middle:]))


def _places(wanted: Sequence[tuple[int, int, int]]) -> list[int]:
    """Offsets for buffers given as (first use, last use, bytes): in turn, each as low as possible.

    Vectorized: a model of 10,000 kernels has as many buffers, each of which is compared with all before.
    """
    first, last, size = np.array(wanted, np.int64).reshape(-1, 3).T
    start = np.zeros(len(wanted), np.int64)
    for position in range(len(wanted)):
        meets = (first[:position] <= last[position]) & (first[position] <= last[:position])
        low = start[:position][meets]
        order = np.argsort(low, kind="stable")
        # The memory below each is free from the highest end of those before it on.
        ends = np.concatenate([[0], np.maximum.accumulate((low + size[:position][meets])[order])])
        fits = np.flatnonzero(ends[:-1] + size[position] <= low[order])
        start[position] = ends[fits[0] if len(fits) else -1]
    return start.tolist()


class _Liveness:
    """First and last use of every allocated buffer, in the order of the statements."""

    def __init__(self, program: Program, bounds: Bounds) -> None:
        self._bounds = bounds
        self._found: dict[str, _Lifetime] = {}
        self._unused: dict[str, Buffer] = {}
        self._clock = 0
        self._visit(program.body)

    def lifetimes(self) -> list[_Lifetime]:
        return list(self._found.values())

    def _visit(self, stmt: Stmt) -> None:
        while isinstance(stmt, Alloc):  # iterative, as a main program has one level for each of its calls
            self._unused[stmt.buffer.name] = stmt.buffer
            stmt = stmt.body
        match stmt:
            case Seq(statements):
                for inner in statements:
                    self._visit(inner)
            case Call():
                self._clock += 1
                for region in stmt.args:
                    self._use(region.buffer, self._clock, self._clock)
            case Loop() | If():
                self._visit_whole(stmt)
            case _:
                pass

    def _visit_whole(self, stmt: Loop | If) -> None:
        """Buffers used in a loop or branch are alive during all of it, as iterations repeat, if they exist outside."""
        first = self._clock + 1
        before, outside = set(self._found), set(self._unused)
        inner = (stmt.body,) if isinstance(stmt, Loop) else (stmt.then, stmt.otherwise)
        for body in inner:
            if body is not None:
                self._visit(body)
        for name, lifetime in self._found.items():
            if name in outside and (name not in before or lifetime.last >= first):
                lifetime.first = min(lifetime.first, first)
                lifetime.last = self._clock

    def _use(self, buffer: Buffer, first: int, last: int) -> None:
        known = self._found.get(buffer.name)
        if known is not None:
            known.last = last
        elif buffer.name in self._unused:
            size = size_of(buffer, self._bounds)
            self._found[buffer.name] = _Lifetime(buffer, first, last, size, _most(size, self._bounds))

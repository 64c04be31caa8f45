"""Splits loops where a guard becomes always true or always false.

``for i in range(43): for ii in range(12): if i*12 + ii < 512`` becomes 42 iterations without the guard, and one in
which the inner loop has 8. A guard that can't be decided by splitting stays; inside vector loops it becomes a mask. A
position-dependent selection (padding around an image) counts as a guard as well, as long as the code stays small: most
iterations are in the interior, without a selection. Parallel loops are not split (each piece would cost a join): their
body gets one version per piece instead. A loop whose number of iterations is known at run time only is cut where the
last lanes or rows of a tile may be idle.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.backend.cpu.prepare.guards import LIMITS, Guard, Guards
from tilewright.base import dtypes
from tilewright.loops.ir import NOTHING, Alloc, Call, If, Loop, LoopKind, Region, Seq, Stmt, Store, Stores
from tilewright.loops.visit import children, seq, substitute, walk, with_children
from tilewright.symbolic import traversal as symbolic
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import (
    FALSE,
    TRUE,
    ZERO,
    Binary,
    Cast,
    Const,
    Expr,
    Read,
    Select,
    Var,
    binary,
    cast,
    const,
    select,
    unary,
)
from tilewright.symbolic.operations import NEGATED, BinaryOp, UnaryOp
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.solve import solve_false_from, solve_lower, solve_upper
from tilewright.symbolic.traversal import all_of, conjuncts, reads_in, transform

MAX_PIECES = 3
"""Maximum pieces of one loop: before, between and after; and one where lanes or rows are idle. More would cost more
code than guards cost time."""

_WRITTEN_OUT = (LoopKind.UNROLLED, LoopKind.VECTORIZED)

MAX_COPIED = 2000
"""Maximum reads and stores, with unrolled ones counted singly, of all pieces of a loop split for selections: larger
code exceeds the instruction cache."""
MAX_COPIED_AROUND = 1300
"""The same where selections remain in all pieces but the interior, of which there may be one piece more. (Zen 3: 5 x 2
taps of seven rows, 6 apart, 2.7 times as fast with 1,232; 5 x 5 taps of six rows 0.9 times with 1,800.)"""


def partition(stmt: Stmt, bounds: Bounds) -> Stmt:
    """``stmt`` with fewer guards and simpler indices; ``bounds``: facts about the variables around it."""
    return _Partition().partition(stmt, _Place(bounds, {}))


@dataclass(frozen=True, slots=True)
class _Place:
    """The context of an emitted copy: facts, and the values of variables of pieces around it."""

    bounds: Bounds
    values: Mapping[Var, Expr]

    def inside(self, var: Var, extent: Expr) -> "_Place":
        """The context inside a loop."""
        return _Place(self.bounds.extended({var: extent}), self.values)

    def where(self, var: Var, value: Expr) -> "_Place":
        """The context with ``value`` for ``var``."""
        return _Place(self.bounds, {**self.values, var: value})

    def expr(self, expr: Expr) -> Expr:
        """``expr`` in this context."""
        return symbolic.substitute(expr, self.values)


class _Partition:
    """Partitions statements of one program. Each is analysed once, and emitted in several contexts."""

    def __init__(self) -> None:
        self._guards = Guards()

    def partition(self, stmt: Stmt, at: _Place) -> Stmt:
        """``stmt`` in the context ``at``."""
        match stmt:
            case Loop(kind=LoopKind.PARALLEL):
                return self._parallel(stmt, at)
            case Loop():
                return self._loop(stmt, at)
            case Seq(statements):
                return seq(*(self.partition(inner, at) for inner in statements))
            case If():
                return self._if(stmt, at)
            case Alloc(_, body):
                parts = self.partition(body, at)
                outside = substitute(Alloc(stmt.buffer, NOTHING), at.values)
                return NOTHING if parts == NOTHING else with_children(outside, (parts,))
            case _:
                return _simplified(substitute(stmt, at.values), at.bounds)

    def _loop(self, loop: Loop, at: _Place) -> Stmt:
        extent = at.expr(loop.extent)
        if not isinstance(extent, Const):
            end = self._end_of_full_tiles(loop, extent, loop.body, at)
            pieces = [(ZERO, extent)] if end is None else [(ZERO, end), (end, simplify(extent - end, at.bounds))]
            return seq(*(self._open_piece(loop, start, times, at) for start, times in pieces))
        times = int(extent.value)
        if loop.kind is LoopKind.VECTORIZED:
            return self._piece(loop, 0, _needed_lanes(loop, times, at), at)
        cuts = self._cuts(loop, times, loop.body, at)
        edges = [0, *cuts, times]
        return seq(*(self._piece(loop, start, end, at) for start, end in itertools.pairwise(edges)))

    def _piece(self, loop: Loop, start: int, end: int, at: _Place) -> Stmt:
        """The iterations ``start .. end - 1``."""
        if end <= start:
            return NOTHING
        if end - start == 1:
            return self.partition(loop.body, at.where(loop.var, const(start)))
        var, inside = loop.var, at
        if start:
            var = Var(f"{loop.var.name}.from{start}", loop.var.dtype)
            inside = at.where(loop.var, var + start)
        body = self.partition(loop.body, inside.inside(var, const(end - start)))
        return NOTHING if body == NOTHING else Loop(var, const(end - start), body, loop.kind)

    def _open_piece(self, loop: Loop, start: Expr, times: Expr, at: _Place) -> Stmt:
        """So many iterations from ``start`` on, where these are known at run time only."""
        var, inside = loop.var, at
        if start != ZERO:
            var = Var(f"{loop.var.name}.rest", loop.var.dtype)
            inside = at.where(loop.var, start + var)
        body = self.partition(loop.body, inside.inside(var, times))
        return NOTHING if body == NOTHING else Loop(var, _index(times, at.bounds), body, loop.kind)

    def _end_of_full_tiles(self, loop: Loop, extent: Expr, body: Stmt, at: _Place) -> Expr | None:
        """Up to which iteration all lanes and rows run, if ``loop`` runs as often as only run time tells, and those of
        the rest are guarded: a mask takes as long as a few operations, and branches keep them apart."""
        if loop.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL):
            return None
        of_tile = {inner.var for inner in walk(body) if isinstance(inner, Loop) and inner.kind in _WRITTEN_OUT}
        known = at.inside(loop.var, extent)
        ends: set[Expr] = set()
        for guard in self._guards.of(body):
            if loop.var in guard.source.variables and not guard.selects and of_tile & guard.source.variables:
                inside = known.bounds.extended({v: at.expr(size) for v, size in guard.between})
                ends.update(_ends(guard.conditions(at.values), loop.var, inside))
        if len(ends) != 1:
            return None
        (end,) = ends
        return end if prove(end >= ZERO, at.bounds) and prove(end <= extent, at.bounds) else None

    def _parallel(self, loop: Loop, at: _Place) -> Stmt:
        nest: list[Loop] = []
        body: Stmt = loop
        while isinstance(body, Loop) and body.kind is LoopKind.PARALLEL:
            nest.append(Loop(body.var, at.expr(body.extent), NOTHING, body.kind))
            body = body.body
        body = self._versions(nest, body, at)
        for inner in reversed(nest):
            body = Loop(inner.var, inner.extent, body, inner.kind)
        return body

    def _versions(self, nest: Sequence[Loop], body: Stmt, at: _Place) -> Stmt:
        """``body`` for the iterations of ``nest``, in one version for each piece of each loop."""
        if not nest:
            return self.partition(body, at)
        loop, rest = nest[0], nest[1:]
        if not isinstance(loop.extent, Const):
            return self._open_versions(loop, rest, body, at)
        known = _Place(at.bounds.extended({inner.var: inner.extent for inner in nest}), at.values)
        times = int(loop.extent.value)
        cuts = self._cuts(loop, times, body, known)
        result: Stmt | None = None
        edges = [0, *cuts, times]
        for start, end in reversed(list(itertools.pairwise(edges))):
            version = self._version(loop.var, start, end, rest, body, at)
            result = version if result is None else If(loop.var < end, version, result)
        return NOTHING if result is None else result

    def _open_versions(self, loop: Loop, rest: Sequence[Loop], body: Stmt, at: _Place) -> Stmt:
        """``body`` for iterations with whole tiles, and for the others, if that makes a difference."""
        every = self._versions(rest, body, at.inside(loop.var, loop.extent))
        inside = at
        for inner in rest:
            inside = inside.inside(inner.var, inner.extent)
        end = self._end_of_full_tiles(loop, loop.extent, body, inside)
        if end is None:
            return every
        return If(loop.var < end, self._versions(rest, body, at.inside(loop.var, end)), every)

    def _version(self, var: Var, start: int, end: int, rest: Sequence[Loop], body: Stmt, at: _Place) -> Stmt:
        if end - start == 1:
            return self._versions(rest, body, at.where(var, const(start)))
        if not start:
            return self._versions(rest, body, at.inside(var, const(end)))
        moved = Var(f"{var.name}.from{start}", var.dtype)
        version = self._versions(rest, body, at.where(var, moved + start).inside(moved, const(end - start)))
        return substitute(version, {moved: var - start})

    def _cuts(self, loop: Loop, extent: int, body: Stmt, at: _Place) -> list[int]:
        """Where to split the ``extent`` iterations of ``loop`` so that guards are decided on the pieces."""
        guards = [guard for guard in self._guards.of(body) if loop.var in guard.source.variables]
        if not guards:
            return []
        known = at.inside(loop.var, const(extent))
        needed = _limits(loop.var, extent, (guard for guard in guards if not guard.selects), known)
        if loop.kind is not LoopKind.UNROLLED:  # unrolled variables have known values: no selection remains
            wanted = needed | _limits(loop.var, extent, (guard for guard in guards if guard.selects), known)
            most = MAX_COPIED
            if len(wanted) >= MAX_PIECES:
                wanted, most = needed | _around_longest(sorted(wanted), extent), MAX_COPIED_AROUND
            if wanted and len(wanted) <= MAX_PIECES and size(body) * (1 + len(wanted)) <= most:
                return sorted(wanted)
        return sorted(needed) if len(needed) < MAX_PIECES else []

    def _if(self, stmt: If, at: _Place) -> Stmt:
        open_parts: list[Expr] = []
        for part in conjuncts(at.expr(stmt.condition)):
            decided = _decide(part, at.bounds)
            if decided == FALSE:
                return NOTHING if stmt.otherwise is None else self.partition(stmt.otherwise, at)
            if decided != TRUE:
                open_parts.append(decided)
        body = self.partition(stmt.then, at)
        if not open_parts:
            return body
        other = None if stmt.otherwise is None else self.partition(stmt.otherwise, at)
        return NOTHING if body == NOTHING and other is None else If(all_of(*open_parts), body, other)


def _simplified(stmt: Stmt, bounds: Bounds) -> Stmt:
    """A leaf statement."""
    match stmt:
        case Store():
            made = _stored(stmt, bounds)
            return NOTHING if keeps_itself(made) else made
        case Stores(stores):
            return Stores(tuple(_stored(store, bounds) for store in stores))
        case Call(kind, callee, args, outputs):
            return Call(kind, callee, tuple(_region(region, bounds) for region in args), outputs)
        case _:
            return stmt


def keeps_itself(store: Store) -> bool:
    """Whether ``store`` writes what is there, such as a sum that leaves out its term."""
    return store.value == Read(store.buffer, store.indices)


def _stored(store: Store, bounds: Bounds) -> Store:
    return Store(store.buffer, tuple(_index(i, bounds) for i in store.indices), _value(store.value, bounds))


def _ends(conditions: Iterable[Expr], var: Var, bounds: Bounds) -> set[Expr]:
    """Where the first of ``conditions`` that ``var`` decides ends to hold."""
    found = (solve_upper(condition, var, bounds) for condition in conditions if var in condition.variables)
    return {end for end in found if end is not None and not isinstance(end, Const)}


def _limits(var: Var, extent: int, guards: Iterable[Guard], at: _Place) -> frozenset[int]:
    """The points within ``range(extent)`` from or up to which a guard holds."""
    found: set[int] = set()
    for guard in guards:
        between = {loop: at.expr(size) for loop, size in guard.between}
        inside = at.bounds.extended(between) if between else at.bounds
        for condition in guard.conditions(at.values):
            if guard.selects and extent <= MAX_PIECES and _is_divided(condition, var):
                found.update(range(extent))  # phases: each has its own number of taps in the padding
            elif var in condition.variables:
                edges = (solve(condition, var, inside) for solve in (solve_upper, solve_lower))
                found.update(int(edge.value) for edge in edges if isinstance(edge, Const))
    return frozenset(edge for edge in found if 0 < edge < extent)


_FEWEST_LANES = 8
"""Lanes up to which fewer would not be faster: a register, or half of one."""


def _needed_lanes(loop: Loop, lanes: int, at: _Place) -> int:
    """The number of ``lanes`` without those registers of which a guard around all of ``loop`` needs none: a tile of
    four registers at the end of a row may have elements for one."""
    if not isinstance(loop.body, If) or loop.body.otherwise is not None:
        return lanes
    known = at.inside(loop.var, const(lanes)).bounds
    conditions = (at.expr(part) for part in conjuncts(loop.body.condition))
    ends = [solve_false_from(part, loop.var, known) for part in conditions if loop.var in part.variables]
    needed = min((int(end.value) for end in ends if isinstance(end, Const)), default=lanes)
    return min(lanes, max(_FEWEST_LANES, 1 << (needed - 1).bit_length())) if needed > 0 else lanes


def _is_divided(condition: Expr, var: Var) -> bool:
    """Whether ``condition`` depends on ``var`` by a division."""
    divisions = (e for e in symbolic.walk(condition) if isinstance(e, Binary) and e.op in _DIVISIONS)
    return any(var in division.variables for division in divisions)


def _around_longest(cuts: Sequence[int], extent: int) -> frozenset[int]:
    """The two ends of the longest piece of ``cuts``: of an image whose padding many tiles reach, the interior."""
    start, end = max(itertools.pairwise((0, *cuts, extent)), key=lambda piece: piece[1] - piece[0])
    return frozenset({start, end} - {0, extent})


def size(stmt: Stmt) -> int:
    """The number of reads and stores in ``stmt``, with unrolled loops expanded."""
    match stmt:
        case Loop(extent=Const(int(times)), body=body, kind=LoopKind.UNROLLED):
            return times * size(body)
        case Store(_, _, value):
            return 1 + sum(1 for _ in reads_in(value))
        case _:
            return sum(map(size, children(stmt)))


def _decide(condition: Expr, bounds: Bounds) -> Expr:
    """True or false if proven, else the condition, simplified."""
    if prove(condition, bounds):
        return TRUE
    if isinstance(condition, Binary) and condition.op in NEGATED and not condition.a.dtype.is_float:
        negation = binary(NEGATED[condition.op], condition.a, condition.b)
    else:
        negation = unary(UnaryOp.NOT, condition)
    return FALSE if prove(negation, bounds) else simplify(condition, bounds)


_DIVISIONS = frozenset({BinaryOp.FLOORDIV, BinaryOp.MOD})


def _index(expr: Expr, bounds: Bounds) -> Expr:
    """Simplified if facts may remove operations; sums are collected later, for all accesses."""
    return simplify(expr, bounds) if _is_reducible(expr) else expr


def _is_reducible(expr: Expr) -> bool:
    """Whether what is known of positions may remove a division or a limit in ``expr``."""
    if isinstance(expr, Binary) and (expr.op in _DIVISIONS or (expr.op in LIMITS and not expr.has_reads)):
        return True
    return any(map(_is_reducible, expr.operands()))


def _value(expr: Expr, bounds: Bounds) -> Expr:
    def leave(node: Expr) -> Expr | None:
        match node:
            case Read(source, indices):
                return Read(source, tuple(_index(i, bounds) for i in indices))
            case Select(condition, a, b) if not condition.has_reads:
                return select(_decided(condition, bounds), a, b)
            case Cast(place, dtype) if _is_place(node):
                return cast(simplify(place, bounds), dtype)
            case _:
                return None

    return transform(expr, leave, lambda node: node.has_reads or _is_place(node))


def _is_place(node: Expr) -> bool:
    """Whether ``node`` is a value that depends only on positions, such as the number of elements in a window."""
    return isinstance(node, Cast) and not node.has_reads and node.a.dtype == dtypes.index and bool(node.variables)


def _decided(condition: Expr, bounds: Bounds) -> Expr:
    """``condition`` without conjuncts that are known to hold."""
    parts = [_decide(part, bounds) for part in conjuncts(condition)]
    return FALSE if FALSE in parts else all_of(*(part for part in parts if part != TRUE))


def _region(region: Region, bounds: Bounds) -> Region:
    return Region(region.buffer, tuple((_index(start, bounds), extent) for start, extent in region.ranges))

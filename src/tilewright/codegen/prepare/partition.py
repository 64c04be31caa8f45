"""Loops with guards are cut at the points from where a guard is known.

``for i in range(43): for ii in range(12): if i*12 + ii < 512`` becomes 42 iterations without the guard, and one in
which the inner loop has 8. A guard that can't be decided by cutting stays; inside vector loops it becomes a mask.
What a value selects by its place (padding around an image) is a guard as well, as long as the code stays small: most
iterations are in the middle, and select nothing.
Parallel loops are not cut (each piece would cost a join): their body gets one version per piece instead.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.base import dtypes
from tilewright.loops.ir import NOTHING, Alloc, Call, If, Loop, LoopKind, Region, Seq, Stmt, Store, Stores
from tilewright.loops.visit import children, seq, substitute
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import (
    FALSE,
    TRUE,
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
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.solve import solve_lower, solve_upper
from tilewright.symbolic.traversal import all_of, conjuncts, reads_in, transform, walk

MAX_PIECES = 3
"""Most pieces of one loop: before, between and after. More would cost more code than guards cost time."""

MAX_COPIED = 2000
"""Most reads and stores, unrolled ones counted singly, that the pieces of a loop have together if it is cut for what is
selected: more code no longer fits in the cache of instructions."""


@dataclass(frozen=True, slots=True)
class _Guard:
    """A condition met inside a loop, and the loops between, outermost first."""

    condition: Expr
    between: tuple[Loop, ...]
    selects: bool = False
    """It chooses between values, rather than whether a statement runs."""


def partition(stmt: Stmt, bounds: Bounds) -> Stmt:
    """``stmt`` with fewer guards and simpler indices; ``bounds`` is what is known of the variables around it."""
    match stmt:
        case Loop(kind=LoopKind.PARALLEL):
            return _parallel(stmt, bounds)
        case Loop():
            return _loop(stmt, bounds)
        case Seq(statements):
            return seq(*(partition(inner, bounds) for inner in statements))
        case If(condition, then, otherwise):
            return _if(condition, then, otherwise, bounds)
        case Alloc(buffer, body):
            body = partition(body, bounds)
            return body if body == NOTHING else Alloc(buffer, body)
        case Store(buffer, indices, value):
            return Store(buffer, tuple(_index(i, bounds) for i in indices), _value(value, bounds))
        case Stores(stores):
            parts = [partition(store, bounds) for store in stores]
            return Stores(tuple(part for part in parts if isinstance(part, Store)))
        case Call(kind, callee, args, outputs):
            return Call(kind, callee, tuple(_region(region, bounds) for region in args), outputs)
        case _:
            return stmt


def _loop(loop: Loop, bounds: Bounds) -> Stmt:
    if not isinstance(loop.extent, Const):
        body = partition(loop.body, bounds.extended({loop.var: loop.extent}))
        return NOTHING if body == NOTHING else Loop(loop.var, _index(loop.extent, bounds), body, loop.kind)
    extent = int(loop.extent.value)
    cuts = [] if loop.kind is LoopKind.VECTORIZED else _cuts(loop, extent, loop.body, bounds)
    edges = [0, *cuts, extent]
    return seq(*(_piece(loop, start, end, bounds) for start, end in itertools.pairwise(edges)))


def _piece(loop: Loop, start: int, end: int, bounds: Bounds) -> Stmt:
    """The iterations ``start .. end - 1``."""
    if end <= start:
        return NOTHING
    if end - start == 1:
        return partition(substitute(loop.body, {loop.var: const(start)}), bounds)
    var, body = loop.var, loop.body
    if start:
        var = Var(f"{loop.var.name}.from{start}", loop.var.dtype)
        body = substitute(body, {loop.var: var + start})
    body = partition(body, bounds.extended({var: const(end - start)}))
    return NOTHING if body == NOTHING else Loop(var, const(end - start), body, loop.kind)


def _parallel(loop: Loop, bounds: Bounds) -> Stmt:
    nest: list[Loop] = []
    body: Stmt = loop
    while isinstance(body, Loop) and body.kind is LoopKind.PARALLEL:
        nest.append(body)
        body = body.body
    body = _versions(nest, body, bounds)
    for inner in reversed(nest):
        body = Loop(inner.var, inner.extent, body, inner.kind)
    return body


def _versions(nest: Sequence[Loop], body: Stmt, bounds: Bounds) -> Stmt:
    """``body`` for the iterations of ``nest``, in one version for each piece of each loop."""
    if not nest:
        return partition(body, bounds)
    loop, rest = nest[0], nest[1:]
    known = bounds.extended({inner.var: inner.extent for inner in nest})
    if not isinstance(loop.extent, Const):
        return _versions(rest, body, bounds.extended({loop.var: loop.extent}))
    extent = int(loop.extent.value)
    cuts = _cuts(loop, extent, body, known)
    result: Stmt | None = None
    edges = [0, *cuts, extent]
    for start, end in reversed(list(itertools.pairwise(edges))):
        version = _version(loop.var, start, end, rest, body, bounds)
        result = version if result is None else If(loop.var < end, version, result)
    return NOTHING if result is None else result


def _version(var: Var, start: int, end: int, rest: Sequence[Loop], body: Stmt, bounds: Bounds) -> Stmt:
    if end - start == 1:
        return _versions(rest, substitute(body, {var: const(start)}), bounds)
    if not start:
        return _versions(rest, body, bounds.extended({var: const(end)}))
    moved = Var(f"{var.name}.from{start}", var.dtype)
    shifted = substitute(body, {var: moved + start})
    version = _versions(rest, shifted, bounds.extended({moved: const(end - start)}))
    return substitute(version, {moved: var - start})


def _cuts(loop: Loop, extent: int, body: Stmt, bounds: Bounds) -> list[int]:
    """Where to cut the ``extent`` iterations of ``loop`` so that guards are decided on the pieces."""
    guards = [guard for guard in _guards(body) if loop.var in guard.condition.variables]
    known = bounds.extended({loop.var: const(extent)})
    needed = _limits(loop.var, extent, (guard for guard in guards if not guard.selects), known)
    if loop.kind is not LoopKind.UNROLLED:  # what is unrolled has numbers for its variable: nothing is left to select
        wanted = needed | _limits(loop.var, extent, (guard for guard in guards if guard.selects), known)
        if wanted and len(wanted) < MAX_PIECES and size(body) * (1 + len(wanted)) <= MAX_COPIED:
            needed = wanted
    return sorted(needed) if len(needed) < MAX_PIECES else []


def _limits(var: Var, extent: int, guards: Iterable[_Guard], bounds: Bounds) -> frozenset[int]:
    """The points within ``range(extent)`` from or up to where a guard holds."""
    found: set[int] = set()
    for guard in guards:
        inside = bounds
        for loop in guard.between:
            inside = inside.extended({loop.var: loop.extent})
        for solve in (solve_upper, solve_lower):
            edge = solve(guard.condition, var, inside)
            if isinstance(edge, Const) and 0 < int(edge.value) < extent:
                found.add(int(edge.value))
    return frozenset(found)


def size(stmt: Stmt) -> int:
    """The reads and stores in ``stmt``, those of unrolled loops as often as they are written out."""
    match stmt:
        case Loop(extent=Const(int(times)), body=body, kind=LoopKind.UNROLLED):
            return times * size(body)
        case Store(_, _, value):
            return 1 + sum(1 for _ in reads_in(value))
        case _:
            return sum(map(size, children(stmt)))


def _guards(stmt: Stmt, between: tuple[Loop, ...] = ()) -> Iterator[_Guard]:
    match stmt:
        case If(condition, then, otherwise):
            for part in conjuncts(condition):
                yield _Guard(part, between)
            yield from _guards(then, between)
            if otherwise is not None:
                yield from _guards(otherwise, between)
        case Loop(body=body):
            yield from _guards(body, (*between, stmt))
        case Seq(statements):
            for inner in statements:
                yield from _guards(inner, between)
        case Alloc(_, body):
            yield from _guards(body, between)
        case Store(_, _, value):
            for condition in _selections(value):
                yield _Guard(condition, between, selects=True)
        case _:
            return


def _selections(value: Expr) -> frozenset[Expr]:
    """The conditions on places, rather than data, by which a part of ``value`` is selected."""
    chosen = (node.condition for node in walk(value) if isinstance(node, Select) and not node.condition.has_reads)
    return frozenset(part for condition in chosen for part in conjuncts(condition))


def _if(condition: Expr, then: Stmt, otherwise: Stmt | None, bounds: Bounds) -> Stmt:
    open_parts: list[Expr] = []
    for part in conjuncts(condition):
        decided = _decide(part, bounds)
        if decided == FALSE:
            return NOTHING if otherwise is None else partition(otherwise, bounds)
        if decided != TRUE:
            open_parts.append(decided)
    body = partition(then, bounds)
    if not open_parts:
        return body
    other = None if otherwise is None else partition(otherwise, bounds)
    return NOTHING if body == NOTHING and other is None else If(all_of(*open_parts), body, other)


_NEGATED = {
    BinaryOp.LT: BinaryOp.GE,
    BinaryOp.LE: BinaryOp.GT,
    BinaryOp.GT: BinaryOp.LE,
    BinaryOp.GE: BinaryOp.LT,
    BinaryOp.EQ: BinaryOp.NE,
    BinaryOp.NE: BinaryOp.EQ,
}


def _decide(condition: Expr, bounds: Bounds) -> Expr:
    """True or false where that is proven, else the condition, simplified."""
    if prove(condition, bounds):
        return TRUE
    if isinstance(condition, Binary) and condition.op in _NEGATED and not condition.a.dtype.is_float:
        negation = binary(_NEGATED[condition.op], condition.a, condition.b)
    else:
        negation = unary(UnaryOp.NOT, condition)
    return FALSE if prove(negation, bounds) else simplify(condition, bounds)


_DIVISIONS = frozenset({BinaryOp.FLOORDIV, BinaryOp.MOD})


def _index(expr: Expr, bounds: Bounds) -> Expr:
    """Simplified, if there is a division to get rid of: sums are collected later, for all accesses."""
    if any(isinstance(node, Binary) and node.op in _DIVISIONS for node in walk(expr)):
        return simplify(expr, bounds)
    return expr


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
    """Whether ``node`` is a value that follows from a place alone, as how many elements a window has there."""
    return isinstance(node, Cast) and not node.has_reads and node.a.dtype == dtypes.index and bool(node.variables)


def _decided(condition: Expr, bounds: Bounds) -> Expr:
    """``condition`` without those of its conjuncts that are known."""
    parts = [_decide(part, bounds) for part in conjuncts(condition)]
    return FALSE if FALSE in parts else all_of(*(part for part in parts if part != TRUE))


def _region(region: Region, bounds: Bounds) -> Region:
    return Region(region.buffer, tuple((_index(start, bounds), extent) for start, extent in region.ranges))

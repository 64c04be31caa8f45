"""Loops with guards are cut at the points from where a guard is known.

``for i in range(43): for ii in range(12): if i*12 + ii < 512`` becomes 42 iterations without the guard, and one in
which the inner loop has 8. A guard that can't be decided by cutting stays; inside vector loops it becomes a mask.
Parallel loops are not cut (each piece would cost a join): their body gets one version per piece instead.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.loops.ir import NOTHING, Alloc, Call, If, Loop, LoopKind, Region, Seq, Stmt, Store, Stores
from tilewright.loops.visit import seq, substitute
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import FALSE, TRUE, Binary, Const, Expr, Read, Var, binary, const, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.solve import solve_lower, solve_upper
from tilewright.symbolic.traversal import all_of, conjuncts, free_vars, transform_reads, walk

MAX_PIECES = 3
"""Most pieces of one loop: before, between and after. More would cost more code than guards cost time."""


@dataclass(frozen=True, slots=True)
class _Guard:
    """A condition met inside a loop, and what is known of the loops between."""

    condition: Expr
    bounds: Bounds


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
    cuts = [] if loop.kind is LoopKind.VECTORIZED else _cuts(loop.var, extent, loop.body, bounds)
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
    cuts = _cuts(loop.var, extent, body, known)
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


def _cuts(var: Var, extent: int, body: Stmt, bounds: Bounds) -> list[int]:
    """Where to cut ``range(extent)`` so that guards are decided on the pieces."""
    found: set[int] = set()
    for guard in _guards(body, bounds.extended({var: const(extent)})):
        if var not in free_vars(guard.condition):
            continue
        for solve in (solve_upper, solve_lower):
            edge = solve(guard.condition, var, guard.bounds)
            if isinstance(edge, Const) and 0 < int(edge.value) < extent:
                found.add(int(edge.value))
    return sorted(found) if len(found) < MAX_PIECES else []


def _guards(stmt: Stmt, bounds: Bounds) -> Iterator[_Guard]:
    match stmt:
        case If(condition, then, otherwise):
            for part in conjuncts(condition):
                yield _Guard(part, bounds)
            yield from _guards(then, bounds)
            if otherwise is not None:
                yield from _guards(otherwise, bounds)
        case Loop(var, extent, body, _):
            yield from _guards(body, bounds.extended({var: extent}))
        case Seq(statements):
            for inner in statements:
                yield from _guards(inner, bounds)
        case Alloc(_, body):
            yield from _guards(body, bounds)
        case _:
            return


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
    return transform_reads(expr, lambda node: Read(node.source, tuple(_index(i, bounds) for i in node.indices)))


def _region(region: Region, bounds: Bounds) -> Region:
    return Region(region.buffer, tuple((_index(start, bounds), extent) for start, extent in region.ranges))

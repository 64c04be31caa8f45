"""``split`` and ``tile``: split a loop into several nested loops.

``for i in range(n)`` split by ``(None, 8)`` becomes ``for i_0 in range(ceil(n / 8)): for i_1 in range(8)``, and ``i``
in the bindings becomes ``i_0 * 8 + i_1``. If the factors are not proven to divide the extent, the blocks below get the
predicate ``i_0 * 8 + i_1 < n``; codegen splits off the tails.
"""

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from tilewright.loops.ir import Alloc, Block, If, Loop, LoopKind, Seq, Stmt
from tilewright.loops.program import Dim, Program
from tilewright.loops.visit import children, with_children
from tilewright.schedule.reorder import reorder
from tilewright.schedule.simplification import simplified
from tilewright.schedule.tree import (
    LoopRef,
    bounds_at,
    fresh_loop_vars,
    loop_at,
    nest,
    refuse,
    rewrite,
    substitute_loops,
    variable_names,
)
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ONE, TRUE, Const, Expr, Extent, Var, as_expr
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.sizes import flat_index
from tilewright.symbolic.traversal import all_of

Factor: TypeAlias = int | Extent | None
"""An extent; a symbol that is bound later (``bind_factors``); or None: derived."""


def split(
    program: Program, loop: LoopRef, factors: Sequence[Factor], names: Sequence[str] | None = None
) -> tuple[Program, tuple[LoopRef, ...]]:
    """Split ``loop`` into loops of the extents ``factors``, outermost first; at most one is None (see ``Factor``).

    Returns the new loops; their names are ``names``, or ``i_0``, ``i_1`` ... Refuses if the loop is not serial, if a
    factor is not positive, or if the product of the factors is too small.
    """
    place = loop_at(program, loop)
    require_serial(place.stmt, "split")
    program = _with_symbols(program, factors)
    outside = bounds_at(program, place)
    extents = _extents(place.stmt, factors, outside)
    fresh = new_loop_vars(program, names, [f"{loop}_{k}" for k in range(len(extents))], loop)
    value = flat_index(fresh, extents)
    bounds = outside.extended(dict(zip(fresh, extents, strict=True)))
    body = substitute_loops(place.stmt.body, {place.stmt.var: value})
    within = value < place.stmt.extent
    if not prove(within, bounds):
        body = guarded(body, within)
    loops = [Loop(var, extent, body) for var, extent in zip(fresh, extents, strict=True)]
    new = simplified(nest(loops, body), outside)
    return rewrite(program, place, new), tuple(LoopRef(var.name) for var in fresh)


def tile(
    program: Program,
    loops: Sequence[LoopRef],
    factors: Sequence[Factor],
    names: Sequence[str] | None = None,
) -> tuple[Program, tuple[LoopRef, ...]]:
    """Split each of perfectly nested ``loops`` by its inner factor, and put all outer loops outside of all inner ones.

    Returns the outer loops, then the inner ones (TVM's ``yo, xo, yi, xi = tile(y, x, 8, 8)``).
    """
    if len(loops) != len(factors):
        raise refuse(f"{len(loops)} loops need as many factors, not {len(factors)}")
    if names is not None and len(names) != 2 * len(loops):
        raise refuse(f"{len(loops)} loops become {2 * len(loops)}, but {len(names)} names are given")
    outer: list[LoopRef] = []
    inner: list[LoopRef] = []
    for position, (loop, factor) in enumerate(zip(loops, factors, strict=True)):
        own = None if names is None else (names[position], names[position + len(loops)])
        program, (outside, inside) = split(program, loop, (None, factor), own)
        outer.append(outside)
        inner.append(inside)
    program, _ = reorder(program, (*outer, *inner))
    return program, (*outer, *inner)


def require_serial(loop: Loop, verb: str) -> None:
    """Refuse if ``loop`` is not serial: its kind would be lost."""
    if loop.kind is not LoopKind.SERIAL:
        remedy = f"make it serial first, or {verb} before it is made {loop.kind.value}"
        raise refuse(f"loop `{loop.var}` is {loop.kind.value}; {remedy}", LoopRef(loop.var.name))


def new_loop_vars(
    program: Program, names: Sequence[str] | None, default: Sequence[str], place: LoopRef
) -> tuple[Var, ...]:
    """New loop variables with exactly the ``names`` if given, else ``default`` or similar."""
    if names is None:
        return fresh_loop_vars(program, default)
    if len(names) != len(default):
        raise refuse(f"{len(default)} new loops, but {len(names)} names: {', '.join(names)}", place)
    taken = variable_names(program) - {place.name}
    for name in names:
        if name in taken or not name.isidentifier():
            raise refuse(f"`{name}` can't be the name of a new loop: it is taken, or no identifier", place)
        taken.add(name)
    return tuple(map(Var, names))


def _with_symbols(program: Program, factors: Sequence[Factor]) -> Program:
    """``program`` with the symbols in ``factors`` declared as run-time extents until they are bound."""
    known = {dim.var for dim in program.dims}
    symbols = {f for f in factors if isinstance(f, Extent)} - known
    if not symbols:
        return program
    clashes = {v.name for v in symbols} & variable_names(program)
    if clashes:
        raise refuse(f"the factor `{min(clashes)}` has the name of a loop; a factor must not vary in the program")
    new = tuple(Dim(var) for var in sorted(symbols, key=lambda v: v.unique))
    return dataclasses.replace(program, dims=(*program.dims, *new))


def _extents(loop: Loop, factors: Sequence[Factor], bounds: Bounds) -> tuple[Expr, ...]:
    place = LoopRef(loop.var.name)
    if not factors or sum(factor is None for factor in factors) > 1:
        raise refuse("split takes at least one factor, and at most one of them is None", place)
    product: Expr = ONE
    for factor in factors:
        given = ONE if factor is None else as_expr(factor)
        if any(not isinstance(variable, Extent) for variable in given.variables):
            raise refuse(f"the factor {given} is the variable of a loop; one that is bound later is an extent", place)
        if isinstance(given, Const) and given.value < 1:
            raise refuse(f"the factor {given} is not positive", place)
        product = product * given
    known = bounds.assuming(*(f >= ONE for f in factors if isinstance(f, Extent)))
    if None not in factors and not prove(product >= loop.extent, known):
        raise refuse(
            f"the factors make {product} iterations, but `{loop.var}` has {loop.extent}; leave one None", place
        )
    rest = simplify((loop.extent + product - 1) // product, known)
    return tuple(rest if factor is None else as_expr(factor) for factor in factors)


def guarded(stmt: Stmt, condition: Expr) -> Stmt:
    """``stmt`` where ``condition`` holds: as predicates of blocks, and as ``If`` around other statements."""
    match stmt:
        case Block():
            return dataclasses.replace(stmt, predicate=all_of(stmt.predicate, condition))
        case Loop() | Seq() | Alloc() | If():
            return with_children(stmt, tuple(guarded(child, condition) for child in children(stmt)))
        case _:
            return stmt if condition == TRUE else If(condition, stmt)

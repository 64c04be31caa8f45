"""``fuse``: merges several perfectly nested loops into one."""

from collections.abc import Sequence

from tilewright.loops.ir import Loop
from tilewright.loops.program import Program
from tilewright.loops.visit import perfect_nest
from tilewright.schedule.simplification import simplified
from tilewright.schedule.split import new_loop_vars, require_serial
from tilewright.schedule.tree import (
    LoopRef,
    bounds_at,
    depends_on,
    loop_at,
    refuse,
    rewrite,
    substitute_loops,
)
from tilewright.symbolic.expr import ONE, Expr, Var


def fuse(program: Program, loops: Sequence[LoopRef], name: str | None = None) -> tuple[Program, LoopRef]:
    """Merge ``loops``, which are perfectly nested and listed outermost first, into one loop.

    The old variables are recovered by ``//`` and ``%``. Returns the new loop, called ``name`` or ``i_j_fused``. Refuses
    if there is a statement between the loops, or if the extent of an inner one depends on an outer one.
    """
    if not loops:
        raise refuse("fuse takes at least one loop")
    place = loop_at(program, loops[0])
    fused = perfect_nest(place.stmt)[: len(loops)]
    _require_adjacent(fused, loops)
    for loop in fused:
        require_serial(loop, "fuse")
    default = "_".join(loop.name for loop in loops) + "_fused"
    (var,) = new_loop_vars(program, None if name is None else (name,), (default,), loops[0])
    body = substitute_loops(fused[-1].body, _recovered(fused, var))
    new = simplified(Loop(var, _product(fused), body), bounds_at(program, place))
    return rewrite(program, place, new), LoopRef(var.name)


def _require_adjacent(nested: Sequence[Loop], wanted: Sequence[LoopRef]) -> None:
    for position, loop in enumerate(wanted):
        if position >= len(nested) or nested[position].var.name != loop.name:
            raise refuse(
                f"`{loop}` is not the only thing directly inside `{wanted[position - 1]}`; reorder first", loop
            )
        outer = [other.var for other in nested[:position]]
        if depends_on(nested[position].extent, outer):
            raise refuse(f"the extent {nested[position].extent} of `{loop}` depends on a loop to be fused with", loop)


def _product(loops: Sequence[Loop]) -> Expr:
    product: Expr = ONE
    for loop in loops:
        product = product * loop.extent
    return product


def _recovered(loops: Sequence[Loop], fused: Var) -> dict[Var, Expr]:
    """The old variables in terms of the fused one; the outermost needs no ``%``."""
    values: dict[Var, Expr] = {}
    for position, loop in enumerate(loops):
        digit = fused // _product(loops[position + 1 :])
        values[loop.var] = digit if position == 0 else digit % loop.extent
    return values

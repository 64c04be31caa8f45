"""``reorder``: permutes perfectly nested loops."""

from collections.abc import Sequence

from tilewright.loops.ir import Loop
from tilewright.loops.program import Program
from tilewright.loops.visit import perfect_nest
from tilewright.schedule.dependence import require_free_order, require_own_values
from tilewright.schedule.tree import (
    Location,
    LoopRef,
    depends_on,
    loops_at,
    nest,
    refuse,
    rewrite,
)


def reorder(program: Program, loops: Sequence[LoopRef]) -> tuple[Program, None]:
    """Permute ``loops``, outermost first, within the positions that they occupy in one perfect nest.

    Other loops of the nest keep their positions. Reduction loops may go outside of spatial ones: a block's init belongs
    to the block. Refuses if the loops are not in one perfect nest, if an extent would come to depend on a loop inside,
    or if the order of iterations matters (scans, values passed from block to block).
    """
    if len(set(loops)) != len(loops) or not loops:
        raise refuse("reorder takes one or more loops, each once")
    outermost = min(loops_at(program, loops), key=lambda place: len(place.path))
    chain = _chain(outermost, loops)
    wanted = iter(loops)
    by_name = {loop.var.name: loop for loop in chain}
    listed = {loop.name for loop in loops}
    order = [by_name[next(wanted).name] if loop.var.name in listed else loop for loop in chain]
    if order == list(chain):
        return program, None
    _require_closed_extents(order)
    require_free_order(outermost, chain, order)
    require_own_values(program, outermost, chain)
    return rewrite(program, outermost, nest(order, chain[-1].body)), None


def _chain(outermost: Location[Loop], wanted: Sequence[LoopRef]) -> tuple[Loop, ...]:
    """The perfect nest from the outermost to the innermost of the ``wanted`` loops."""
    nested = perfect_nest(outermost.stmt)
    position = {loop.var.name: i for i, loop in enumerate(nested)}
    for loop in wanted:
        if loop.name not in position:
            last = nested[-1].var
            raise refuse(
                f"`{loop}` is not in one perfect nest with `{outermost.stmt.var}`, which ends at `{last}`", loop
            )
    return nested[: 1 + max(position[loop.name] for loop in wanted)]


def _require_closed_extents(order: Sequence[Loop]) -> None:
    for i, loop in enumerate(order):
        inner = [other.var for other in order[i:]]
        if depends_on(loop.extent, inner):
            raise refuse(f"the extent {loop.extent} of `{loop.var}` depends on a loop inside", LoopRef(loop.var.name))

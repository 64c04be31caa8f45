"""A schedule primitive in one file, as ``docs/extending.md`` shows it: iterations in stripes."""

from dataclasses import replace

from tilewright.loops.ir import LoopKind
from tilewright.loops.program import Program
from tilewright.schedule.dependence import require_independent
from tilewright.schedule.tree import LoopRef, loop_at, refuse, rewrite, substitute_loops
from tilewright.schedule.user_primitive import UserPrimitive
from tilewright.symbolic.expr import Const


def stripe(program: Program, loop: LoopRef, ways: int) -> tuple[Program, None]:
    """Of ``n`` iterations, run 0, n / ways, 2 n / ways ..., then 1, n / ways + 1 ...

    Refuses if ``ways`` does not divide the extent, or if the iterations depend on each other.
    """
    place = loop_at(program, loop)
    extent = place.stmt.extent
    if not isinstance(extent, Const) or ways < 1 or int(extent.value) % ways:
        raise refuse(f"{ways} stripes do not divide {extent} iterations", loop)
    require_independent(program, place, LoopKind.PARALLEL)
    i, size = place.stmt.var, int(extent.value) // ways
    body = substitute_loops(place.stmt.body, {i: i % ways * size + i // ways})
    return rewrite(program, place, replace(place.stmt, body=body)), None


STRIPE = UserPrimitive("my_package.stripe", stripe)

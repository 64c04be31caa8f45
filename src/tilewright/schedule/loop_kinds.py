"""How a loop's iterations run: ``serial``, ``unroll``, ``vectorize``, ``parallel``."""

import dataclasses

from tilewright.loops.ir import Loop, LoopKind
from tilewright.loops.program import Program
from tilewright.loops.visit import MOST_COPIES, copies, walk
from tilewright.schedule.dependence import require_independent
from tilewright.schedule.tree import Location, LoopRef, loop_at, refuse, rewrite


def serial(program: Program, loop: LoopRef) -> tuple[Program, None]:
    """One iteration after the other."""
    return _with_kind(program, loop_at(program, loop), LoopKind.SERIAL)


def unroll(program: Program, loop: LoopRef) -> tuple[Program, None]:
    """The body once for each iteration (where the extent becomes constant). Refuses if that is too much code."""
    changed, _ = _with_kind(program, loop_at(program, loop), LoopKind.UNROLLED)
    require_few_copies(changed, loop)
    return changed, None


def require_few_copies(program: Program, loop: LoopRef) -> None:
    """Refuse if ``program``, in which ``loop`` was unrolled, is too much code."""
    count = copies(program.body)
    if count > MOST_COPIES:
        reason = f"with the iterations of `{loop}` written out, there are {count} statements, more than {MOST_COPIES}"
        raise refuse(f"{reason}; split the loop, and unroll the inner one", loop)


def vectorize(program: Program, loop: LoopRef) -> tuple[Program, None]:
    """Iterations are lanes of vectors.

    Refuses if the iterations depend on each other, or if another vectorized loop is around or inside.
    """
    place = loop_at(program, loop)
    inside = [stmt for stmt in walk(place.stmt.body) if isinstance(stmt, Loop)]
    for other in (*place.loops, *inside):
        if other.kind is LoopKind.VECTORIZED:
            raise refuse(f"`{other.var}`, in the same nest, is vectorized already; fuse the two, or choose one", loop)
    require_independent(program, place, LoopKind.VECTORIZED)
    return _with_kind(program, place, LoopKind.VECTORIZED)


def parallel(program: Program, loop: LoopRef) -> tuple[Program, None]:
    """Iterations are spread over workers; of parallel loops directly in one another, all iterations are.

    Refuses if the iterations depend on each other, or if a vectorized loop is around.
    """
    place = loop_at(program, loop)
    if any(outer.kind is LoopKind.VECTORIZED for outer in place.loops):
        raise refuse(f"`{loop}` is inside a vectorized loop; lanes can't be spread over workers", loop)
    require_independent(program, place, LoopKind.PARALLEL)
    return _with_kind(program, place, LoopKind.PARALLEL)


def _with_kind(program: Program, place: Location[Loop], kind: LoopKind) -> tuple[Program, None]:
    return rewrite(program, place, dataclasses.replace(place.stmt, kind=kind)), None

"""``serial``, ``unroll``, ``vectorize``, ``parallel``: set how a loop's iterations run."""

import dataclasses

from tilewright.loops.ir import Loop, LoopKind
from tilewright.loops.program import Program
from tilewright.loops.visit import MOST_COPIES, copies, walk
from tilewright.schedule.dependence import require_independent
from tilewright.schedule.tree import Location, LoopRef, loop_at, refuse, rewrite


def serial(program: Program, loop: LoopRef) -> tuple[Program, None]:
    """Iterations run in order."""
    return _with_kind(program, loop_at(program, loop), LoopKind.SERIAL)


def unroll(program: Program, loop: LoopRef) -> tuple[Program, None]:
    """Unroll the loop (when its extent becomes constant). Refuses if the code would get too large."""
    changed, _ = _with_kind(program, loop_at(program, loop), LoopKind.UNROLLED)
    require_few_copies(changed, loop)
    return changed, None


def require_few_copies(program: Program, loop: LoopRef) -> None:
    """Refuse if ``program``, in which ``loop`` was unrolled, is too large."""
    count = copies(program.body)
    if count > MOST_COPIES:
        reason = f"with the iterations of `{loop}` written out, there are {count} statements, more than {MOST_COPIES}"
        raise refuse(f"{reason}; split the loop, and unroll the inner one", loop)


def vectorize(program: Program, loop: LoopRef) -> tuple[Program, None]:
    """Iterations become lanes of vectors.

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
    """Iterations are distributed over workers; those of perfectly nested parallel loops all together.

    Refuses if the iterations depend on each other, or if a vectorized loop is around.
    """
    place = loop_at(program, loop)
    if any(outer.kind is LoopKind.VECTORIZED for outer in place.loops):
        raise refuse(f"`{loop}` is inside a vectorized loop; lanes can't be spread over workers", loop)
    require_independent(program, place, LoopKind.PARALLEL)
    return _with_kind(program, place, LoopKind.PARALLEL)


def _with_kind(program: Program, place: Location[Loop], kind: LoopKind) -> tuple[Program, None]:
    return rewrite(program, place, dataclasses.replace(place.stmt, kind=kind)), None

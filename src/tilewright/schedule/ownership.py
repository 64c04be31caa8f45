"""Checks buffers distributed over threads: each thread accesses only its own elements.

A buffer in a thread's memory that outlives a loop over threads (such as the accumulators of a tile) has no element that
two threads access. A thread's accesses, for any values of the other loops, must be the same box in all phases, and
boxes of different threads must be disjoint.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.loops.access import region_over
from tilewright.loops.ir import Alloc, Block, Loop, LoopKind, Region
from tilewright.loops.launch import THREADS
from tilewright.loops.memory import Sharing
from tilewright.loops.program import Program
from tilewright.schedule.determination import undetermined
from tilewright.schedule.region import unit_of
from tilewright.schedule.tree import BlockRef, Location, bounds_below, places, refuse
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Const, Expr, Var
from tilewright.symbolic.simplify import equivalent, prove
from tilewright.symbolic.traversal import substitute

_PLACES = {kind: Var(kind.value) for kind in THREADS}
"""The position of a thread, independent of the name of the loop over it."""


@dataclass(frozen=True, slots=True)
class _Share:
    """The elements that the thread at ``_PLACES`` accesses, by one access of a block."""

    block: BlockRef
    threads: dict[LoopKind, Expr]
    """The loops over threads around, and their extents."""
    region: Region
    bounds: Bounds


def require_own_elements(program: Program) -> None:
    """Refuse if two threads may access the same element of a distributed buffer."""
    for at in places(program.body, Alloc, lambda s: s.buffer.memory.sharing is Sharing.THREAD):
        shares = list(_shares(program, at))
        for share in shares:
            _require_same(shares[0], share)
        if shares:
            _require_apart(shares[0])


def _shares(program: Program, at: Location[Alloc]) -> Iterator[_Share]:
    depth = len(at.ancestors) + 1
    for found in places(at.stmt, Block, ancestors=at.ancestors, path=at.path):
        inside = [a for a in found.ancestors[depth:] if isinstance(a, Loop)]
        threads = {loop.kind: loop for loop in inside if loop.kind.is_thread}
        values: dict[Var, Expr] = {loop.var: _PLACES[kind] for kind, loop in threads.items()}
        values |= {
            axis.var: substitute(b, values) for axis, b in zip(found.stmt.axes, found.stmt.bindings, strict=True)
        }
        extents = {_PLACES[kind]: loop.extent for kind, loop in threads.items()}
        bounds = bounds_below(program, found.ancestors).extended(extents)
        relaxed = [loop.var for loop in inside if not loop.kind.is_thread]
        for region in (*found.stmt.reads, *found.stmt.writes):
            if region.buffer == at.stmt.buffer:
                ranges = tuple((substitute(s, values), substitute(e, values)) for s, e in region.ranges)
                touched = region_over(Region(region.buffer, ranges), bounds, relaxed)
                sizes = {kind: loop.extent for kind, loop in threads.items()}
                yield _Share(BlockRef(found.stmt.name), sizes, touched, bounds)


def _require_same(first: _Share, other: _Share) -> None:
    pairs = zip(first.region.ranges, other.region.ranges, strict=True)
    is_same = all(equivalent(a, b, other.bounds) and equivalent(m, n, other.bounds) for (a, m), (b, n) in pairs)
    if first.threads != other.threads or not is_same:
        name, memory = first.region.buffer.name, first.region.buffer.memory.name
        reason = f"threads of `{other.block}` may use elements of `{name}` that are other threads' in `{first.block}`"
        raise refuse(f"{reason}, and each has its own in {memory}; bind their loops alike", other.block)


def _require_apart(share: _Share) -> None:
    """Whether the positions of the dimensions that are cut into pieces determine the thread."""
    bounds = share.bounds
    pieces = [s for s, n in share.region.ranges if _is_piece(s, n, bounds)]
    threads = [_PLACES[kind] for kind, extent in share.threads.items() if extent != Const(1, extent.dtype)]
    if undetermined(pieces, threads, threads, bounds):
        name, memory = share.region.buffer.name, share.region.buffer.memory.name
        reason = f"threads of `{share.block}` may use the same elements of `{name}`, which is in {memory}"
        raise refuse(f"{reason}: each has its own; bind spatial loops, or use a memory of blocks", share.block)


def _is_piece(start: Expr, size: Expr, bounds: Bounds) -> bool:
    return prove(size <= unit_of(start, bounds), bounds)

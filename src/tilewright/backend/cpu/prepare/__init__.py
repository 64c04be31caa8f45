"""Prepares a scheduled program for code generation, so that each statement can be translated separately.

dissolve             blocks become their bodies, initializations move before the reduction loops (``loops``)
inline_intrinsics    intrinsics that have no implementation become their description
fit_lanes            buffers that live in vectorized loops get a dimension for the lanes
without_single_loops loops that run once become their bodies
limit_loops          serial loops stop where their guards do
partition            loops with guards are cut where the guard is known; tails become loops of their own
unmask               sums in private buffers have no guards on lanes
unswitch             what is selected for a whole loop is selected before it
accumulate           what serial loops accumulate stays in registers

Each nest of loops is prepared separately, and the last few results are cached: candidates for a kernel's schedule
usually differ in only one nest.
"""

from dataclasses import replace
from functools import lru_cache

from tilewright.backend.cpu.prepare.accumulate import accumulate
from tilewright.backend.cpu.prepare.inline import inline_intrinsics
from tilewright.backend.cpu.prepare.lanes import fit_lanes
from tilewright.backend.cpu.prepare.limit import limit_loops
from tilewright.backend.cpu.prepare.once import without_single_loops
from tilewright.backend.cpu.prepare.partition import partition
from tilewright.backend.cpu.prepare.unmask import unmask
from tilewright.backend.cpu.prepare.unswitch import unswitch
from tilewright.base.errors import UnsupportedTarget
from tilewright.loops.dissolve import dissolve
from tilewright.loops.ir import NOTHING, Alloc, Loop, Seq, Stmt
from tilewright.loops.program import Dim, Intrinsic, Program
from tilewright.loops.visit import allocations, seq, walk
from tilewright.symbolic.bounds import Bounds

_REMEMBERED = 32
"""Cached nests: several for each of a few kernels."""


def prepare(program: Program) -> Program:
    """``program`` without blocks, and with guards only if they depend on data or on lanes."""
    return replace(program, body=_prepared(program.body, program))


def _prepared(stmt: Stmt, program: Program) -> Stmt:
    match stmt:
        case Alloc():
            around, inner = allocations(stmt)
            body = _prepared(inner, program)
            for alloc in reversed(around):
                body = NOTHING if body == NOTHING else Alloc(alloc.buffer, body)
            return body
        case Seq(statements):
            return seq(*(_prepared(inner, program) for inner in statements))
        case _:
            return _nest(stmt, program.dims, program.intrinsics)


@lru_cache(_REMEMBERED)
def _nest(stmt: Stmt, dims: tuple[Dim, ...], intrinsics: tuple[Intrinsic, ...]) -> Stmt:
    for node in walk(stmt):
        if isinstance(node, Loop) and node.kind.is_of_device:
            reason = "a CPU has no blocks and threads of a grid; use parallel, or the reference back end"
            raise UnsupportedTarget(f"loop `{node.var}` is bound to {node.kind.value}, and {reason}")
    bounds = Bounds({}, {dim.var: dim.bound for dim in dims})
    known = {intrinsic.name: intrinsic for intrinsic in intrinsics}
    body = without_single_loops(fit_lanes(inline_intrinsics(dissolve(stmt), known)))
    return accumulate(unswitch(unmask(partition(limit_loops(body, bounds), bounds))))

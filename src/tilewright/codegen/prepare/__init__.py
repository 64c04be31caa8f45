"""From a scheduled program to one that can be written down statement by statement.

dissolve             blocks become their bodies, initializations move before the reduction loops (``loops``)
inline_intrinsics    intrinsics that have no implementation become their description
fit_lanes            buffers that live in vectorized loops get a dimension for the lanes
without_single_loops loops that run once become their bodies
partition            loops with guards are cut where the guard is known; tails become loops of their own
unswitch             what is selected for a whole loop is selected before it
"""

from dataclasses import replace

from tilewright.codegen.prepare.inline import inline_intrinsics
from tilewright.codegen.prepare.lanes import fit_lanes
from tilewright.codegen.prepare.once import without_single_loops
from tilewright.codegen.prepare.partition import partition
from tilewright.codegen.prepare.unswitch import unswitch
from tilewright.loops.dissolve import dissolve
from tilewright.loops.program import Program
from tilewright.symbolic.bounds import Bounds


def prepare(program: Program) -> Program:
    """``program`` without blocks, and with guards only where they depend on data or on lanes."""
    bounds = Bounds({}, {dim.var: dim.bound for dim in program.dims})
    intrinsics = {intrinsic.name: intrinsic for intrinsic in program.intrinsics}
    body = without_single_loops(fit_lanes(inline_intrinsics(dissolve(program.body), intrinsics)))
    return replace(program, body=unswitch(partition(body, bounds)))

"""The analytic choice, also for programs that no template is for.

``cost.analytic`` recognizes classes of kernels, and has good schedules for them. What is of no class it runs block by
block, which may be far below what a processor can do. Then candidates of sketches are rated (``drawing``), and the best
one is taken if it is clearly better by the estimate. Nothing is measured, and what is drawn follows from a fixed seed:
so a program has the same schedule whenever it is compiled for a target.
"""

from tilewright.base.errors import Unsupported
from tilewright.cost.analytic import open_space
from tilewright.cost.kernels import pass_cycles
from tilewright.cost.model import best
from tilewright.cost.recurrence import is_recurrent
from tilewright.cost.work import count
from tilewright.kernels.contraction import Contraction
from tilewright.kernels.nests import Lanes, Nest, Tiles
from tilewright.kernels.reductions import schedule_reduction
from tilewright.loops.ir import Store
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks, block_at
from tilewright.symbolic.traversal import free_vars
from tilewright.target.target import Target
from tilewright.tune.features.cycles import program_cycles
from tilewright.tune.untuned.drawing import best_of_sketches
from tilewright.tune.untuned.spread import spread

LEAST_CYCLES = 200_000.0
"""Of what ``cost.analytic`` makes, from which on other schedules are worth a second of the compiler."""
SLOW = 2.5
"""How many times as long as a pass over its data, or its arithmetic, it takes at least, if it may be naive."""
REPEATED = 2.0
"""Of how many times as many operations as needed it does more, if it may be. A copy does none."""
BETTER = 0.7
"""The part of its cycles that another schedule takes at most, to be preferred: the estimate is rough."""


def schedule(naive: Program, target: Target) -> Schedule:
    """The schedule of ``naive`` for ``target``, by estimates alone."""
    own = Schedule(naive)
    nests = open_space(own, target)
    is_known = all(_is_known(nest, own.program) for nest in nests.nests)
    opened = own.program
    nests.apply(own, best(nests, target))
    cycles = _cycles_if_naive(own, opened, naive, target, is_known=is_known) if _is_plain(naive) else None
    if cycles is None:
        return own
    found = best_of_sketches(naive, target, cycles)
    if found is None or found.cycles > BETTER * cycles:
        return own
    spread(found.schedule, target)
    return found.schedule


def _is_known(nest: Nest, opened: Program) -> bool:
    """Whether ``nest`` is of a class that has a good schedule.

    It is none if the operand along the lanes of a contraction is far apart there, or if products are summed up whose
    operands are not shared as those of a window are.
    """
    match nest:
        case Tiles(roles=Contraction(vector=vector, panel=panel)):
            block = block_at(opened, nest.anchor).stmt
            regions = [region for region in block.reads if region.buffer.name == panel]
            return all(block.axes[vector].var in free_vars(region.ranges[-1][0]) for region in regions)
        case Tiles():
            return nest.facts.overlap.taps > 1 or nest.facts.operands == 1
        case Lanes():
            return nest.how is not schedule_reduction
        case _:
            return True


def _is_plain(naive: Program) -> bool:
    """Whether sketches are made of such programs: of fixed extents, without recurrences and bodies in loop IR."""
    is_functional = all(isinstance(block.body, Store) for block in all_blocks(naive.body))
    return is_functional and not naive.dims and not is_recurrent(naive)


def _cycles_if_naive(own: Schedule, opened: Program, naive: Program, target: Target, *, is_known: bool) -> float | None:
    """The estimate of ``own``; None if that is short, or near to what arithmetic and memory allow, or not known.

    ``opened``: ``naive`` with what is inlined. ``is_known``: of a known class, a schedule may be naive only if it
    computes values again and again: tests of padding and the lanes beyond an end are none of these.
    """
    needed, done = count(naive, {}), count(opened if is_known else own.program, {})
    if own.program.intrinsics or needed is None or done is None:
        return None
    is_repeated = done.operations > REPEATED * needed.operations
    if is_known and not is_repeated:
        return None
    try:
        cycles = program_cycles(own.program, target)
    except Unsupported:
        return None
    is_slow = is_repeated or cycles >= SLOW * pass_cycles(needed, target)
    return cycles if cycles >= LEAST_CYCLES and is_slow else None

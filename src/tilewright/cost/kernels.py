"""What a whole kernel takes, estimated from its naive program: for those who compare graphs.

A contraction takes what the model says of its best register tile. All else is a pass over memory: the longer of its
arithmetic and its traffic, as in Williams et al., "Roofline" (2009). Weights that no core keeps from one run of a model
to the next are read from further away.
"""

from tilewright.base.errors import Unsupported
from tilewright.cost.analytic import open_space
from tilewright.cost.model import estimate
from tilewright.cost.work import Work, count
from tilewright.kernels.nests import Tiles
from tilewright.kernels.schedules import is_reduction
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks
from tilewright.target.target import Target

KERNEL_START = 600.0
"""Cycles to call a kernel, and to begin and end its loops."""
OPERATION_CYCLES = 2.0
"""Cycles of a vector of operations that are no multiply-adds: most are quick, some are functions."""
NEAR_BYTES_PER_CYCLE = 24.0
"""What a kernel reads and writes if all of it fits in a core's own cache."""
FAR_BYTES_PER_CYCLE = 10.0
"""The same if it does not."""
COLD_BYTES_PER_CYCLE = 10.0
"""Weights that other weights have displaced since the last run."""
COLD_START = 5000.0
"""Cycles until a stream of them runs: pages are new to the processor, and nothing was asked for ahead."""
TYPICAL_EXTENT = 64
"""What is taken for an extent that is known at run time only and has no bound."""
_WORD = 32
"""Bits of the elements of most kernels."""


def kernel_cycles(naive: Program, target: Target, cold_bytes: int = 0) -> float:
    """Cycles of ``naive`` as the analytic model schedules it, on the cores of ``target`` that it may use.

    ``cold_bytes``: of the weights that it reads and that are in no near cache.
    """
    streaming = COLD_START + cold_bytes / COLD_BYTES_PER_CYCLE if cold_bytes else 0.0
    tiles = _tile_cycles(naive, target)
    if tiles is not None:
        return KERNEL_START + max(tiles, streaming)
    work = count(naive, {dim.var.name: dim.bound or TYPICAL_EXTENT for dim in naive.dims})
    return KERNEL_START + (streaming if work is None else max(pass_cycles(work, target), streaming))


def pass_cycles(work: Work, target: Target) -> float:
    """Cycles of a pass over memory that does ``work``."""
    lanes = target.lanes(_WORD)
    arithmetic = (work.multiply_adds / target.fma_per_cycle + OPERATION_CYCLES * work.others) / lanes
    rate = NEAR_BYTES_PER_CYCLE if work.bytes <= target.l2_bytes else FAR_BYTES_PER_CYCLE
    return max(arithmetic, work.bytes / rate)


def _tile_cycles(naive: Program, target: Target) -> float | None:
    """Of the register tiles of ``naive``; None if it has none."""
    if not any(map(is_reduction, all_blocks(naive.body))):
        return None
    try:
        space = open_space(Schedule(naive), target)
    except Unsupported:
        return None
    tiles = [nest for nest in space.nests if isinstance(nest, Tiles)]
    if not tiles:
        return None
    return sum(float(estimate(nest, nest.population(), target).min()) for nest in tiles)

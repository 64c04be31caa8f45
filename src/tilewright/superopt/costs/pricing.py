"""Prices kernels for comparisons of whole graphs: cycles on all cores of a target.

A contraction takes the analytic model's estimate of its register tiles (``cost.kernels``). Other kernels are passes
over memory, which the cores share. Two kinds cost what their naive programs do not show: a transform of small tiles
(Winograd's) is unrolled in registers, where its choices are made while compiling, and functions such as ``exp`` take
many instructions wherever they are computed.
"""

from math import prod

from tilewright.cost.kernels import tile_cycles, work_of
from tilewright.cost.work import Work
from tilewright.kernels.contraction import Extents
from tilewright.kernels.transforms import first_stages
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

_WORD = 32
"""Bits of an element in most kernels."""


def price(naive: Program, target: Target, cold_bytes: int = 0) -> float:
    """Cycles of a run of the kernel ``naive``. ``cold_bytes``: bytes of the weights that it reads from memory."""
    machine = target.machine
    streaming = machine.cold_start + cold_bytes / machine.far_bytes if cold_bytes else 0.0
    return machine.kernel_start + max(_busy(naive, target), streaming)


def _busy(naive: Program, target: Target) -> float:
    work, tiles = work_of(naive), tile_cycles(naive, target)
    if tiles is not None:
        return tiles + arithmetic_cycles(Work(0, work.functions, 0, work.functions), target) / target.cores
    if first_stages(Schedule(naive)):
        return _shared(_transform_cycles(naive, target), target)
    return _shared(_pass_cycles(work, target), target)


def arithmetic_cycles(work: Work, target: Target) -> float:
    """Cycles of the operations of ``work`` on one core, with data in its first cache."""
    machine, plain = target.machine, work.others - work.functions
    operations = machine.operation_cycles * plain + machine.function_cycles * work.functions
    return (work.multiply_adds / target.fma_per_cycle + operations) / target.lanes(_WORD)


def _pass_cycles(work: Work, target: Target) -> float:
    rate = target.machine.near_bytes if work.bytes <= target.l2_bytes else target.machine.far_bytes
    return max(arithmetic_cycles(work, target), work.bytes / rate)


def _transform_cycles(naive: Program, target: Target) -> float:
    """Cycles of a transform, by its larger side: the points of all tiles."""
    extents = Extents(naive.dims)
    points = max(prod(map(extents.of, buffer.shape)) for buffer in naive.params)
    return points / target.lanes(_WORD) * target.machine.transform_cycles


def _shared(cycles: float, target: Target) -> float:
    """The time on all cores, if that is less than on one."""
    return min(cycles, cycles / target.cores + target.machine.region_cycles)

"""Estimates the time of a kernel from its naive program, to compare graphs.

A contraction takes the model's estimate of its best register tile. Any other kernel is a pass over memory: the maximum
of its arithmetic and its traffic, as in Williams et al., "Roofline" (2009). Weights that do not stay in a core's cache
between runs are read from memory.
"""

from math import prod

from tilewright.base.dtypes import f32
from tilewright.cost.analytic import open_space
from tilewright.cost.model import least_cycles
from tilewright.cost.work import Work, count
from tilewright.kernels.attention_tiles import AttentionTiles
from tilewright.kernels.contraction import Extents
from tilewright.kernels.matrix_tiles import MatrixTiles
from tilewright.kernels.nests import Nest, Tiles
from tilewright.kernels.row_products import RowProducts
from tilewright.kernels.schedules import is_reduction
from tilewright.kernels.transforms import transform_stages
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks
from tilewright.target.machine import GUESSED_EXTENT
from tilewright.target.target import Target

_WORD = 32
"""Bits of an element in most kernels."""


def kernel_cycles(naive: Program, target: Target, cold_bytes: int = 0) -> float:
    """Cycles of ``naive`` as the analytic model schedules it, on the usable cores of ``target``.

    ``cold_bytes``: bytes of the weights that it reads and that are not in a near cache.
    """
    machine = target.machine
    streaming = machine.cold_start + cold_bytes / machine.far_bytes if cold_bytes else 0.0
    tiles = tile_cycles(naive, target)
    if tiles is not None:
        return machine.kernel_start + max(tiles, streaming)
    return machine.kernel_start + max(_pass_or_transform(naive, target), streaming)


def _pass_or_transform(naive: Program, target: Target) -> float:
    """Cycles of a kernel without tiles of sums. A transform's choices are made while compiling, and its stages are in
    registers: it takes a time for each vector of its larger side."""
    if not transform_stages(naive):
        return pass_cycles(work_of(naive), target)
    extents = Extents(naive.dims)
    touched = (region.buffer for block in all_blocks(naive.body) for region in (*block.reads, *block.writes))
    sides = (prod(map(extents.of, buffer.shape)) / target.lanes(buffer.dtype.bits) for buffer in touched)
    return target.machine.transform_cycles * max(sides)


def work_of(naive: Program) -> Work:
    """The work of ``naive`` at guessed or bounded run-time extents; an estimate if lengths of loops depend on data."""
    return count(naive, {dim.var.name: dim.bound or GUESSED_EXTENT for dim in naive.dims}) or _most_work(naive)


def _most_work(naive: Program) -> Work:
    """The estimated work of a program with data-dependent loop extents: an operation per element of its arguments."""
    extents = Extents(naive.dims)
    sizes = {buffer: prod(map(extents.of, buffer.shape)) for buffer in naive.params}
    touched = {buffer.name: size * buffer.dtype.itemsize for buffer, size in sizes.items()}
    return Work(0, sum(sizes.values()), sum(touched.values()), touched=touched)


def pass_cycles(work: Work, target: Target) -> float:
    """Cycles of a pass over memory with this ``work``."""
    lanes = target.lanes(_WORD)
    arithmetic = (work.multiply_adds / target.fma_per_cycle + target.machine.operation_cycles * work.others) / lanes
    rate = target.machine.near_bytes if work.bytes <= target.l2_bytes else target.machine.far_bytes
    return max(arithmetic, work.bytes / rate)


def sum_cycles(products: int, weights: int, target: Target) -> float:
    """Cycles of sums of so many products with so many weights: the maximum of arithmetic and reading the weights."""
    size = weights * f32.itemsize
    streaming = size / target.machine.far_bytes if size > target.l2_bytes else 0.0
    return max(products / (target.lanes(_WORD) * target.fma_per_cycle), streaming)


def tile_cycles(naive: Program, target: Target) -> float | None:
    """Cycles of the register tiles of ``naive``; None if it has none."""
    nests = tile_nests(naive, target)
    return sum(least_cycles(nest, target) for nest in nests) if nests else None


def tile_nests(naive: Program, target: Target) -> tuple[Nest, ...]:
    """The nests of ``naive`` that are register tiles."""
    if not any(map(is_reduction, all_blocks(naive.body))):
        return ()
    nests = open_space(Schedule(naive), target).nests
    return tuple(nest for nest in nests if isinstance(nest, Tiles | RowProducts | MatrixTiles | AttentionTiles))

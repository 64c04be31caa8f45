"""Lower bounds of a kernel's time: a measurement below them is an error of the clock or of the measurement."""

from math import prod

from tilewright.kernels.contraction import analyze
from tilewright.loops.ir import Block
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.symbolic.expr import Const
from tilewright.target.target import Target

FASTEST_MEGAHERTZ = 8000.0
"""Hertz: no processor has a higher frequency."""


def least_us(program: Program, target: Target, threads: int) -> float:
    """Minimum microseconds for the multiply-adds of a naive program; for sums of products of floats only."""
    return sum(_cycles(block, target) for block in walk(program.body) if isinstance(block, Block)) / (
        threads * FASTEST_MEGAHERTZ
    )


def _cycles(block: Block, target: Target) -> float:
    extents = [axis.extent.value for axis in block.axes if isinstance(axis.extent, Const)]
    made = block.writes[0].buffer.dtype
    if len(extents) < len(block.axes) or not made.is_float or analyze(block) is None:
        return 0.0
    return prod(extents) / (target.fma_per_cycle * target.lanes(8 * made.itemsize))

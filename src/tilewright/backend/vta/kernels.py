"""Micro-op kernels: what one GEMM or ALU instruction does, with its micro-ops, before these have a place on the chip.

    GemmKernel(unrolled([Loop(4, dst=16), Loop(9, src=1, wgt=1)]), outer=Loop(14, dst=14, src=16), inner=...)

Two loops of a nest are the instruction's; all others are unrolled into micro-ops. Kernels with equal micro-ops share
one copy of them, in device memory and on the chip.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from tilewright.backend.vta.instructions import NO_TOKENS, Alu, AluOperation, Gemm, Tokens, Uop


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop over micro-ops: how often, and what each iteration adds to their tiles."""

    extent: int = 1
    dst: int = 0
    src: int = 0
    wgt: int = 0


ONCE = Loop()
ORIGIN = Uop()


def unrolled(loops: Sequence[Loop], first: Uop = ORIGIN) -> tuple[Uop, ...]:
    """The micro-ops of a nest of loops, the last loop innermost; ``first`` is the micro-op of iteration 0."""
    return _unrolled(tuple(loops), first)


@functools.lru_cache(maxsize=1024)
def _unrolled(loops: tuple[Loop, ...], first: Uop) -> tuple[Uop, ...]:
    """Cached: the tiles of an image repeat their kernels."""
    points = product(*(range(loop.extent) for loop in loops))
    return tuple(
        Uop(
            first.dst + sum(i * loop.dst for i, loop in zip(point, loops, strict=True)),
            first.src + sum(i * loop.src for i, loop in zip(point, loops, strict=True)),
            first.wgt + sum(i * loop.wgt for i, loop in zip(point, loops, strict=True)),
        )
        for point in points
    )


@dataclass(frozen=True, slots=True)
class GemmKernel:
    """Products that are added to accumulators; or these are set to 0."""

    uops: tuple[Uop, ...]
    outer: Loop = ONCE
    inner: Loop = ONCE
    reset: bool = False

    def instruction(self, uop_begin: int, tokens: Tokens = NO_TOKENS) -> Gemm:
        """The instruction, with the place of the micro-ops."""
        return Gemm(
            tokens=tokens,
            reset=self.reset,
            uop_begin=uop_begin,
            uop_end=uop_begin + len(self.uops),
            outer=self.outer.extent,
            inner=self.inner.extent,
            dst_outer=self.outer.dst,
            dst_inner=self.inner.dst,
            src_outer=self.outer.src,
            src_inner=self.inner.src,
            wgt_outer=self.outer.wgt,
            wgt_inner=self.inner.wgt,
        )


@dataclass(frozen=True, slots=True)
class AluKernel:
    """An operation on accumulators; its second operand is ``src``, or the immediate."""

    uops: tuple[Uop, ...]
    operation: AluOperation
    outer: Loop = ONCE
    inner: Loop = ONCE
    immediate: int | None = None

    def instruction(self, uop_begin: int, tokens: Tokens = NO_TOKENS) -> Alu:
        """The instruction, with the place of the micro-ops."""
        return Alu(
            tokens=tokens,
            uop_begin=uop_begin,
            uop_end=uop_begin + len(self.uops),
            outer=self.outer.extent,
            inner=self.inner.extent,
            dst_outer=self.outer.dst,
            dst_inner=self.inner.dst,
            src_outer=self.outer.src,
            src_inner=self.inner.src,
            operation=self.operation,
            use_immediate=self.immediate is not None,
            immediate=self.immediate or 0,
        )


Kernel: TypeAlias = GemmKernel | AluKernel

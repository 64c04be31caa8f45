"""What schedules know of the accelerator: its memories as scopes of buffers, and GEMM as a tensor intrinsic.

    on_chip = memories(VTA)
    weights = s.cache_read(filters, on_chip.wgt, [sums])
    s[sums].tensorize(b, gemm(VTA))

A buffer on the chip consists of tiles: its last two dimensions are those of a tile (``Config.tile_shape``). ``out`` is
no memory of its own: STORE reads the low bits of what acc holds.
"""

import functools
from dataclasses import dataclass

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.base import dtypes
from tilewright.loops.memory import Memory, Sharing
from tilewright.schedule.intrinsics import TensorIntrinsic, decl_tensor_intrin
from tilewright.symbolic.expr import Expr, cast
from tilewright.tensor.build import compute, placeholder, reduce_axis
from tilewright.tensor.ir import Reduction
from tilewright.tensor.reducers import sum as sum_of


@dataclass(frozen=True, slots=True)
class Memories:
    """The memories of a configuration."""

    inp: Memory
    wgt: Memory
    acc: Memory

    def pad(self, memory: Memory) -> Scratchpad | None:
        """The memory on the chip that a memory of buffers is; None for device memory."""
        return {self.inp: Scratchpad.INP, self.wgt: Scratchpad.WGT, self.acc: Scratchpad.ACC}.get(memory)


@functools.cache
def memories(config: Config) -> Memories:
    """The memories of ``config``: all of the accelerator shares them, and starts of buffers are tiles."""

    def memory(pad: Scratchpad) -> Memory:
        tile = config.tile_bytes(pad)
        return Memory(pad.name.lower(), config.depth(pad) * tile, Sharing.ALL, alignment=tile)

    return Memories(memory(Scratchpad.INP), memory(Scratchpad.WGT), memory(Scratchpad.ACC))


@functools.cache
def gemm(config: Config) -> TensorIntrinsic:
    """One micro-op of GEMM: a row of inp times a tile of wgt, added to a row of acc; its reset sets the row to 0."""
    inp_type, wgt_type = (dtypes.named(f"i{bits}") for bits in (config.inp_bits, config.wgt_bits))
    inp = placeholder(config.tile_shape(Scratchpad.INP), inp_type, "inp")
    wgt = placeholder(config.tile_shape(Scratchpad.WGT), wgt_type, "wgt")
    k = reduce_axis((0, config.block_in), name="k")

    def product(b: Expr, o: Expr) -> Reduction:
        return sum_of(cast(inp[b, k], dtypes.i32) * cast(wgt[o, k], dtypes.i32), axis=k)

    acc = compute(config.tile_shape(Scratchpad.ACC), product, name="acc")
    return decl_tensor_intrin(acc, "gemm", reset="gemm_reset", update="gemm_update")

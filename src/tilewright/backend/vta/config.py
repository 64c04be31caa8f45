"""The configuration of an accelerator: its blocks, the sizes of its memories, the widths of its numbers.

One frozen object is what simulators, encoders, the run-time compiler and hardware share. A *tile* is what a memory
holds at one address: an inp tile has (batch, block_in) elements, a wgt tile (block_out, block_in), acc and out tiles
(batch, block_out), and a uop tile is one micro-op. The design is that of VTA (Moreau et al., arXiv:1807.04188).
"""

import math
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Self

import numpy as np

from tilewright.base.errors import BadInput

MOST_TILES = 1 << 16
"""The address of a tile in LOAD and STORE has 16 bits."""
WIDTHS = (8, 16)
"""Bits of the elements of inp, wgt and out tiles."""
ACCUMULATOR_BITS = 32
VTA_OPERATIONS, ALL_OPERATIONS = 5, 6
"""Of ALU."""


class Explained(IntEnum):
    """Numbers of fields; ``text`` says in the manual what each means."""

    text: str

    def __new__(cls, value: int, text: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.text = text
        return member


class Scratchpad(Explained):
    """A memory on the chip, by its number in LOAD and STORE; ``text`` says what it holds."""

    UOP = 0, "Micro-ops."
    WGT = 1, "Weights: the right operand of GEMM."
    INP = 2, "The left operand of GEMM."
    ACC = 3, "Accumulators: the result of GEMM, and the operands and results of ALU."
    OUT = 4, "The accumulators again, each element cut to its low bits: what STORE reads."
    ACC8 = 5, "The accumulators again: LOAD reads elements of the width of out, and extends their sign."

    @property
    def storage(self) -> "Scratchpad":
        """The memory that holds its tiles: that of OUT and ACC8 is ACC."""
        return Scratchpad.ACC if self in (Scratchpad.OUT, Scratchpad.ACC8) else self


class Module(Enum):
    """A part of the accelerator that takes instructions from its own queue, in the order of the data flow."""

    LOAD = "load"
    COMPUTE = "compute"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration. Raises ``BadInput`` where sizes do not fit each other."""

    name: str
    batch: int = 1
    """Rows of inp, acc and out tiles."""
    block_in: int = 16
    block_out: int = 16
    inp_bits: int = 8
    wgt_bits: int = 8
    acc_bits: int = ACCUMULATOR_BITS
    out_bits: int = 8
    uop_bytes: int = 32 << 10
    inp_bytes: int = 32 << 10
    wgt_bytes: int = 256 << 10
    acc_bytes: int = 128 << 10
    uop_bits: int = 32
    instruction_bits: int = 128
    clock_mhz: int = 100
    alu_operations: int = VTA_OPERATIONS
    """The operations of ALU: the first so many of the instruction set. VTA has all but CLIP."""

    def __post_init__(self) -> None:
        for name in ("batch", "block_in", "block_out"):
            if not _is_power_of_two(value := getattr(self, name)):
                raise BadInput(f"{self.name}: {name}={value} is not a power of two; addresses are multiples of tiles")
        for name in ("inp_bits", "wgt_bits", "out_bits"):
            if (bits := getattr(self, name)) not in WIDTHS:
                raise BadInput(f"{self.name}: {name}={bits} is not supported; use one of {WIDTHS}")
        if self.acc_bits != ACCUMULATOR_BITS:
            raise BadInput(f"{self.name}: acc_bits={self.acc_bits} is not supported; use {ACCUMULATOR_BITS}")
        for name in ("uop_bits", "instruction_bits"):
            if not (_is_power_of_two(bits := getattr(self, name)) and bits >= 32):
                raise BadInput(f"{self.name}: {name}={bits} is not 32 or a larger power of two")
        for pad in (Scratchpad.UOP, Scratchpad.INP, Scratchpad.WGT, Scratchpad.ACC):
            self._check_size(pad)
        if self.alu_operations not in (VTA_OPERATIONS, ALL_OPERATIONS):
            raise BadInput(
                f"{self.name}: alu_operations={self.alu_operations}; ALU has {VTA_OPERATIONS} or {ALL_OPERATIONS}"
            )
        if self.clock_mhz < 1:
            raise BadInput(f"{self.name}: clock_mhz={self.clock_mhz} is not a frequency; use 1 or more")

    def _check_size(self, pad: Scratchpad) -> None:
        name, size = f"{pad.name.lower()}_bytes", self._bytes(pad)
        tile = self.tile_bytes(pad)
        if size < 2 * tile or size % tile or size // tile > MOST_TILES:
            raise BadInput(
                f"{self.name}: {name}={size} is not 2 to {MOST_TILES} tiles of {tile} bytes; change it or the blocks"
            )

    def _bytes(self, pad: Scratchpad) -> int:
        sizes = {Scratchpad.UOP: self.uop_bytes, Scratchpad.INP: self.inp_bytes, Scratchpad.WGT: self.wgt_bytes}
        return sizes.get(pad, self.acc_bytes)

    def tile_shape(self, pad: Scratchpad) -> tuple[int, ...]:
        """Elements of a tile along each dimension; a micro-op is one."""
        match pad:
            case Scratchpad.UOP:
                return ()
            case Scratchpad.INP:
                return self.batch, self.block_in
            case Scratchpad.WGT:
                return self.block_out, self.block_in
            case _:
                return self.batch, self.block_out

    def elements(self, pad: Scratchpad) -> int:
        """Elements of a tile."""
        return math.prod(self.tile_shape(pad))

    def element_bits(self, pad: Scratchpad) -> int:
        """Bits of an element of a tile in device memory."""
        match pad:
            case Scratchpad.UOP:
                return self.uop_bits
            case Scratchpad.INP:
                return self.inp_bits
            case Scratchpad.WGT:
                return self.wgt_bits
            case Scratchpad.ACC:
                return self.acc_bits
            case _:
                return self.out_bits

    def dtype(self, pad: Scratchpad) -> np.dtype[np.generic]:
        """NumPy's type of an element of a tile in device memory: signed, of micro-ops unsigned."""
        sign = "u" if pad is Scratchpad.UOP else "i"
        return np.dtype(f"<{sign}{self.element_bits(pad) // 8}")

    def tile_bytes(self, pad: Scratchpad) -> int:
        """Bytes of a tile in device memory, where its address is a multiple of them."""
        return math.prod(self.tile_shape(pad)) * self.element_bits(pad) // 8

    def depth(self, pad: Scratchpad) -> int:
        """Tiles that the memory holds."""
        return self._bytes(pad.storage) // self.tile_bytes(pad.storage)

    def index_bits(self, pad: Scratchpad) -> int:
        """Bits of the address of a tile."""
        return (self.depth(pad) - 1).bit_length()

    @property
    def alignment(self) -> int:
        """Bytes: the largest tile, so that an address that is a multiple of it is one of every tile."""
        return max(*(self.tile_bytes(pad) for pad in Scratchpad), self.instruction_bits // 8)

    @property
    def products(self) -> int:
        """Multiply-adds of one micro-op of GEMM."""
        return self.batch * self.block_in * self.block_out

    @property
    def peak_gops(self) -> float:
        """Operations in a nanosecond at one micro-op in a cycle, where a multiply-add is two."""
        return 2 * self.products * self.clock_mhz / 1000


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


OSDI = Config("osdi", wgt_bytes=32 << 10, clock_mhz=200)
"""The prototype of the paper on TVM (OSDI 2018): 102.4 GOPS."""
VTA = Config("vta")
"""VTA's default on a Pynq board: 51.2 GOPS."""
LARGE = Config("large", block_in=32, block_out=32, inp_bytes=64 << 10, wgt_bytes=1 << 20, acc_bytes=256 << 10)
"""As many tiles in each memory as VTA's default, each with twice the block: four times the products of a micro-op."""
CLIP = Config("clip", alu_operations=ALL_OPERATIONS)
"""VTA's default, and ALU clips to two limits at once, which VTA's has not."""
TINY = Config("tiny", block_in=4, block_out=4, uop_bytes=256, inp_bytes=256, wgt_bytes=1024, acc_bytes=1024)
"""Small enough for the simulator of hardware: 64 tiles in each memory, 16 products of a micro-op."""

PRESETS = {config.name: config for config in (OSDI, VTA, LARGE, CLIP)}

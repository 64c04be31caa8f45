"""The memory that instructions access: tiles on the chip, rows of bytes in device memory."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.assembly import text_of
from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import Alu, Columns, Finish, Gemm, Instruction, Load, Store
from tilewright.base.errors import OutOfBounds, ResourceLimit

Indices = NDArray[np.int64]

MOST_STEPS = 1 << 21
"""Micro-ops that the simulators run for one instruction: beyond it their arrays would take hundreds of megabytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Tiles of a memory on the chip; one may occur several times."""

    pad: Scratchpad
    tiles: Indices


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of bytes in device memory: where each starts (in ascending order), and the bytes of one."""

    starts: Indices
    size: int

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return self.size * len(self.starts)

    def overlap(self, other: "Rows") -> bool:
        """Whether a byte is in both."""
        if not self.bytes or not other.bytes:
            return False
        nearest = np.searchsorted(other.starts, self.starts - other.size, side="right")  # the first that ends later
        known = nearest < len(other.starts)
        return bool(np.any(other.starts[nearest[known]] < self.starts[known] + self.size))


NO_ROWS = Rows(np.empty(0, np.int64), 0)


@dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """What one instruction reads and writes."""

    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    fetched: Rows = NO_ROWS
    """Rows of device memory that are read."""
    stored: Rows = NO_ROWS
    """Rows of device memory that are written."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The tiles of each executed micro-op of GEMM or ALU, in order."""

    dst: Indices
    src: Indices
    wgt: Indices


def steps(instruction: Gemm | Alu, uops: Columns) -> Steps:
    """All executed micro-ops; ``uops`` are those of the instruction: (n, 3).

    Raises ``ResourceLimit`` for more than 2^21 of them.
    """
    if instruction.executions > MOST_STEPS:
        raise ResourceLimit(
            f"{text_of(instruction)}: runs {instruction.executions} micro-ops; an instruction is simulated up to "
            f"{MOST_STEPS} of them: split it"
        )
    outer = np.arange(instruction.outer, dtype=np.int64)[:, None, None]
    inner = np.arange(instruction.inner, dtype=np.int64)[None, :, None]
    wgt_outer, wgt_inner = (instruction.wgt_outer, instruction.wgt_inner) if isinstance(instruction, Gemm) else (0, 0)
    factors = (
        (instruction.dst_outer, instruction.dst_inner),
        (instruction.src_outer, instruction.src_inner),
        (wgt_outer, wgt_inner),
    )
    dst, src, wgt = (
        (uops[None, None, :, column] + outer * by_outer + inner * by_inner).ravel()
        for column, (by_outer, by_inner) in enumerate(factors)
    )
    return Steps(dst, src, wgt)


def rows_of(instruction: Load | Store, config: Config) -> Rows:
    """The rows in device memory of the rectangle of a LOAD or STORE."""
    if not instruction.rows or not instruction.columns:
        return NO_ROWS
    tile = config.tile_bytes(instruction.memory)
    starts = instruction.dram + np.arange(instruction.rows, dtype=np.int64) * instruction.stride
    return Rows(starts * tile, instruction.columns * tile)


def transfer_footprint(instruction: Load | Store, config: Config, memory_bytes: int) -> Footprint:
    """The accesses of a LOAD or STORE. Raises ``OutOfBounds``."""
    pad, end = instruction.memory.storage, instruction.sram + instruction.tiles
    if instruction.tiles:
        _require_inside(instruction, pad, end - 1, config)
    rows = rows_of(instruction, config)
    if rows.bytes and (last := int(rows.starts[-1]) + rows.size - 1) >= memory_bytes:
        raise OutOfBounds(
            f"{text_of(instruction)}: accesses bytes {rows.starts[0]} to {last} of device memory, which has "
            f"{memory_bytes} bytes"
        )
    region = Region(pad, np.arange(instruction.sram, end, dtype=np.int64))
    if isinstance(instruction, Load):
        return Footprint(writes=(region,), fetched=rows)
    return Footprint(reads=(region,), stored=rows)


def step_footprint(instruction: Gemm | Alu, taken: Steps, config: Config) -> Footprint:
    """The accesses of a GEMM or ALU, without its micro-ops. Raises ``OutOfBounds``."""
    dst = Region(Scratchpad.ACC, taken.dst)
    reads = _operands(instruction, taken, dst)
    for region in (dst, *reads):
        if len(region.tiles):
            _require_inside(instruction, region.pad, int(region.tiles.max()), config)
    return Footprint(reads=reads, writes=(dst,))


def _operands(instruction: Gemm | Alu, taken: Steps, dst: Region) -> tuple[Region, ...]:
    match instruction:
        case Gemm(reset=True):
            return ()
        case Gemm():
            return dst, Region(Scratchpad.INP, taken.src), Region(Scratchpad.WGT, taken.wgt)
        case Alu(use_immediate=True):
            return (dst,)
        case Alu():
            return dst, Region(Scratchpad.ACC, taken.src)


def require_uops(instruction: Gemm | Alu, config: Config) -> None:
    """Raises ``OutOfBounds`` if the instruction's micro-ops are outside of their memory."""
    if instruction.uop_end > (depth := config.depth(Scratchpad.UOP)):
        raise OutOfBounds(f"{text_of(instruction)}: accesses uop[{instruction.uop_end - 1}]; uop has {depth} tiles")


def _require_inside(instruction: Instruction, pad: Scratchpad, last: int, config: Config) -> None:
    if last >= (depth := config.depth(pad)):
        name = pad.name.lower()
        raise OutOfBounds(f"{text_of(instruction)}: accesses {name}[{last}]; {name} has {depth} tiles")


def moved_bytes(instruction: Instruction, config: Config) -> int:
    """Bytes that an instruction copies from or to device memory."""
    if isinstance(instruction, Gemm | Alu | Finish):
        return 0
    return instruction.rows * instruction.columns * config.tile_bytes(instruction.memory)

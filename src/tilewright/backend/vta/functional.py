"""The functional simulator: instructions run one after another, in NumPy, and what they moved and computed is counted.

    core = Core(config, memory)
    footprint = core.execute(instruction)      raises OutOfBounds, naming the instruction
    core.counters                              since the start, or the last reset

It defines what a program computes: hardware, and any order of the modules that tokens allow, must give the same bits.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.device_memory import DeviceMemory
from tilewright.backend.vta.fields import InvalidInstruction
from tilewright.backend.vta.footprints import (
    Footprint,
    Region,
    moved_bytes,
    require_uops,
    step_footprint,
    steps,
    transfer_footprint,
)
from tilewright.backend.vta.instructions import (
    NO_TOKENS,
    Alu,
    AluOperation,
    Columns,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    require_encodable,
    uop_columns,
)
from tilewright.backend.vta.plans import Level, Sums, levels_of, sums_of

Tiles = NDArray[np.generic]
Accumulators = NDArray[np.int32]

_EXACT_IN_F32 = 1 << 24
_MOST_PLANS = 512


@dataclass(frozen=True, slots=True)
class Counters:
    """What a program moved and computed."""

    loaded_uop: int = 0
    """Bytes of micro-ops from device memory; likewise for inp, wgt and acc (with acc8)."""
    loaded_inp: int = 0
    loaded_wgt: int = 0
    loaded_acc: int = 0
    stored: int = 0
    """Bytes of out to device memory."""
    gemm: int = 0
    """Micro-ops of GEMM that multiplied."""
    reset: int = 0
    """Micro-ops of GEMM that set accumulators to 0."""
    alu: int = 0
    """Micro-ops of ALU."""
    instructions: int = 0

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    @property
    def loaded(self) -> int:
        """Bytes from device memory."""
        return self.loaded_uop + self.loaded_inp + self.loaded_wgt + self.loaded_acc

    def __str__(self) -> str:
        return (
            f"{self.instructions} instructions; gemm {self.gemm}, reset {self.reset}, alu {self.alu} micro-ops\n"
            f"bytes: inp {self.loaded_inp}, wgt {self.loaded_wgt}, acc {self.loaded_acc}, uop {self.loaded_uop} "
            f"loaded, {self.stored} stored"
        )


def counted(instruction: Instruction, config: Config) -> Counters:
    """What one instruction moves and computes."""
    count, moved = Counters(instructions=1), moved_bytes(instruction, config)
    match instruction:
        case Load():
            return replace(count, **{f"loaded_{instruction.memory.storage.name.lower()}": moved})
        case Store():
            return replace(count, stored=moved)
        case Gemm(reset=True):
            return replace(count, reset=instruction.executions)
        case Gemm():
            return replace(count, gemm=instruction.executions)
        case Alu():
            return replace(count, alu=instruction.executions)
        case Finish():
            return count


def count(instructions: Iterable[Instruction], config: Config) -> Counters:
    """What a program moves and computes: it follows from the instructions alone."""
    return sum((counted(instruction, config) for instruction in instructions), Counters())


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    footprint: Footprint
    sums: tuple[Sums, ...] = ()
    levels: tuple[Level, ...] = ()


@dataclass(slots=True)
class Core:
    """The memories on the chip, and what instructions do to them. Raises ``BadInput`` for an unencodable ``config``."""

    config: Config
    memory: DeviceMemory
    counters: Counters = Counters()
    _pads: dict[Scratchpad, Tiles] = field(init=False)
    _plans: dict[tuple[Instruction, bytes], _Plan] = field(default_factory=dict[tuple[Instruction, bytes], _Plan])
    """Plans of instructions with their micro-ops: programs repeat both."""

    def __post_init__(self) -> None:
        require_encodable(self.config)
        stored = {pad.storage for pad in Scratchpad}
        self._pads = {pad: self._zeros(pad, self.config.depth(pad)) for pad in stored}

    def _zeros(self, pad: Scratchpad, tiles: int) -> Tiles:
        return np.zeros((tiles, *self.config.tile_shape(pad)), self.config.dtype(pad))

    def tiles(self, pad: Scratchpad) -> Tiles:
        """The tiles of a memory on the chip; those of OUT and ACC8 are cut to their width."""
        return self._pads[pad.storage].astype(self.config.dtype(pad))

    def execute(self, instruction: Instruction) -> Footprint:
        """Run one instruction; the memory that it accessed.

        Raises ``OutOfBounds``, with the instruction, before anything is changed; ``ResourceLimit`` for loops of GEMM or
        ALU that run for too long.
        """
        match instruction:
            case Load():
                footprint = self._load(instruction)
            case Store():
                footprint = self._store(instruction)
            case Gemm() | Alu():
                footprint = self._compute(instruction)
            case Finish():
                footprint = Footprint()
        self.counters += counted(instruction, self.config)
        return footprint

    def _load(self, instruction: Load) -> Footprint:
        footprint = transfer_footprint(instruction, self.config, self.memory.size)
        pad = instruction.memory
        height = instruction.pad_top + instruction.rows + instruction.pad_bottom
        block = self._zeros(pad, height * instruction.width).reshape(
            height, instruction.width, *self.config.tile_shape(pad)
        )
        if footprint.fetched.bytes:
            top, left = instruction.pad_top, instruction.pad_left
            inside = self._in_device_memory(instruction)[self._positions(instruction)]
            block[top : top + instruction.rows, left : left + instruction.columns] = inside
        end = instruction.sram + instruction.tiles
        self._pads[pad.storage][instruction.sram : end] = block.reshape(-1, *self.config.tile_shape(pad))
        return footprint

    def _store(self, instruction: Store) -> Footprint:
        footprint = transfer_footprint(instruction, self.config, self.memory.size)
        if footprint.stored.bytes:
            values = self._accumulators[instruction.sram : instruction.sram + instruction.tiles]
            narrow = values.astype(self.config.dtype(Scratchpad.OUT))
            positions = self._positions(instruction)
            self._in_device_memory(instruction)[positions] = narrow.reshape(*positions.shape, *narrow.shape[1:])
        return footprint

    def _in_device_memory(self, instruction: Load | Store) -> Tiles:
        """Device memory as tiles."""
        pad = instruction.memory
        whole = self.memory.size // self.config.tile_bytes(pad) * self.config.tile_bytes(pad)
        return self.memory.data[:whole].view(self.config.dtype(pad)).reshape(-1, *self.config.tile_shape(pad))

    @staticmethod
    def _positions(instruction: Load | Store) -> NDArray[np.int64]:
        """The tiles of the rectangle in device memory: (rows, columns)."""
        starts = instruction.dram + np.arange(instruction.rows, dtype=np.int64) * instruction.stride
        return starts[:, None] + np.arange(instruction.columns, dtype=np.int64)

    @property
    def _accumulators(self) -> Accumulators:
        return self._pads[Scratchpad.ACC].view(np.int32)

    def _compute(self, instruction: Gemm | Alu) -> Footprint:
        require_uops(instruction, self.config)
        if isinstance(instruction, Alu) and instruction.operation >= self.config.alu_operations:
            raise InvalidInstruction(f"{self.config.name} has no {instruction.operation.name}; its ALU is VTA's")
        words = self._pads[Scratchpad.UOP][instruction.uop_begin : instruction.uop_end]
        plan = self._plan(instruction, words)
        if isinstance(instruction, Alu):
            self._apply(instruction, plan.levels)
        elif instruction.reset:
            self._accumulators[plan.footprint.writes[0].tiles] = 0
        else:
            for sums in plan.sums:
                self._add(sums)
        return plan.footprint

    def _plan(self, instruction: Gemm | Alu, words: Tiles) -> _Plan:
        key = (replace(instruction, tokens=NO_TOKENS), words.tobytes())
        if key not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = self._new_plan(instruction, uop_columns(words, self.config))
        return self._plans[key]

    def _new_plan(self, instruction: Gemm | Alu, uops: Columns) -> _Plan:
        taken = steps(instruction, uops)
        footprint = _distinct(step_footprint(instruction, taken, self.config), instruction)
        match instruction:
            case Gemm(reset=True):
                return _Plan(footprint)
            case Gemm():
                return _Plan(footprint, sums=sums_of(taken))
            case Alu():
                return _Plan(footprint, levels=levels_of(taken, instruction.use_immediate))

    def _add(self, sums: Sums) -> None:
        """Exact: products are summed in floats of enough bits, and added modulo 2^32."""
        config, count = self.config, len(sums.wgt)
        most = count * config.block_in << (config.inp_bits + config.wgt_bits - 2)
        dtype = np.float32 if most <= _EXACT_IN_F32 else np.float64
        left = self._pads[Scratchpad.INP][sums.src].astype(dtype)  # (n, k, batch, block_in)
        rows = left.transpose(0, 2, 1, 3).reshape(-1, count * config.block_in)
        right = self._pads[Scratchpad.WGT][sums.wgt].astype(dtype)  # (k, block_out, block_in)
        columns = right.transpose(0, 2, 1).reshape(-1, config.block_out)
        products = (rows @ columns).astype(np.int64).astype(np.int32)
        self._accumulators[sums.dst] += products.reshape(-1, config.batch, config.block_out)

    def _apply(self, instruction: Alu, levels: tuple[Level, ...]) -> None:
        accumulators, immediate = self._accumulators, np.array(instruction.immediate, np.int32)
        for level in levels:
            second = immediate if instruction.use_immediate else accumulators[level.src]
            accumulators[level.dst] = apply(instruction.operation, accumulators[level.dst], second, self.config)


def _distinct(footprint: Footprint, instruction: Gemm | Alu) -> Footprint:
    """Each tile once; micro-ops are read, too."""
    uops = Region(Scratchpad.UOP, np.arange(instruction.uop_begin, instruction.uop_end, dtype=np.int64))
    reads, writes = (
        tuple(Region(region.pad, np.unique(region.tiles)) for region in regions)
        for regions in (footprint.reads, footprint.writes)
    )
    return Footprint((uops, *reads), writes)


def apply(operation: AluOperation, first: Accumulators, second: NDArray[np.int32], config: Config) -> Accumulators:
    """The elements that ALU writes."""
    match operation:
        case AluOperation.MIN:
            return np.minimum(first, second)
        case AluOperation.MAX:
            return np.maximum(first, second)
        case AluOperation.ADD:
            return first + second
        case AluOperation.SHR:
            return shifted(first, second)
        case AluOperation.MUL:
            narrow = config.dtype(Scratchpad.OUT)
            return first.astype(narrow).astype(np.int32) * second.astype(narrow).astype(np.int32)
        case AluOperation.CLIP:
            low, high = (part.astype(np.int8).astype(np.int32) for part in (second >> 8, second))
            return np.minimum(np.maximum(first, low), high)


def shifted(first: Accumulators, second: NDArray[np.int32]) -> Accumulators:
    """``floor(first / 2^second)`` modulo 2^32, for every ``second``."""
    counts = second.astype(np.int64)
    right = first >> np.clip(counts, 0, 31).astype(np.int32)
    left = (first.astype(np.int64) << np.clip(-counts, 0, 32)).astype(np.int32)
    return np.where(counts >= 0, right, left)

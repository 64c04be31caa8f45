"""What instructions mean, one tile and one micro-op at a time, in Python: independent of the simulator's plans."""

from dataclasses import dataclass, field

import numpy as np

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import Alu, AluOperation, Finish, Gemm, Instruction, Load, Store

UOP, WGT, INP, ACC, OUT, ACC8 = Scratchpad


def wrapped(value: np.ndarray, bits: int = 32) -> np.ndarray:
    """Modulo 2^bits, as signed numbers."""
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


@dataclass
class Oracle:
    config: Config
    dram: bytearray
    pads: dict[Scratchpad, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        self.pads = {
            pad: np.zeros((self.config.depth(pad), *self.config.tile_shape(pad)), np.int64)
            for pad in (UOP, WGT, INP, ACC)
        }

    def tile(self, pad: Scratchpad, number: int) -> np.ndarray:
        size, signed = self.config.tile_bytes(pad), pad is not UOP
        width = self.config.element_bits(pad) // 8
        data = self.dram[number * size : (number + 1) * size]
        values = [int.from_bytes(data[i : i + width], "little", signed=signed) for i in range(0, size, width)]
        return np.array(values, np.int64).reshape(self.config.tile_shape(pad))

    def execute(self, instruction: Instruction) -> None:
        match instruction:
            case Load():
                self._load(instruction)
            case Store():
                self._store(instruction)
            case Gemm() | Alu():
                self._compute(instruction)
            case Finish():
                pass

    def _load(self, load: Load) -> None:
        target = self.pads[ACC if load.memory is ACC8 else load.memory]
        position = load.sram
        for y in range(-load.pad_top, load.rows + load.pad_bottom):
            for x in range(-load.pad_left, load.columns + load.pad_right):
                inside = 0 <= y < load.rows and 0 <= x < load.columns
                target[position] = self.tile(load.memory, load.dram + y * load.stride + x) if inside else 0
                position += 1

    def _store(self, store: Store) -> None:
        size, width = self.config.tile_bytes(OUT), self.config.out_bits // 8
        position = store.sram
        for y in range(store.rows):
            for x in range(store.columns):
                start = (store.dram + y * store.stride + x) * size
                low = [int(v) % (1 << (8 * width)) for v in self.pads[ACC][position].ravel()]
                self.dram[start : start + size] = b"".join(v.to_bytes(width, "little") for v in low)
                position += 1

    def _compute(self, instruction: Gemm | Alu) -> None:
        acc, inp, wgt = self.pads[ACC], self.pads[INP], self.pads[WGT]
        for i in range(instruction.outer):
            for j in range(instruction.inner):
                for word in self.pads[UOP][instruction.uop_begin : instruction.uop_end]:
                    to, source, weight = self._fields(int(word))
                    to += i * instruction.dst_outer + j * instruction.dst_inner
                    source += i * instruction.src_outer + j * instruction.src_inner
                    if isinstance(instruction, Alu):
                        other = instruction.immediate if instruction.use_immediate else acc[source]
                        acc[to] = self._operation(instruction.operation, acc[to], np.broadcast_to(other, acc[to].shape))
                    elif instruction.reset:
                        acc[to] = 0
                    else:
                        weight += i * instruction.wgt_outer + j * instruction.wgt_inner
                        acc[to] = wrapped(acc[to] + inp[source] @ wgt[weight].T)

    def _fields(self, word: int) -> tuple[int, int, int]:
        depths = [self.config.depth(ACC), max(self.config.depth(INP), self.config.depth(ACC)), self.config.depth(WGT)]
        found: list[int] = []
        for depth in depths:
            size = 1 << int(np.ceil(np.log2(depth)))
            found.append(word % size)
            word //= size
        return found[0], found[1], found[2]

    def _operation(self, operation: AluOperation, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        match operation:
            case AluOperation.MIN:
                return np.where(x < y, x, y)
            case AluOperation.MAX:
                return np.where(x > y, x, y)
            case AluOperation.ADD:
                return wrapped(x + y)
            case AluOperation.SHR:
                return np.array([_shifted(int(a), int(b)) for a, b in zip(x.flat, y.flat, strict=True)]).reshape(
                    x.shape
                )
            case AluOperation.MUL:
                bits = self.config.out_bits
                return wrapped(wrapped(x, bits) * wrapped(y, bits))
            case AluOperation.CLIP:
                return np.clip(x, wrapped(y // 256, 8), None).clip(None, wrapped(y, 8))


def _shifted(value: int, count: int) -> int:
    """All bits of a number of 32 bits are gone after 40 places; to the right its sign is left."""
    whole = value // 2 ** min(count, 40) if count >= 0 else value * 2 ** min(-count, 40)
    return (whole + (1 << 31)) % (1 << 32) - (1 << 31)

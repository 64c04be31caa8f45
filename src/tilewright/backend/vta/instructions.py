"""The instruction set: LOAD, STORE, GEMM, ALU, FINISH, and micro-ops. Each class is the description of its fields.

An instruction goes to the queue of its module: LOAD of inp and wgt to load, STORE to store, all others to compute. Each
module runs its queue in order. Between neighbours (load and compute, compute and store) there are two queues of tokens,
one in each direction: an instruction first takes a token from each queue that it pops from, waiting for it, and at its
end puts one into each that it pushes to. What a program computes is defined by running it in the order of its
instructions, one after another; ``hazards`` checks that tokens make every other order of the modules equal to it.

GEMM and ALU run their micro-ops ``outer * inner`` times::

    for i in range(outer):
        for j in range(inner):
            for uop in uops[uop_begin:uop_end]:
                dst = uop.dst + i * dst_outer + j * dst_inner    # likewise src and wgt

GEMM adds ``inp[src] @ wgt[wgt].T`` to ``acc[dst]``, modulo 2^32. ALU writes ``acc[dst] = f(acc[dst], acc[src])``.
"""

import functools
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.config import Config, Explained, Module, Scratchpad
from tilewright.backend.vta.fields import Bits, Index, InvalidInstruction, Placed, layout, packed, unpacked

OPCODE_BITS = 3


class Opcode(IntEnum):
    """The first bits of an instruction."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class AluOperation(Explained):
    """What ALU computes from ``x`` (``acc[dst]``) and ``y`` (``acc[src]`` or the immediate), modulo 2^32: ``text``."""

    MIN = 0, "`min(x, y)`"
    MAX = 1, "`max(x, y)`"
    ADD = 2, "`x + y`"
    SHR = (
        3,
        "`floor(x / 2^y)`; a negative `y` shifts to the left. By 32 or more, no bit is left.",
    )
    MUL = 4, "`x * y` of the low bits of both, as many as an element of out has, as signed numbers."
    CLIP = (
        5,
        "`min(max(x, low), high)`: the lowest byte of `y` is `high` and the next one `low`, both signed. Only with "
        "`alu_operations=6`.",
    )


@dataclass(frozen=True, slots=True)
class Tokens:
    """The queues of tokens that an instruction pops from and pushes to."""

    pop_previous: Annotated[bool, Bits(1, "Wait for a token of the previous module (of load, of compute).")] = False
    pop_next: Annotated[bool, Bits(1, "Wait for a token of the next module (of compute, of store).")] = False
    push_previous: Annotated[bool, Bits(1, "At the end, give a token to the previous module.")] = False
    push_next: Annotated[bool, Bits(1, "At the end, give a token to the next module.")] = False


NO_TOKENS = Tokens()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Copy a rectangle of tiles from device memory to a memory on the chip, and put tiles of zeros around it.

    The tiles are written one after another, from ``sram`` on: ``pad_top`` rows of zeros, then ``rows`` rows of
    ``pad_left`` zeros, ``columns`` tiles and ``pad_right`` zeros, then ``pad_bottom`` rows of zeros; the rows of zeros
    have ``pad_left + columns + pad_right`` tiles. A rectangle without tiles only passes tokens.
    """

    opcode: ClassVar[Opcode] = Opcode.LOAD
    tokens: Tokens = NO_TOKENS
    memory: Annotated[Scratchpad, Bits(3, "The memory on the chip.")]
    sram: Annotated[int, Bits(16, "The first tile on the chip.")] = 0
    dram: Annotated[int, Bits(32, "The first tile in device memory: its address divided by the size of a tile.")] = 0
    rows: Annotated[int, Bits(16, "Rows of the rectangle.", upper=True)] = 1
    columns: Annotated[int, Bits(16, "Tiles of a row.")] = 1
    stride: Annotated[int, Bits(16, "Tiles from a row to the next one in device memory.")] = 0
    pad_top: Annotated[int, Bits(4, "Rows of zeros before.")] = 0
    pad_bottom: Annotated[int, Bits(4, "Rows of zeros after.")] = 0
    pad_left: Annotated[int, Bits(4, "Tiles of zeros before each row.")] = 0
    pad_right: Annotated[int, Bits(4, "Tiles of zeros after each row.")] = 0

    def __post_init__(self) -> None:
        if self.memory is Scratchpad.OUT:
            raise InvalidInstruction("LOAD: out is written by compute only; load to acc or acc8")
        _require_neighbours(self.opcode, self.module, self.tokens)

    @property
    def module(self) -> Module:
        """The module that runs it."""
        return Module.LOAD if self.memory in (Scratchpad.INP, Scratchpad.WGT) else Module.COMPUTE

    @property
    def width(self) -> int:
        """Tiles of a row on the chip."""
        return self.pad_left + self.columns + self.pad_right

    @property
    def tiles(self) -> int:
        """Tiles that are written on the chip."""
        return (self.pad_top + self.rows + self.pad_bottom) * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Copy tiles of out, from ``sram`` on, to a rectangle in device memory. One without tiles only passes tokens."""

    opcode: ClassVar[Opcode] = Opcode.STORE
    module: ClassVar[Module] = Module.STORE
    tokens: Tokens = NO_TOKENS
    memory: Annotated[Scratchpad, Bits(3, "The memory on the chip: out.")] = Scratchpad.OUT
    sram: Annotated[int, Bits(16, "The first tile on the chip.")] = 0
    dram: Annotated[int, Bits(32, "The first tile in device memory: its address divided by the size of a tile.")] = 0
    rows: Annotated[int, Bits(16, "Rows of the rectangle.", upper=True)] = 1
    columns: Annotated[int, Bits(16, "Tiles of a row.")] = 1
    stride: Annotated[int, Bits(16, "Tiles from a row to the next one in device memory.")] = 0

    def __post_init__(self) -> None:
        if self.memory is not Scratchpad.OUT:
            raise InvalidInstruction(f"STORE: {self.memory.name.lower()} can't be stored; only out can")
        _require_neighbours(self.opcode, self.module, self.tokens)

    @property
    def tiles(self) -> int:
        """Tiles that are copied."""
        return self.rows * self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """Multiply tiles and add the products to accumulators, or (``reset``) set these to 0."""

    opcode: ClassVar[Opcode] = Opcode.GEMM
    module: ClassVar[Module] = Module.COMPUTE
    tokens: Tokens = NO_TOKENS
    reset: Annotated[bool, Bits(1, "Set the accumulators to 0 instead; nothing is read.")] = False
    uop_begin: Annotated[int, Bits(Index(Scratchpad.UOP), "The first micro-op.")] = 0
    uop_end: Annotated[int, Bits(Index(Scratchpad.UOP, extra=1), "The end of the micro-ops.")] = 1
    outer: Annotated[int, Bits(14, "Iterations of the outer loop.")] = 1
    inner: Annotated[int, Bits(14, "Iterations of the inner loop.")] = 1
    dst_outer: Annotated[int, Bits(Index(Scratchpad.ACC), "Added to dst by the outer loop.", upper=True)] = 0
    dst_inner: Annotated[int, Bits(Index(Scratchpad.ACC), "Added to dst by the inner loop.")] = 0
    src_outer: Annotated[int, Bits(Index(Scratchpad.INP), "Added to src by the outer loop.")] = 0
    src_inner: Annotated[int, Bits(Index(Scratchpad.INP), "Added to src by the inner loop.")] = 0
    wgt_outer: Annotated[int, Bits(Index(Scratchpad.WGT), "Added to wgt by the outer loop.")] = 0
    wgt_inner: Annotated[int, Bits(Index(Scratchpad.WGT), "Added to wgt by the inner loop.")] = 0

    @property
    def executions(self) -> int:
        """Micro-ops that run."""
        return max(0, self.uop_end - self.uop_begin) * self.outer * self.inner


@dataclass(frozen=True, slots=True, kw_only=True)
class Alu:
    """Apply an operation to accumulators, one element at a time, micro-op after micro-op."""

    opcode: ClassVar[Opcode] = Opcode.ALU
    module: ClassVar[Module] = Module.COMPUTE
    tokens: Tokens = NO_TOKENS
    uop_begin: Annotated[int, Bits(Index(Scratchpad.UOP), "The first micro-op.")] = 0
    uop_end: Annotated[int, Bits(Index(Scratchpad.UOP, extra=1), "The end of the micro-ops.")] = 1
    outer: Annotated[int, Bits(14, "Iterations of the outer loop.")] = 1
    inner: Annotated[int, Bits(14, "Iterations of the inner loop.")] = 1
    dst_outer: Annotated[int, Bits(Index(Scratchpad.ACC), "Added to dst by the outer loop.", upper=True)] = 0
    dst_inner: Annotated[int, Bits(Index(Scratchpad.ACC), "Added to dst by the inner loop.")] = 0
    src_outer: Annotated[int, Bits(Index(Scratchpad.ACC), "Added to src by the outer loop.")] = 0
    src_inner: Annotated[int, Bits(Index(Scratchpad.ACC), "Added to src by the inner loop.")] = 0
    operation: Annotated[AluOperation, Bits(3, "The operation.")] = AluOperation.ADD
    use_immediate: Annotated[bool, Bits(1, "Whether the second operand is the immediate.")] = False
    immediate: Annotated[int, Bits(16, "The immediate.", signed=True)] = 0

    @property
    def executions(self) -> int:
        """Micro-ops that run."""
        return max(0, self.uop_end - self.uop_begin) * self.outer * self.inner


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Tell the host that the program has ended. It is the last instruction; stores must have ended before it."""

    opcode: ClassVar[Opcode] = Opcode.FINISH
    module: ClassVar[Module] = Module.COMPUTE
    tokens: Tokens = NO_TOKENS


@dataclass(frozen=True, slots=True)
class Uop:
    """A micro-op: the tiles of one step. ALU has no ``wgt``, and its ``src`` is an accumulator."""

    dst: Annotated[int, Bits(Index(Scratchpad.ACC), "The accumulator that is written.")] = 0
    src: Annotated[
        int, Bits(Index(Scratchpad.INP, Scratchpad.ACC), "The inp tile of GEMM, the accumulator of ALU.")
    ] = 0
    wgt: Annotated[int, Bits(Index(Scratchpad.WGT), "The wgt tile of GEMM.")] = 0


Instruction: TypeAlias = Load | Store | Gemm | Alu | Finish
Columns: TypeAlias = NDArray[np.int64]
"""Micro-ops as an array: (n, 3) of dst, src, wgt."""

FORMS: tuple[type[Instruction], ...] = (Load, Store, Gemm, Alu, Finish)
_BY_OPCODE = {form.opcode: form for form in FORMS}
OPCODE_MASK = (1 << OPCODE_BITS) - 1


def _require_neighbours(opcode: Opcode, module: Module, tokens: Tokens) -> None:
    if module is Module.LOAD and (tokens.pop_previous or tokens.push_previous):
        raise InvalidInstruction(
            f"{opcode.name}: load has no previous module; its tokens are those of compute, the next"
        )
    if module is Module.STORE and (tokens.pop_next or tokens.push_next):
        raise InvalidInstruction(
            f"{opcode.name}: store has no next module; its tokens are those of compute, the previous"
        )


def places(form: type[Instruction], config: Config) -> tuple[Placed, ...]:
    """The fields of an instruction, after its opcode. Raises ``BadInput`` if ``config`` has no room for them."""
    return layout(form, config, OPCODE_BITS, config.instruction_bits)


def uop_places(config: Config) -> tuple[Placed, ...]:
    """The fields of a micro-op. Raises ``BadInput`` if ``config`` has no room for them."""
    return layout(Uop, config, 0, config.uop_bits)


def require_encodable(config: Config) -> None:
    """Raises ``BadInput`` if instructions or micro-ops have no room for the addresses of ``config``."""
    uop_places(config)
    for form in FORMS:
        places(form, config)


def encode(instruction: Instruction, config: Config) -> bytes:
    """Its bytes, little-endian. Raises ``UnencodableField``, with the field's name and width."""
    word = instruction.opcode | packed(instruction, places(type(instruction), config))
    return word.to_bytes(config.instruction_bits // 8, "little")


def decode(data: bytes, config: Config) -> Instruction:
    """The instruction of some bytes. Raises ``InvalidInstruction`` if they are none."""
    if len(data) != config.instruction_bits // 8:
        raise InvalidInstruction(f"an instruction has {config.instruction_bits // 8} bytes, not {len(data)}")
    word = int.from_bytes(data, "little")
    form = _BY_OPCODE.get(cast(Opcode, word & OPCODE_MASK))
    if form is None:
        known = ", ".join(f"{code.name} {code.value}" for code in Opcode)
        raise InvalidInstruction(f"opcode {word & OPCODE_MASK} is unknown; known are {known}")
    arguments = unpacked(form, word & ~OPCODE_MASK, places(form, config))
    return form(**arguments)  # pyright: ignore[reportArgumentType]  of the fields' types


def encode_program(instructions: tuple[Instruction, ...], config: Config) -> bytes:
    """The bytes of instructions, one after another. Raises ``UnencodableField``."""
    return b"".join(encode(instruction, config) for instruction in instructions)


def decode_program(data: bytes, config: Config) -> tuple[Instruction, ...]:
    """The instructions of some bytes. Raises ``InvalidInstruction``."""
    size = config.instruction_bits // 8
    return tuple(decode(data[start : start + size], config) for start in range(0, len(data), size))


@functools.lru_cache(maxsize=1024)
def encode_uops(uops: tuple[Uop, ...], config: Config) -> bytes:
    """The bytes of micro-ops. Raises ``UnencodableField``."""
    fields = uop_places(config)
    words = [packed(uop, fields) for uop in uops]
    return np.array(words, config.dtype(Scratchpad.UOP)).tobytes()


def uop_columns(words: NDArray[np.generic], config: Config) -> Columns:
    """The fields of encoded micro-ops: (n, 3)."""
    wide = words.astype(np.uint64)
    shifted = [(wide >> np.uint64(place.shift)) & np.uint64(place.mask) for place in uop_places(config)]
    return np.stack(shifted, axis=-1).astype(np.int64)

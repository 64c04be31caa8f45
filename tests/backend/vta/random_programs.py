"""Random instructions that stay inside of all memories, for small configurations."""

from random import Random

import numpy as np

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import Alu, AluOperation, Gemm, Instruction, Load, Store, Uop, encode_uops

MEMORY = 1 << 13
CONFIGS = (
    Config("one", 1, 4, 4, uop_bytes=128, inp_bytes=128, wgt_bytes=256, acc_bytes=512, alu_operations=6),
    Config("rows", 2, 4, 2, uop_bytes=128, inp_bytes=128, wgt_bytes=128, acc_bytes=256),
    Config(
        "wide",
        1,
        2,
        4,
        inp_bits=16,
        wgt_bits=16,
        out_bits=16,
        uop_bytes=64,
        inp_bytes=128,
        wgt_bytes=256,
        acc_bytes=512,
    ),
)


def random_memory(random: Random, config: Config) -> tuple[np.ndarray, tuple[Uop, ...]]:
    """Random bytes, often extreme, that begin with encoded micro-ops; and these."""
    generator = np.random.default_rng(random.randrange(1 << 32))
    data = generator.integers(0, 256, MEMORY).astype(np.uint8)
    extremes = generator.random(MEMORY) < 0.3
    data[extremes] = generator.choice(np.array([0, 1, 127, 128, 255], np.uint8), int(extremes.sum()))
    uops = tuple(random_uop(random, config) for _ in range(config.depth(Scratchpad.UOP)))
    encoded = np.frombuffer(encode_uops(uops, config), np.uint8)
    data[: len(encoded)] = encoded
    return data, uops


def random_uop(random: Random, config: Config) -> Uop:
    """A micro-op in the lower half of each memory: loops add to it."""
    return Uop(*(random.randrange(config.depth(pad) // 2) for pad in (Scratchpad.ACC, Scratchpad.INP, Scratchpad.WGT)))


def random_program(random: Random, config: Config, uops: tuple[Uop, ...]) -> list[Instruction]:
    """Loads of everything, then a mixture, then a store of all accumulators."""
    depth = config.depth(Scratchpad.ACC)
    program: list[Instruction] = [Load(memory=Scratchpad.UOP, columns=len(uops))]
    program += [random_load(random, config, pad) for pad in (Scratchpad.INP, Scratchpad.WGT, Scratchpad.ACC)]
    for _ in range(random.randint(3, 8)):
        program.append(
            random.choice((random_load_of_any, random_gemm, random_gemm, random_alu, random_alu, random_store))(
                random, config, uops
            )
        )
    return [*program, Store(columns=depth, dram=MEMORY // config.tile_bytes(Scratchpad.OUT) - depth)]


def random_load_of_any(random: Random, config: Config, _: tuple[Uop, ...]) -> Load:
    pads = (Scratchpad.INP, Scratchpad.WGT, Scratchpad.ACC, Scratchpad.ACC8)
    return random_load(random, config, random.choice(pads))


def random_load(random: Random, config: Config, pad: Scratchpad) -> Load:
    """A rectangle with zeros around it, perhaps without tiles."""
    depth = config.depth(pad)
    while True:
        pads = [random.choice((0, 0, 1, 2)) for _ in range(4)]
        rows, columns, stride = random.randint(0, 4), random.randint(0, 5), random.randint(0, 7)
        tiles = (pads[0] + rows + pads[1]) * (pads[2] + columns + pads[3])
        if tiles <= depth:
            break
    last = MEMORY // config.tile_bytes(pad) - max(0, rows - 1) * stride - columns
    return Load(
        memory=pad,
        sram=random.randint(0, depth - tiles),
        dram=random.randint(0, last),
        rows=rows,
        columns=columns,
        stride=stride,
        pad_top=pads[0],
        pad_bottom=pads[1],
        pad_left=pads[2],
        pad_right=pads[3],
    )


def random_store(random: Random, config: Config, _: tuple[Uop, ...]) -> Store:
    """Rows that do not overlap; not where micro-ops are."""
    rows, columns = random.randint(0, 3), random.randint(0, 4)
    stride = columns + random.randint(0, 3)
    end = MEMORY // config.tile_bytes(Scratchpad.OUT) - rows * stride - columns
    return Store(
        sram=random.randint(0, config.depth(Scratchpad.ACC) - rows * columns),
        dram=random.randint(end // 2, end),
        rows=rows,
        columns=columns,
        stride=stride,
    )


def _range(random: Random, uops: tuple[Uop, ...]) -> tuple[int, int]:
    begin = random.randrange(len(uops))
    return begin, random.randint(begin, min(len(uops), begin + 9))


def _factors(random: Random, config: Config, pad: Scratchpad, outer: int, inner: int) -> tuple[int, int]:
    """What loops may add to an address in the lower half of a memory."""
    room = config.depth(pad) // 2 - 1
    by_outer = random.randint(0, room // max(1, outer - 1) if outer > 1 else room)
    left = room - by_outer * max(0, outer - 1)
    return by_outer, random.randint(0, left // max(1, inner - 1))


def random_gemm(random: Random, config: Config, uops: tuple[Uop, ...]) -> Gemm:
    begin, end = _range(random, uops)
    outer, inner = random.randint(0, 4), random.randint(1, 4)
    dst, src, wgt = (
        _factors(random, config, pad, outer, inner) for pad in (Scratchpad.ACC, Scratchpad.INP, Scratchpad.WGT)
    )
    return Gemm(
        reset=random.random() < 0.2,
        uop_begin=begin,
        uop_end=end,
        outer=outer,
        inner=inner,
        dst_outer=dst[0],
        dst_inner=dst[1],
        src_outer=src[0],
        src_inner=src[1],
        wgt_outer=wgt[0],
        wgt_inner=wgt[1],
    )


def random_alu(random: Random, config: Config, uops: tuple[Uop, ...]) -> Alu:
    begin, end = _range(random, uops)
    outer, inner = random.randint(0, 4), random.randint(1, 4)
    shallow = min((Scratchpad.ACC, Scratchpad.INP), key=config.depth)
    dst = _factors(random, config, Scratchpad.ACC, outer, inner)
    src = _factors(random, config, shallow, outer, inner)
    operation = random.choice(list(AluOperation)[: config.alu_operations])
    immediates = range(-40, 41) if operation is AluOperation.SHR else (-32768, -1, 0, 1, 7, 255, 32767)
    return Alu(
        operation=operation,
        uop_begin=begin,
        uop_end=end,
        outer=outer,
        inner=inner,
        dst_outer=dst[0],
        dst_inner=dst[1],
        src_outer=src[0],
        src_inner=src[1],
        use_immediate=random.random() < 0.5,
        immediate=random.choice(immediates),
    )

"""The functional simulator: random programs equal a Python evaluation, counters, and accesses outside of memories."""

from random import Random

import numpy as np
import pytest

from tests.backend.vta.oracle import ACC, Oracle
from tests.backend.vta.random_programs import CONFIGS, MEMORY, random_memory, random_program
from tilewright.backend.vta.config import VTA, Scratchpad
from tilewright.backend.vta.device_memory import DeviceMemory
from tilewright.backend.vta.functional import Core, Counters, count, shifted
from tilewright.backend.vta.instructions import (
    Alu,
    AluOperation,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    Uop,
    encode_uops,
)
from tilewright.base.errors import BadInput, OutOfBounds, OutOfMemory, ResourceLimit

SHARDS = [*range(3), *(pytest.param(shard, marks=pytest.mark.slow) for shard in range(3, 100))]
EACH = 20


@pytest.mark.parametrize("shard", SHARDS)
def test_random_programs_equal_a_python_evaluation(shard: int) -> None:
    random = Random(shard)
    for number in range(EACH):
        config = CONFIGS[number % len(CONFIGS)]
        data, uops = random_memory(random, config)
        program = random_program(random, config, uops)
        core, oracle = new_core(config, data), Oracle(config, bytearray(data.tobytes()))
        for instruction in program:
            core.execute(instruction)
            oracle.execute(instruction)
            np.testing.assert_array_equal(core.tiles(ACC), oracle.pads[ACC], err_msg=str(instruction))
        assert core.memory.data.tobytes() == bytes(oracle.dram)
        assert core.counters == count(program, config)


def new_core(config=VTA, data: np.ndarray | None = None) -> Core:
    memory = DeviceMemory(MEMORY if data is None else len(data), config.alignment)
    if data is not None:
        memory.data[:] = data
    return Core(config, memory)


def with_uops(*uops: Uop) -> Core:
    """A core of VTA's configuration, with these micro-ops."""
    core = new_core()
    core.memory.write(0, encode_uops(uops, core.config))
    core.execute(Load(memory=Scratchpad.UOP, columns=len(uops)))
    return core


def test_products_that_floats_of_32_bits_cannot_hold_are_exact() -> None:
    """1,200 products of 16 x 127 x 127 are more than 2^24, and end in an odd number."""
    core = with_uops(*(Uop(0, src, 0) for src in range(1200)))
    core.memory.write(4096, np.full(256, 127, np.int8).tobytes())
    core.execute(Load(memory=Scratchpad.WGT, dram=16))
    for row in range(0, 1200, 100):
        core.execute(Load(memory=Scratchpad.INP, sram=row, dram=256, rows=100, columns=1))
    core.memory.write(4096, np.ones(16, np.int8).tobytes())
    core.execute(Load(memory=Scratchpad.INP, sram=0, dram=256))
    core.execute(Gemm(uop_end=1200))
    assert core.tiles(Scratchpad.ACC)[0].tolist() == [[16 * (1199 * 127 * 127 + 127)] * 16]


def test_sums_wrap() -> None:
    core = with_uops(Uop(0, 1))
    core.memory.write(4096, np.full(16, 2**31 - 1, np.int32).tobytes())
    core.execute(Load(memory=Scratchpad.ACC, dram=64))
    core.execute(Alu(operation=AluOperation.ADD, use_immediate=True, immediate=2))
    assert core.tiles(Scratchpad.ACC)[0, 0, 0] == -(2**31) + 1


@pytest.mark.parametrize("count", [-100, -33, -32, -31, -1, 0, 1, 31, 32, 100, 2**31 - 1, -(2**31)])
def test_shifts_are_defined_for_every_count(count: int) -> None:
    values = np.array([-(2**31), -3, -1, 0, 1, 5, 2**31 - 1], np.int32)
    exact = [int(v) >> min(count, 40) if count >= 0 else int(v) << min(-count, 40) for v in values]
    expected = [(v + 2**31) % 2**32 - 2**31 for v in exact]
    assert shifted(values, np.full(7, count, np.int32)).tolist() == expected


def test_a_chain_through_accumulators_is_run_one_by_one() -> None:
    """acc[i + 1] += acc[i], four times: each reads what the one before wrote."""
    core = with_uops(Uop(1, 0))
    core.memory.write(4096, np.arange(1, 81, dtype=np.int32).repeat(1).tobytes())
    core.execute(Load(memory=Scratchpad.ACC, dram=64, columns=5))
    before = core.tiles(Scratchpad.ACC)[:5].astype(np.int64)
    core.execute(Alu(operation=AluOperation.ADD, outer=4, dst_outer=1, src_outer=1))
    np.testing.assert_array_equal(core.tiles(Scratchpad.ACC)[:5], np.cumsum(before, axis=0))


def test_what_a_store_writes_has_the_low_bits() -> None:
    core = with_uops(Uop())
    core.execute(Alu(operation=AluOperation.ADD, use_immediate=True, immediate=0x1FE))
    core.execute(Store(dram=100))
    assert core.memory.read(1600, 16) == bytes([0xFE]) * 16
    core.execute(Load(memory=Scratchpad.ACC8, dram=100, sram=7))
    assert core.tiles(Scratchpad.ACC)[7].tolist() == [[-2] * 16]


OUTSIDE: list[tuple[Instruction, str]] = [
    (
        Load(memory=Scratchpad.INP, dram=511, columns=2),
        "accesses bytes 8176 to 8207 of device memory, which has 8192 bytes",
    ),
    (Load(memory=Scratchpad.WGT, dram=30, rows=2, stride=9), "accesses bytes 7680 to 10239 of device memory"),
    (Load(memory=Scratchpad.INP, sram=2047, pad_left=1), r"LOAD inp sram=2047 pad_left=1: accesses inp\[2048\]"),
    (Store(sram=2047, columns=2), r"STORE out sram=2047 columns=2: accesses acc\[2048\]; acc has 2048 tiles"),
    (Store(dram=512), "STORE out dram=512: accesses bytes"),
    (Load(memory=Scratchpad.INP, rows=65535, columns=65535, pad_left=15), r"accesses inp\[4295819249\]; inp has 2048"),
    (Gemm(uop_begin=8191, uop_end=8193), r"accesses uop\[8192\]; uop has 8192 tiles"),
    (Gemm(outer=2, wgt_outer=1023, inner=3, wgt_inner=1), r"accesses wgt\[1025\]"),
    (Gemm(reset=True, outer=3, dst_outer=1024), r"GEMM reset outer=3 dst_outer=1024: accesses acc\[2048\]"),
    (Alu(outer=3, src_outer=1024), r"ALU add outer=3 src_outer=1024: accesses acc\[2048\]"),
]


@pytest.mark.parametrize(("instruction", "told"), OUTSIDE, ids=lambda item: item if isinstance(item, str) else "")
def test_accesses_outside_of_memories_name_the_instruction(instruction: Instruction, told: str) -> None:
    core = new_core()
    with pytest.raises(OutOfBounds, match=told):
        core.execute(instruction)
    assert core.counters == Counters()


def test_loops_that_run_for_too_long_are_refused() -> None:
    """They stay inside of all memories: a device would run them for minutes."""
    for instruction in (Gemm(uop_end=8192, outer=16383, inner=16383), Alu(uop_end=8192, outer=16383, inner=16383)):
        with pytest.raises(
            ResourceLimit, match="runs 2198754828288 micro-ops; an instruction is simulated up to 2097152"
        ):
            new_core().execute(instruction)


def test_counters() -> None:
    program: list[Instruction] = [
        Load(memory=Scratchpad.UOP, columns=3),
        Load(memory=Scratchpad.INP, rows=2, columns=3, stride=3, pad_top=1),
        Load(memory=Scratchpad.WGT, columns=2),
        Load(memory=Scratchpad.ACC, columns=2),
        Load(memory=Scratchpad.ACC8, columns=2),
        Gemm(reset=True, uop_end=3),
        Gemm(uop_end=3, outer=4, inner=5),
        Alu(uop_end=2, outer=7),
        Store(rows=2, columns=2, dram=300, stride=2),
        Finish(),
    ]
    core = new_core()
    for instruction in program:
        core.execute(instruction)
    expected = Counters(12, 96, 512, 128 + 32, 64, gemm=60, reset=3, alu=14, instructions=10)
    assert core.counters == expected
    assert expected.loaded == 12 + 96 + 512 + 160


def test_device_memory_gives_blocks_that_do_not_overlap() -> None:
    memory = DeviceMemory(4096, 256)
    first, second, third = (memory.allocate(size) for size in (1, 300, 256))
    assert (first, second, third) == (256, 512, 1024)
    memory.free(second)
    assert memory.allocate(512) == second
    assert memory.allocate(1) == 1280
    with pytest.raises(OutOfMemory, match="a block of 4000 bytes does not fit the device"):
        memory.allocate(4000)
    with pytest.raises(BadInput, match="no block of the device starts at 300"):
        memory.free(300)
    with pytest.raises(OutOfBounds, match="bytes 4090 to 4099 are not in the device's memory of 4096 bytes"):
        memory.read(4090, 10)

"""The hardware in Amaranth's simulator: bit by bit what the functional simulator computes, and its cycles."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from amaranth.hdl import Const, Value
from amaranth.hdl import Module as Hardware
from amaranth.sim import Simulator, SimulatorContext

from tests.backend.vta.linked import random_arrays
from tests.backend.vta.random_programs import CONFIGS
from tests.backend.vta.rtl.synchronized import CODE, SIZE, new_core, random_case
from tilewright.backend.vta import VTA, Recorder, Report, Runtime, Scratchpad, SimulatedDevice, Timing, simulate
from tilewright.backend.vta.config import Config, Module
from tilewright.backend.vta.convolution import Convolution, convolution_program, tilings
from tilewright.backend.vta.functional import count
from tilewright.backend.vta.instructions import (
    FORMS,
    Alu,
    AluOperation,
    Finish,
    Gemm,
    Instruction,
    Load,
    Store,
    Tokens,
    encode_program,
    places,
)
from tilewright.backend.vta.kernels import AluKernel, Loop, unrolled
from tilewright.backend.vta.rtl import TINY, RtlDevice, verilog
from tilewright.backend.vta.rtl.decoders import decoded
from tilewright.base.errors import BadInput, BadProgram, OutOfBounds

SMALL = Timing(queue_length=8, token_length=4, latency=5)
SHARDS = [0, *(pytest.param(shard, marks=pytest.mark.slow) for shard in range(1, 42))]
EACH = 5


@pytest.mark.parametrize("shard", SHARDS)
def test_random_programs_equal_the_functional_simulator(shard: int) -> None:
    random = Random(900 + shard)
    config = CONFIGS[shard % len(CONFIGS)]
    timing = Timing(
        bus_bytes=random.choice((1, 4, 8, 16)),
        latency=random.choice((1, 2, 7, 32)),
        queue_length=random.choice((1, 5, 16)),
        token_length=random.choice((1, 2, 16)),
    )
    device, core = RtlDevice(config, timing, SIZE), new_core(config)
    for number in range(EACH):  # memories on the chip keep what they have
        before, after, program = random_case(random, core)
        device.write(0, before)
        assert executed(device, program) == without_code(after, program, config), f"{number}: {timing}"


def executed(device: RtlDevice, program: tuple[Instruction, ...]) -> bytes:
    report(device, program)
    return without_code(device.read(0, SIZE), program, device.config)


def without_code(memory: bytes, program: tuple[Instruction, ...], config: Config) -> bytes:
    size = len(program) * config.instruction_bits // 8
    assert CODE + size <= 1 << 15
    return memory[:CODE] + memory[CODE + size :]


LAYERS = [
    (Convolution(4, 3, 1, 1, 2, padding=1), 2),
    pytest.param((Convolution(5, 4, 2, 1, 3, padding=1), 2), marks=pytest.mark.slow),
    pytest.param((Convolution(6, 6, 2, 2, 3, 2, 1), 1), marks=pytest.mark.slow),
    pytest.param((Convolution(8, 5, 3, 2, 1), 2), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_and_their_cycles(layer: tuple[Convolution, int]) -> None:
    """Each instruction takes as long as the cycle simulator says, unless two transfers meet; so does the layer."""
    convolution, threads = layer
    tiling = next(item for item in tilings(convolution, TINY, threads) if item.rows > 1)
    program, timing = convolution_program(convolution, tiling, TINY), Timing(queue_length=32)
    arrays = random_arrays(program)
    runtime, device = Runtime(RtlDevice(TINY, timing)), Runtime(SimulatedDevice(TINY, timing=timing))
    for _ in range(2):  # micro-ops of the first run are still there in the second
        found, expected = runtime.run(program, arrays), device.run(program, arrays)
        assert found.instructions == expected.instructions
        np.testing.assert_array_equal(found.results["result"], expected.results["result"])
        assert found.report.counters == expected.report.counters
        measured, modelled = found.report.cycles, expected.report.cycles
        assert measured is not None
        assert modelled is not None
        assert abs(measured.total - modelled.total) <= 0.02 * measured.total


def test_negative_counts_shift_to_the_left() -> None:
    recorder = Recorder(TINY)
    sums, result = recorder.operand("sums", Scratchpad.ACC, (4,)), recorder.operand("result", Scratchpad.OUT, (4,))
    recorder.transfer(sums, Load(memory=Scratchpad.ACC, columns=4))
    shifted = AluKernel(unrolled([]), AluOperation.SHR, Loop(4, dst=1, src=1), immediate=-3)
    recorder.compute(shifted)
    recorder.token(Module.COMPUTE, Module.STORE)
    recorder.transfer(result, Store(columns=4))
    program = recorder.finish()
    arrays = random_arrays(program)
    found = Runtime(RtlDevice(TINY, SMALL)).run(program, arrays).results["result"]
    np.testing.assert_array_equal(found, (arrays["sums"] << 3).astype(np.int8))


def test_times_of_instructions_are_those_of_the_cycle_simulator() -> None:
    """To the cycle, where transfers don't meet; but FINISH takes two."""
    program = (
        Load(memory=Scratchpad.INP, rows=2, columns=3, stride=3, pad_top=2, pad_left=1, pad_right=2),
        Load(memory=Scratchpad.WGT, columns=4, tokens=Tokens(push_next=True)),
        Load(memory=Scratchpad.UOP, columns=4, tokens=Tokens(pop_previous=True)),
        Load(memory=Scratchpad.ACC8, rows=3, columns=2, pad_bottom=1),
        Gemm(uop_end=4, outer=3, inner=2, reset=True),
        Gemm(uop_end=4, outer=3, inner=2),
        Gemm(uop_begin=3, uop_end=4),
        Alu(uop_end=4, outer=5),
        Alu(uop_end=4, outer=5, use_immediate=True, tokens=Tokens(push_next=True)),
        Store(rows=3, columns=5, stride=8, dram=256, tokens=Tokens(pop_previous=True, push_previous=True)),
        Finish(tokens=Tokens(pop_next=True)),
    )
    for bus in (4, 8, 16):
        timing = Timing(bus_bytes=bus, queue_length=16, fetch_interval=max(1, 16 // bus))
        device = RtlDevice(TINY, timing, SIZE)
        cycles = report(device, program).cycles
        assert cycles is not None
        modelled = simulate(program, TINY, timing)
        assert cycles.timeline.begins == modelled.timeline.begins
        assert cycles.timeline.ends[:-1] == modelled.timeline.ends[:-1]
        assert cycles.total == cycles.timeline.ends[-1] == modelled.total + 1
        assert cycles.gemm == modelled.gemm
        assert cycles.transferring == modelled.transferring


def report(device: RtlDevice, program: tuple[Instruction, ...]) -> Report:
    device.write(CODE, encode_program(program, device.config))
    device.start(CODE, len(program))
    return device.wait()


def test_a_program_that_waits_for_ever_is_an_error_and_the_device_goes_on() -> None:
    device = RtlDevice(TINY, SMALL, SIZE)
    with pytest.raises(BadProgram, match="the program does not end: nothing has moved for 75 cycles; SimulatedDevice"):
        report(device, (Gemm(tokens=Tokens(pop_previous=True)), Finish()))
    assert report(device, (Gemm(), Finish())).counters == count((Gemm(), Finish()), TINY)


def test_tokens_that_are_left_are_an_error_and_do_not_stay() -> None:
    device, push = RtlDevice(TINY, SMALL, SIZE), Tokens(push_next=True)
    with pytest.raises(BadProgram, match="the program leaves tokens; SimulatedDevice tells which"):
        report(device, (Load(memory=Scratchpad.INP, tokens=push), Finish()))
    with pytest.raises(BadProgram, match="does not end"):
        report(device, (Finish(tokens=Tokens(pop_previous=True)),))


def test_a_load_that_finish_does_not_wait_for_ends_first() -> None:
    late = Load(memory=Scratchpad.INP, columns=60)
    cycles = report(RtlDevice(TINY, SMALL, SIZE), (late, Finish())).cycles
    assert cycles is not None
    assert cycles.total == cycles.timeline.ends[0] > cycles.timeline.ends[1] + 50


def test_many_zeros_are_no_standstill() -> None:
    zeros = Load(memory=Scratchpad.INP, rows=30, columns=0, pad_left=15, pad_right=15)
    cycles = report(RtlDevice(replace(TINY, inp_bytes=4096), SMALL, SIZE), (zeros, Finish())).cycles
    assert cycles is not None
    assert cycles.total > 900


def test_a_program_without_finish_is_an_error() -> None:
    for program in ((), (Gemm(),)):
        with pytest.raises(BadProgram, match="does not end"):
            report(RtlDevice(TINY, SMALL, SIZE), program)


def test_errors() -> None:
    device = RtlDevice(TINY, SMALL, SIZE)
    with pytest.raises(OutOfBounds, match="are not in the device's memory of 65536 bytes"):
        report(device, (Load(memory=Scratchpad.INP, dram=SIZE // 4), Finish()))
    with pytest.raises(BadInput, match="the device runs no program"):
        device.wait()
    device.start(CODE, 1)
    with pytest.raises(BadInput, match="the device runs a program"):
        device.start(CODE, 1)
    with pytest.raises(BadInput, match="takes 34 bits, and there are 32"):
        RtlDevice(replace(VTA, acc_bytes=256 << 10))
    with pytest.raises(BadInput, match="takes 34 bits, and there are 32"):
        verilog(replace(VTA, acc_bytes=256 << 10))
    for bus in (12, 32):
        with pytest.raises(BadInput, match=f"bus_bytes={bus} is not a power of two up to 16"):
            RtlDevice(TINY, Timing(bus_bytes=bus))
    with pytest.raises(BadInput, match="no block of the device starts at 300"):
        device.free(300)


def test_decoders_follow_the_fields() -> None:
    """Every field of every instruction, at both ends of its range, comes out of the wires as it was put in."""
    for form in FORMS:
        for place in places(form, TINY):
            for value in (place.least, place.most):
                word = Const(place.put(form.__name__, value), TINY.instruction_bits)
                wires = decoded(word, places(form, TINY))
                assert evaluated(wires) == {**dict.fromkeys(wires, 0), place.field.name: value}


def evaluated(wires: dict[str, Value]) -> dict[str, int]:
    found: dict[str, int] = {}

    async def look(context: SimulatorContext) -> None:
        found.update({name: context.get(wire) for name, wire in wires.items()})

    simulator = Simulator(Hardware())
    simulator.add_testbench(look)
    simulator.run()
    return found

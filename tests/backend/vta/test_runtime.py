"""The recorder, the cache of micro-ops and the run-time compiler, with its driver."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest

from tests.backend.vta.linked import random_arrays
from tilewright.backend.vta.config import LARGE, VTA, Module, Scratchpad
from tilewright.backend.vta.convolution import Convolution, Tiling, convolution_program
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.driver import Driver, Report
from tilewright.backend.vta.fields import InvalidInstruction
from tilewright.backend.vta.instructions import AluOperation, Gemm, Load, Store, Uop
from tilewright.backend.vta.kernels import AluKernel, GemmKernel, Loop, unrolled
from tilewright.backend.vta.micro_op_cache import MicroOpCache, without_parts
from tilewright.backend.vta.program import Pass, Program, Recorder, tokens_of
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base.errors import BadFeed, BadInput, BadProgram, OutOfBounds, TilewrightError

LOAD, COMPUTE, STORE = Module
RESET = GemmKernel((Uop(),), reset=True)


def test_nests_are_unrolled_in_order() -> None:
    loops = [Loop(2, dst=10), Loop(3, src=1, wgt=4)]
    expected = [Uop(5 + 10 * i, j, 1 + 4 * j) for i in range(2) for j in range(3)]
    assert unrolled(loops, Uop(5, 0, 1)) == tuple(expected)
    assert unrolled([]) == (Uop(),)


def sequence(name: int, length: int) -> tuple[Uop, ...]:
    return tuple(Uop(name, number) for number in range(length))


def test_the_least_recently_used_micro_ops_give_way() -> None:
    cache = MicroOpCache(10)
    a, b, c = sequence(0, 4), sequence(1, 4), sequence(2, 3)
    assert cache.place(a) is None
    assert cache.add([a, b]) == 0
    assert (cache.place(b), cache.place(a)) == (4, 0)
    assert cache.add([c]) == 4  # instead of b
    assert cache.place(a) == 0
    assert cache.add([sequence(3, 3)]) == 7  # what is left
    assert cache.place(b) is None
    assert cache.add([b]) == 0  # instead of c and a
    with pytest.raises(BadProgram, match="a kernel of 11 micro-ops does not fit the micro-op memory of 10"):
        cache.add([sequence(4, 6), sequence(5, 5)])


def test_parts_of_micro_ops_on_the_chip_need_no_place() -> None:
    cache, whole = MicroOpCache(10), sequence(0, 6)
    assert cache.add([sequence(1, 2), whole]) == 0
    assert [cache.place(whole[begin:stop]) for begin, stop in ((0, 3), (2, 6), (5, 6))] == [2, 4, 7]
    assert cache.place((whole[1], whole[3])) is None
    cache.add([sequence(2, 2)])
    assert cache.place(whole[4:]) == 6  # and so is the last one to give way
    cache.add([sequence(3, 2)])
    assert cache.place(whole[4:]) == 6
    cache.add([sequence(4, 10)])
    assert cache.place(whole[4:]) is None
    assert without_parts([whole[1:3], whole, sequence(1, 2), whole, whole[5:]]) == [whole, sequence(1, 2)]


def tokens(program: Program) -> list[list[str]]:
    names = ("pop_previous", "pop_next", "push_previous", "push_next")
    return [[name for name in names if getattr(tokens_of(step), name)] for step in program.steps]


def test_tokens_are_passed_by_neighbours_in_the_queue() -> None:
    recorder = Recorder(VTA)
    data, result = recorder.operand("a", Scratchpad.INP, (4,)), recorder.operand("c", Scratchpad.OUT, (4,))
    recorder.transfer(data, Load(memory=Scratchpad.INP))
    recorder.token(LOAD, COMPUTE)
    recorder.compute(RESET)
    recorder.token(COMPUTE, STORE)
    recorder.transfer(result, Store())
    program = recorder.finish()
    assert tokens(program) == [
        ["push_next"],
        ["pop_previous", "push_next"],
        ["pop_previous", "push_previous"],
        ["pop_next"],
    ]
    assert (program.inputs, program.results) == ((data,), (result,))


def test_where_a_token_is_passed_already_another_instruction_passes_it() -> None:
    recorder = Recorder(VTA)
    recorder.compute(RESET)
    recorder.push(COMPUTE, LOAD)
    recorder.push(COMPUTE, LOAD)
    recorder.pop(COMPUTE, LOAD)
    recorder.pop(COMPUTE, LOAD)
    recorder.transfer(recorder.operand("a", Scratchpad.INP, (1,)), Load(memory=Scratchpad.INP))
    program = recorder.finish()
    assert tokens(program) == [["push_previous"], ["push_previous"], ["pop_next"], ["pop_next"], []]
    passed = program.steps[1]
    assert isinstance(passed, Pass)
    assert isinstance(passed.instruction, Load)
    assert passed.instruction.tiles == 0
    run = Runtime(SimulatedDevice(VTA)).run(program, {"a": np.zeros((1, 1, 16), np.int8)})
    assert run.report.counters is not None
    assert run.report.counters.instructions == 6  # one loads micro-ops


def test_what_the_recorder_refuses() -> None:
    recorder = Recorder(VTA)
    data = recorder.operand("a", Scratchpad.INP, (2, 3))
    with pytest.raises(BadProgram, match="operand a is declared twice"):
        recorder.operand("a", Scratchpad.INP, (3, 2))
    with pytest.raises(BadProgram, match="rows=2 columns=4 stride=3: a has 6 tiles, not 7"):
        recorder.transfer(data, Load(memory=Scratchpad.INP, rows=2, columns=4, stride=3))
    with pytest.raises(BadProgram, match="LOAD wgt: the tiles of a are those of inp"):
        recorder.transfer(data, Load(memory=Scratchpad.WGT))
    with pytest.raises(BadProgram, match="LOAD uop: micro-ops are loaded by the run-time compiler"):
        recorder.transfer(recorder.operand("u", Scratchpad.UOP, (1,)), Load(memory=Scratchpad.UOP))
    with pytest.raises(BadProgram, match="load has done nothing that compute could wait for"):
        recorder.token(LOAD, COMPUTE)
    with pytest.raises(BadProgram, match="no tokens go from load to store; let compute stand between"):
        recorder.token(LOAD, STORE)
    recorder.compute(RESET)
    recorder.token(COMPUTE, LOAD)
    with pytest.raises(BadProgram, match="load would wait for a token, but does nothing more"):
        recorder.finish()


@cache
def small() -> Program:
    return convolution_program(Convolution(6, 6, 2, 2, kernel=3, padding=1), Tiling(3, 6, 1, 1), VTA)


def test_a_second_run_loads_no_micro_ops() -> None:
    runtime = Runtime(SimulatedDevice(VTA))
    feeds = random_arrays(small())
    first, second = runtime.run(small(), feeds), runtime.run(small(), feeds)
    counters = [run.report.counters for run in (first, second)]
    assert counters[0] is not None
    assert counters[1] is not None
    assert counters[0].loaded_uop > 0
    assert counters[1].loaded_uop == 0
    assert counters[1].loaded == counters[0].loaded - counters[0].loaded_uop
    np.testing.assert_array_equal(first.results["result"], second.results["result"])


def test_equal_micro_ops_are_loaded_once() -> None:
    """Two kernels that differ in their loops only."""
    recorder, uops = Recorder(VTA), sequence(0, 5)
    recorder.compute(GemmKernel(uops, Loop(2, dst=1), reset=True))
    recorder.compute(AluKernel(uops, AluOperation.ADD, Loop(3, dst=1), immediate=4))
    run = Runtime(SimulatedDevice(VTA)).run(recorder.finish(), {})
    assert run.report.counters is not None
    assert run.report.counters.loaded_uop == 20
    assert [instruction.uop_begin for instruction in run.instructions if isinstance(instruction, Gemm)] == [0]


def test_micro_ops_are_loaded_again_after_a_failure() -> None:
    device = SimulatedDevice(VTA)
    runtime = Runtime(device)
    recorder = Recorder(VTA)
    recorder.compute(GemmKernel((Uop(),), Loop(4096, dst=1), reset=True))
    with pytest.raises(OutOfBounds, match=r"GEMM reset outer=4096 dst_outer=1: accesses acc\[4095\]"):
        runtime.run(recorder.finish(), {})
    recorder = Recorder(VTA)
    recorder.compute(RESET)
    counters = runtime.run(recorder.finish(), {}).report.counters
    assert counters is not None
    assert counters.loaded_uop == 4


def test_device_memory_is_given_back() -> None:
    device = SimulatedDevice(VTA)
    runtime = Runtime(device)
    first = device.allocate(1)
    device.free(first)
    runtime.run(small(), random_arrays(small()))
    runtime.close()
    assert device.allocate(1 << 20) == first


def test_what_a_run_refuses() -> None:
    runtime, feeds = Runtime(SimulatedDevice(VTA)), random_arrays(small())
    with pytest.raises(BadFeed, match=r"data is missing; give an array of \(2, 6, 6, 1, 16\), int8"):
        runtime.run(small(), {"filters": feeds["filters"]})
    with pytest.raises(BadFeed, match=r"data is \(2, 6, 6, 1, 16\), int32; give an array of"):
        runtime.run(small(), feeds | {"data": feeds["data"].astype(np.int32)})
    with pytest.raises(BadFeed, match="out is no operand; the program has data, filters, result"):
        runtime.run(small(), feeds | {"out": feeds["data"]})
    with pytest.raises(BadProgram, match="the program is for vta, and the device is large"):
        Runtime(SimulatedDevice(LARGE)).run(small(), feeds)


def test_wrong_tokens_are_an_error_of_the_run() -> None:
    recorder = Recorder(VTA)
    recorder.transfer(recorder.operand("a", Scratchpad.INP, (1,)), Load(memory=Scratchpad.INP))
    recorder.compute(GemmKernel((Uop(),)))
    with pytest.raises(BadProgram, match=r"read after write: .*may access inp\[0\]"):
        Runtime(SimulatedDevice(VTA)).run(recorder.finish(), {"a": np.zeros((1, 1, 16), np.int8)})


def test_any_bytes_are_a_program_or_a_typed_error() -> None:
    """Bytes of a device's memory, with opcodes that exist: whatever they are, the simulator survives."""
    generator, told = np.random.default_rng(0), Counter[type]()
    device = SimulatedDevice(VTA, 1 << 16, Timing())
    for _ in range(100):
        words = generator.integers(0, 256, (2, 16)).astype(np.uint8)
        words[:, 0] = generator.choice(np.arange(5), 2)
        words[:, 1:] *= generator.random((2, 15)) < 0.3
        words[:, 2] &= 3
        device.write(256, words.tobytes())
        device.start(256, 2)
        try:
            device.wait()
        except TilewrightError as error:
            told[type(error)] += 1
    assert {InvalidInstruction, OutOfBounds, BadProgram} <= told.keys()


def test_a_device_runs_one_program_at_a_time() -> None:
    device = SimulatedDevice(VTA)
    with pytest.raises(BadInput, match="the device runs no program"):
        device.wait()
    device.start(0, 0)
    with pytest.raises(BadInput, match="the device runs a program"):
        device.start(0, 0)


def test_times_are_reported_where_the_device_has_them() -> None:
    feeds = random_arrays(small())
    assert Runtime(SimulatedDevice(VTA)).run(small(), feeds).report.cycles is None
    cycles = Runtime(SimulatedDevice(VTA, timing=Timing())).run(small(), feeds).report.cycles
    assert cycles is not None
    assert cycles.gemm == 36 * 2 * 2 * 9


@dataclass
class Elsewhere:
    """A driver of one's own: passes everything on, and notes it."""

    device: SimulatedDevice
    calls: list[str] = field(default_factory=list)

    @property
    def config(self):
        return self.device.config

    def allocate(self, size: int) -> int:
        self.calls.append("allocate")
        return self.device.allocate(size)

    def free(self, address: int) -> None:
        self.calls.append("free")
        self.device.free(address)

    def write(self, address: int, data: bytes) -> None:
        assert isinstance(data, bytes)
        self.calls.append("write")
        self.device.write(address, data)

    def read(self, address: int, size: int) -> bytes:
        self.calls.append("read")
        return self.device.read(address, size)

    def start(self, address: int, count: int) -> None:
        self.calls.append("start")
        self.device.start(address, count)

    def wait(self) -> Report:
        self.calls.append("wait")
        return self.device.wait()


def test_a_driver_is_all_that_the_runtime_asks_for() -> None:
    driver: Driver = Elsewhere(SimulatedDevice(VTA))
    feeds = random_arrays(small())
    runtime = Runtime(driver)
    expected = Runtime(SimulatedDevice(VTA)).run(small(), feeds).results["result"]
    np.testing.assert_array_equal(runtime.run(small(), feeds).results["result"], expected)
    assert isinstance(driver, Elsewhere)
    driver.calls.clear()
    runtime.run(small(), feeds)
    operands = ["allocate", "write"] * 3
    assert driver.calls == [*operands, "allocate", "write", "start", "wait", "free", "read", "free", "free", "free"]

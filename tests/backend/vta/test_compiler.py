"""Compiled programs equal the interpreter of their loops, and NumPy; what the accelerator can't do is refused."""

from random import Random

import numpy as np
import pytest

from tests.backend.vta.expressions import BATCHES, CONFIGS, EXPRESSIONS, like, narrow
from tilewright import te
from tilewright.backend.vta import VTA, Config, Scratchpad, Tiles, Timing, gemm, memories, schedule_tiles
from tilewright.backend.vta.compiler import translate, translated
from tilewright.backend.vta.config import CLIP
from tilewright.backend.vta.device_memory import DeviceMemory
from tilewright.backend.vta.fields import InvalidInstruction
from tilewright.backend.vta.functional import Core
from tilewright.backend.vta.instructions import Alu, AluOperation
from tilewright.backend.vta.layers import Convolution, convolution_tensor, tiles
from tilewright.backend.vta.program import Call
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.schedules.tiling import fits, fitting, parts, shape_of
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base.errors import BadProgram, ScheduleError, Unsupported, UnsupportedKernel
from tilewright.loops.interpreter import interpret


def random_tiles(random: Random, schedule: te.TeSchedule, config: Config) -> Tiles:
    """Sizes that fit; they often do not divide extents, nor virtual threads numbers of tiles."""
    shape = shape_of(schedule.program, config)
    threads = random.choice((1, 2, 2, 3))
    for _ in range(50):
        sizes = tuple(random.randint(-(-extent // 3), extent) for extent in shape.extents)
        found = Tiles(sizes, random.randint(1, shape.depth), threads)
        if fits(shape, found, config):
            return found
    return Tiles((1,) * len(shape.extents), 1, 1)


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 15))])
def test_random_schedules_equal_numpy(name: str, seed: int) -> None:
    """The device checks tokens in each run."""
    random = Random(f"{name} {seed}")
    config = CONFIGS[seed % len(CONFIGS)]
    schedule = te.create_schedule(EXPRESSIONS[name](random, config))
    schedule_tiles(schedule.schedule, random_tiles(random, schedule, config), config)
    te.accelerate(schedule, config).check(seed)


@pytest.mark.parametrize("name", ["convolution", "pooled"])
def test_scheduled_loops_mean_the_same_to_the_interpreter(name: str) -> None:
    random, config = Random(3), Config("tiny", block_in=2, block_out=2, inp_bytes=512, wgt_bytes=512, acc_bytes=1024)
    layer = Convolution(3, 3, 2, 1, 2, padding=1, shift=3)
    result = convolution_tensor(layer, config) if name == "convolution" else EXPRESSIONS[name](random, config)
    schedule = te.create_schedule(result)
    schedule_tiles(schedule.schedule, Tiles((1, 2, 3), 1), config)  # neither divides
    program = translated(schedule.program, config)
    generator = np.random.default_rng(0)
    feeds = {
        operand.name: generator.integers(-128, 128, operand.array_shape(config), np.int8) for operand in program.inputs
    }
    (found,) = Runtime(SimulatedDevice(config)).run(program, feeds).results.values()
    (expected,) = interpret(schedule.program, feeds).values()
    np.testing.assert_array_equal(found, expected)


def test_the_second_run_loads_no_micro_ops() -> None:
    kernel = te.accelerate(convolution_tensor(Convolution(6, 6, 2, 2, 3, padding=1), VTA))
    feeds = [np.zeros([int(str(n)) for n in spec.shape], np.int8) for spec in kernel.inputs]
    loaded: list[int] = []
    for _ in range(2):
        kernel(*feeds)
        report = kernel.accelerator.report
        assert report is not None
        assert report.counters is not None
        loaded.append(report.counters.loaded_uop)
    assert loaded[0] > 0
    assert loaded[1] == 0
    assert kernel.counters.loaded_uop == loaded[0]
    assert kernel.cycles.total > kernel.cycles.gemm == kernel.counters.gemm == 6 * 6 * 2 * 2 * 9


def test_virtual_threads_hide_latency() -> None:
    result = convolution_tensor(Convolution(14, 14, 4, 4, 3, padding=1), VTA)
    cycles: list[int] = []
    for threads in (1, 2):
        schedule = te.create_schedule(result)
        schedule_tiles(schedule.schedule, Tiles((1, 14, 14), 1, threads), VTA)
        cycles.append(te.accelerate(schedule, VTA).cycles.total)
    assert cycles[1] < 0.85 * cycles[0]


def test_alu_computes_in_place() -> None:
    """Sums, shifted and clipped in two stages: one buffer of acc, no copies."""
    schedule = te.create_schedule(convolution_tensor(Convolution(2, 2, 1, 1, 1), VTA))
    schedule_tiles(schedule.schedule, Tiles((1, 2, 2), 1, 1), VTA)
    program = translated(schedule.program, VTA)
    kernels = [step.kernel for step in program.steps if isinstance(step, Call)]
    assert len(kernels) == 5  # reset, products; shift, maximum, minimum
    assert {uop.dst for kernel in kernels for uop in kernel.uops} == {0}


def test_virtual_threads_share_what_is_needed_in_passing() -> None:
    """Three tiles of 600 accumulators fit, and four do not: the one beside the sums is that of both threads."""
    a = tiles((2, 600), Scratchpad.ACC, VTA, "a")
    wide = te.compute(a.shape, lambda *at: a[at] + 5, name="wide")
    odd = te.compute(a.shape, lambda *at: (wide[at] << 31) >> 31, name="odd")
    result = te.compute(a.shape, lambda *at: narrow(wide[at] + odd[at]), name="c")
    schedule = te.create_schedule(result)
    schedule_tiles(schedule.schedule, Tiles((1, 600), 1, 2), VTA)
    te.accelerate(schedule, VTA).check()


def test_the_ends_of_a_program_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute begins before all of the first tile is there, and the last one is stored in parts: with equal results."""
    result = convolution_tensor(Convolution(14, 14, 4, 8, 3, padding=1), VTA)
    found: list[te.Accelerated] = []
    for is_eased in (True, False):
        if not is_eased:
            monkeypatch.setattr(translate, "eased", lambda steps, config: steps)
        schedule = te.create_schedule(result)
        schedule_tiles(schedule.schedule, Tiles((4, 14, 14), 1), VTA)
        found.append(te.accelerate(schedule, VTA))
        found[-1].check()
        assert found[-1].cycles.gemm == found[-1].counters.gemm
    eased, plain = (kernel.cycles.total for kernel in found)
    assert eased < plain - 1500
    assert found[0].counters.loaded_inp == found[1].counters.loaded_inp
    assert found[0].counters.stored == found[1].counters.stored


def test_both_limits_are_one_operation_where_alu_has_it() -> None:
    result = convolution_tensor(Convolution(6, 6, 1, 1, 1), CLIP)
    kernel = te.accelerate(result, CLIP)
    kernel.check()
    assert kernel.listing.count("ALU clip") and not kernel.listing.count("ALU max")
    with pytest.raises(InvalidInstruction, match="vta has no CLIP"):
        Core(VTA, DeviceMemory(1 << 12, VTA.alignment)).execute(Alu(operation=AluOperation.CLIP))


def test_a_buffer_that_is_read_again_keeps_its_tiles() -> None:
    """Its half is not computed in its place, as both are added."""
    a = image(2, 3)
    wide = te.compute(like((2, 3), VTA), lambda *at: te.cast(a[at], "int32") + 5, name="wide")
    half = te.compute(wide.shape, lambda *at: wide[at] >> 1, name="half")
    te.accelerate(te.compute(wide.shape, lambda *at: narrow(wide[at] + half[at]), name="c"), VTA).check()


def test_padding_is_kept_where_a_patch_is_as_large_as_the_image() -> None:
    """Its rows, with zeros before, then look as if they followed each other in device memory."""
    schedule = te.create_schedule(convolution_tensor(Convolution(4, 4, 2, 1, 2, padding=1, shift=4), VTA))
    schedule_tiles(schedule.schedule, Tiles((1, 3, 3), 2), VTA)
    te.accelerate(schedule, VTA).check()


def test_more_zeros_than_a_load_has_room_for() -> None:
    """Of a filter of 3 x 3 with positions 20 apart, around an image of one pixel."""
    layer = Convolution(3, 2, 1, 1, 3, padding=20, dilation=20, shift=4)
    kernel = te.accelerate(convolution_tensor(layer, VTA), VTA)
    assert "pad_top=1" in kernel.listing
    kernel.check()


def test_fitting_sizes_fit_and_their_schedules_are_accepted() -> None:
    result = convolution_tensor(Convolution(5, 5, 2, 2, 3, padding=1), BATCHES)
    shape = shape_of(te.create_schedule(result).program, BATCHES)
    found = list(fitting(shape, BATCHES, 2))
    assert len(found) == len(parts(5)) ** 2 * len(parts(2)) ** 2
    for sizes in found[len(found) // 2 :: len(found) // 4]:
        schedule = te.create_schedule(result)
        schedule_tiles(schedule.schedule, sizes, BATCHES)
        translated(schedule.program, BATCHES)


def image(*shape: int, dtype: str = "int8", name: str = "a") -> te.Tensor:
    return te.placeholder((*shape, 1, 16), dtype, name=name)


def test_what_the_accelerator_cannot_do_is_refused_with_the_block() -> None:
    a, b = image(2, 3), image(2, 3, name="b")
    shape = like((2, 3), VTA)

    def refused(value: object, error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            te.accelerate(te.compute(shape, value, name="c"), VTA)

    refused(lambda *at: narrow(te.cast(a[at], "int32") * 300), Unsupported, r"no operation for `\*` with `i32\(300\)`")
    refused(lambda *at: te.cast(te.cast(a[at], "int32") + 1, "int8"), Unsupported, "ALU can't compute `i8")
    refused(lambda *at: a[at] + b[at], Unsupported, r"`\+` of i8: ALU computes in 32 bits; cast to i32 before")
    refused(
        lambda *at: narrow(te.cast(a[at], "int32") + 40000), Unsupported, "immediates of 16 bits, and 40000 is none"
    )
    refused(
        lambda y, x, b, o: a[y, x, b, 15 - o], UnsupportedKernel, "block `c`: it moves elements of a to other places"
    )
    wide = te.placeholder((2, 3, 1, 17), "int8", name="wide")
    with pytest.raises(UnsupportedKernel, match="c_acc has 102 elements, and tiles have 16: pad it to whole ones"):
        te.accelerate(te.compute((2, 3, 1, 17), lambda *at: wide[at], name="c"), VTA)


def test_reductions_that_are_two_are_refused_by_the_template() -> None:
    a = image(4, 3)
    k, j = te.reduce_axis((0, 4), "k"), te.reduce_axis((0, 3), "j")
    first = te.compute(like((3,), VTA), lambda x, b, o: te.max(a[k, x, b, o], axis=k), name="first")
    second = te.compute(like((), VTA), lambda b, o: te.max(first[j, b, o], axis=j), name="second")
    with pytest.raises(Unsupported, match="second is one tile: give it a dimension of tiles"):
        te.accelerate(second, VTA)
    with pytest.raises(ScheduleError, match="first, second reduce"):
        schedule_tiles(te.create_schedule(second).schedule, Tiles(()), VTA)


def test_schedules_by_hand_need_the_right_memories() -> None:
    a = tiles((1, 3), Scratchpad.INP, VTA, "a")
    w = tiles((1, 1), Scratchpad.WGT, VTA, "w")
    i = te.reduce_axis((0, 16), "i")
    sums = te.compute(
        like((1, 3), VTA),
        lambda f, n, b, o: te.sum(te.cast(a[0, n, b, i], "int32") * te.cast(w[f, 0, o, i], "int32"), axis=i),
        name="sums",
    )
    result = te.compute(sums.shape, lambda *at: narrow(sums[at]), name="result")
    schedule = te.create_schedule(result)
    schedule[sums].tensorize(schedule[sums].op.axis[3], gemm(VTA))
    with pytest.raises(UnsupportedKernel, match="sums is allocated in global: keep it on the chip"):
        te.accelerate(schedule, VTA)
    schedule[sums].set_scope(memories(VTA).acc)
    with pytest.raises(UnsupportedKernel, match="GEMM takes a from global, not from inp; let it read a copy"):
        te.accelerate(schedule, VTA)


def test_what_does_not_fit_is_refused() -> None:
    schedule = te.create_schedule(convolution_tensor(Convolution(28, 28, 1, 4, 1), VTA))
    schedule_tiles(schedule.schedule, Tiles((4, 28, 28), 1, 1), VTA)
    with pytest.raises(BadProgram, match=r"ends at tile 3136 of acc, which has 2048; use smaller tiles"):
        te.accelerate(schedule, VTA, Timing())

"""Scheduled convolutions and products equal NumPy; their counts and bytes; two virtual threads against one."""

from random import Random
from statistics import median

import numpy as np
import pytest

from tests.backend.vta.linked import random_convolution
from tilewright.backend.vta.config import LARGE, OSDI, VTA, Config
from tilewright.backend.vta.convolution import (
    Convolution,
    Tiling,
    chosen_tiling,
    convolution_program,
    matmul,
)
from tilewright.backend.vta.cycles import Timing, simulate
from tilewright.backend.vta.functional import count
from tilewright.backend.vta.packing import packed_data, packed_filters, unpacked_result
from tilewright.backend.vta.program import Call, Transfer
from tilewright.backend.vta.runtime import Run, Runtime
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base.errors import BadFeed, BadProgram

BATCHES = Config("batches", batch=2, block_in=8, block_out=4, uop_bits=64, instruction_bits=256)
COUNTS = {"C2": 451_584, "C3": 225_792, "C4": 25_088, "C5": 451_584, "C6": 225_792}
COUNTS |= {"C7": 25_088, "C8": 451_584, "C9": 225_792, "C10": 25_088, "C11": 451_584}
"""Micro-ops of GEMM for each layer of ResNet-18, at batch 1 and blocks of 16."""
LAYERS = {
    "C2": Convolution(56, 56, 4, 4, 3, padding=1),
    "C3": Convolution(56, 56, 4, 8, 3, stride=2, padding=1),
    "C4": Convolution(56, 56, 4, 8, 1, stride=2),
    "C5": Convolution(28, 28, 8, 8, 3, padding=1),
    "C6": Convolution(28, 28, 8, 16, 3, stride=2, padding=1),
    "C7": Convolution(28, 28, 8, 16, 1, stride=2),
    "C8": Convolution(14, 14, 16, 16, 3, padding=1),
    "C9": Convolution(14, 14, 16, 32, 3, stride=2, padding=1),
    "C10": Convolution(14, 14, 16, 32, 1, stride=2),
    "C11": Convolution(7, 7, 32, 32, 3, padding=1),
}


def exact(convolution: Convolution, data: np.ndarray, filters: np.ndarray, bits: int) -> np.ndarray:
    """The convolution in NumPy, in the usual order of dimensions."""
    pad = convolution.padding
    padded = np.pad(data.astype(np.int64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    shape = (convolution.kernel, convolution.kernel)
    windows = np.lib.stride_tricks.sliding_window_view(padded, shape, axis=(2, 3))
    strided = windows[:, :, :: convolution.stride, :: convolution.stride]
    sums = np.einsum("nchwij,fcij->nfhw", strided, filters.astype(np.int64), optimize=True)
    return np.clip(sums >> convolution.shift, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def run(convolution: Convolution, tiling: Tiling, config: Config, timing: Timing | None = None, seed: int = 0) -> Run:
    """Run on random numbers; the result is compared."""
    generator = np.random.default_rng(seed)
    channels, filters = convolution.channels * config.block_in, convolution.filters * config.block_out
    data = generator.integers(-128, 128, (config.batch, channels, convolution.height, convolution.width))
    weights = generator.integers(-128, 128, (filters, channels, convolution.kernel, convolution.kernel))
    program = convolution_program(convolution, tiling, config)
    feeds = {"data": packed_data(data, config), "filters": packed_filters(weights, config)}
    found = Runtime(SimulatedDevice(config, 8 << 20, timing)).run(program, feeds)
    result = unpacked_result(found.results["result"], filters)
    np.testing.assert_array_equal(result, exact(convolution, data, weights, config.out_bits))
    return found


@pytest.mark.parametrize("shard", [*range(2), *(pytest.param(shard, marks=pytest.mark.slow) for shard in range(2, 40))])
def test_random_convolutions_equal_numpy(shard: int) -> None:
    random = Random(300 + shard)
    config = random.choice(
        (VTA, OSDI, LARGE, Config("batches", batch=2, block_in=8, block_out=4, uop_bits=64, instruction_bits=256))
    )
    for number in range(5):
        run(*random_convolution(random, config), config, seed=number)


def test_products_equal_numpy() -> None:
    generator = np.random.default_rng(1)
    a, b = generator.integers(-128, 128, (20, 64)), generator.integers(-128, 128, (48, 64))
    product = matmul(rows=20, columns=3, depth=4, shift=6)
    program = convolution_program(product, chosen_tiling(product, VTA, Timing()), VTA)
    feeds = {
        "data": packed_data(a.T[None, :, None, :], VTA),
        "filters": packed_filters(b[:, :, None, None], VTA),
    }
    result = Runtime(SimulatedDevice(VTA)).run(program, feeds).results["result"]
    np.testing.assert_array_equal(unpacked_result(result, 48)[0, :, 0].T, np.clip((a @ b.T) >> 6, -128, 127))


def test_channels_that_do_not_fill_a_block_are_filled_with_zeros() -> None:
    generator = np.random.default_rng(2)
    data, weights = generator.integers(-128, 128, (1, 19, 5, 6)), generator.integers(-128, 128, (7, 19, 3, 3))
    convolution = Convolution(5, 6, 2, 1, 3)
    feeds = {"data": packed_data(data, VTA), "filters": packed_filters(weights, VTA)}
    result = Runtime(SimulatedDevice(VTA)).run(convolution_program(convolution, Tiling(3, 2, 1, 1), VTA), feeds)
    np.testing.assert_array_equal(unpacked_result(result.results["result"], 7), exact(convolution, data, weights, 8))
    with pytest.raises(BadFeed, match=r"data are \(2, 3, 4, 4\); give \(batch=1, channels, height, width\)"):
        packed_data(np.zeros((2, 3, 4, 4), np.int8), VTA)
    with pytest.raises(BadFeed, match="numbers from 0 to 128 do not fit int8"):
        packed_filters(weights * 0 + 128, VTA)


@pytest.mark.share(4)
@pytest.mark.parametrize("name", LAYERS)
def test_every_schedule_has_the_same_products_and_all_bytes(name: str) -> None:
    convolution = LAYERS[name]
    assert convolution.products == COUNTS[name]
    for tiling in (Tiling(7, 7, 4, 4, 1), Tiling(14, 5, 3, 3), Tiling(6, 9, 8, 1)):
        program = convolution_program(convolution, tiling, VTA)
        calls = [step.kernel.instruction(0) for step in program.steps if isinstance(step, Call)]
        moves = [step.instruction for step in program.steps if isinstance(step, Transfer)]
        counted = count([*calls, *moves], VTA)
        assert counted.gemm == COUNTS[name], tiling
        operands = {operand.name: operand.bytes(VTA) for operand in program.operands}
        read = operands["data"] // (convolution.stride**2 if convolution.kernel == 1 else 1)
        assert counted.loaded_inp >= read
        assert counted.loaded_wgt >= operands["filters"]
        assert counted.stored == operands["result"]
        assert counted.alu == 3 * counted.reset


@pytest.mark.parametrize("name", ["C10", *(pytest.param(n, marks=pytest.mark.slow) for n in LAYERS if n != "C10")])
def test_layers_of_resnet_equal_numpy_and_two_threads_hide_latency(name: str) -> None:
    shares: list[float] = []
    for threads in (1, 2):
        report = run(LAYERS[name], chosen_tiling(LAYERS[name], VTA, Timing(), threads), VTA, Timing()).report
        assert report.counters is not None
        assert report.cycles is not None
        assert report.counters.gemm == COUNTS[name]
        shares.append(report.cycles.utilisation)
    assert shares[1] > shares[0]


@pytest.mark.slow
def test_half_of_the_layers_multiply_in_92_percent_of_all_cycles() -> None:
    """By the analytic choice; resets and operations of ALU alone keep the median below 92.4%."""
    shares: list[float] = []
    for layer in LAYERS.values():
        program = convolution_program(layer, chosen_tiling(layer, VTA, Timing()), VTA)
        instructions = Runtime(SimulatedDevice(VTA, 8 << 20)).linked(program)
        shares.append(simulate(instructions, VTA, Timing()).utilisation)
    assert 0.92 <= median(shares) <= 0.924


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(BadProgram, match="a virtual thread takes 1568 tiles of acc, and has 1024; use smaller tiles"):
        convolution_program(LAYERS["C5"], Tiling(14, 14, 8, 1), VTA)
    with pytest.raises(BadProgram, match="sizes and numbers of virtual threads are at least 1"):
        convolution_program(LAYERS["C5"], Tiling(7, 7, 1, 1, threads=0), VTA)
    with pytest.raises(BadProgram, match="padding=3 is more than a filter of 3 covers"):
        Convolution(5, 5, 1, 1, 3, padding=3)
    with pytest.raises(BadProgram, match="Convolution: stride=0 is impossible; the least is 1"):
        Convolution(5, 5, 1, 1, 3, stride=0)
    with pytest.raises(BadProgram, match=r"no tile of .* fits tiny; use one virtual thread or larger memories"):
        chosen_tiling(Convolution(20, 20, 1, 1, 17), Config("tiny", wgt_bytes=1 << 15), Timing())

"""Compiled programs as hardware: the bits of the functional simulator, and cycles within 5 % of the model's."""

from random import Random

import numpy as np
import pytest

from tests.backend.vta.expressions import EXPRESSIONS, SMALL
from tests.backend.vta.linked import random_arrays
from tilewright import te
from tilewright.backend.vta import Runtime, SimulatedDevice, Timing
from tilewright.backend.vta.config import Config
from tilewright.backend.vta.rtl import TINY, RtlDevice
from tilewright.base.errors import BadProgram

MOST_CYCLES = 20_000
"""Of a program, so that its hardware can be simulated in seconds."""
FETCH = 3
"""Cycles of fetch itself, besides the latency, until the first instruction is in its queue."""
WIDE = Config("wide", block_in=8, block_out=2, uop_bytes=1 << 10, inp_bytes=1 << 10, wgt_bytes=1 << 11, acc_bytes=2048)
CONFIGS = (TINY, SMALL, WIDE)
SHARDS = [0, *(pytest.param(shard, marks=pytest.mark.slow) for shard in range(1, 25))]
EACH = 2


def random_kernel(random: Random, config: Config, timing: Timing) -> te.Accelerated:
    """Of a random expression, by the analytic choice."""
    while True:
        made = EXPRESSIONS[random.choice(sorted(EXPRESSIONS))](random, config)
        try:
            kernel = te.accelerate(made, config, timing)
        except BadProgram:  # too large for the memories
            continue
        if kernel.cycles.total <= MOST_CYCLES:
            return kernel


@pytest.mark.parametrize("shard", SHARDS)
def test_compiled_programs_take_the_cycles_of_the_model(shard: int) -> None:
    random, config = Random(700 + shard), CONFIGS[shard % len(CONFIGS)]
    latency = random.choice((8, 32))
    timing = Timing(latency=latency, fetch_start=latency + FETCH, queue_length=64, token_length=16)
    for number in range(EACH):
        program = random_kernel(random, config, timing).program
        arrays = random_arrays(program, number)
        found = Runtime(RtlDevice(config, timing)).run(program, arrays)
        expected = Runtime(SimulatedDevice(config, timing=timing)).run(program, arrays)
        for name, array in expected.results.items():
            np.testing.assert_array_equal(found.results[name], array)
        measured, modelled = found.report.cycles, expected.report.cycles
        assert measured is not None
        assert modelled is not None
        print(f"{measured.total} {modelled.total} {measured.total / modelled.total - 1:+.2%}")
        assert abs(measured.total - modelled.total) <= 0.05 * measured.total

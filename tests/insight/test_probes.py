"""The probes: their code, what an iteration counts, and rates that make sense."""

from itertools import pairwise

import llvmlite.binding as llvm
import pytest

from tilewright.base.errors import UnsupportedTarget
from tilewright.insight.peak import Bandwidth, Peak, Roof
from tilewright.insight.probes import (
    ACCUMULATORS,
    ADDITIONS,
    STREAMS,
    clock_ir,
    clock_probe,
    fma_ir,
    fma_loop,
    fma_probe,
    read_ir,
    read_loop,
    read_probe,
)
from tilewright.target.target import Target

HOST = Target.host()


def test_loops_have_independent_chains() -> None:
    assert fma_ir(512).count("call <16 x float> @llvm.fma.v16f32") == ACCUMULATORS
    assert read_ir(256).count("load <8 x float>") == STREAMS
    assert fma_ir(512, chains=1).count("@llvm.fma.v16f32(<16 x float> %") == 1
    for text in (fma_ir(512), read_ir(256), clock_ir()):
        llvm.parse_assembly(text).verify()


def test_work_is_counted() -> None:
    assert fma_loop(HOST, 128).amount == 2 * ACCUMULATORS * 4
    loop = read_loop(HOST, 3, 1)
    assert loop.amount == STREAMS * HOST.vector_bits // 8
    begin, end = loop.timed(0, 1000)
    assert end > begin


def test_wider_vectors_than_the_machine_has_are_refused() -> None:
    with pytest.raises(UnsupportedTarget, match="this processor's vectors have"):
        fma_probe(HOST, vector_bits=2 * HOST.vector_bits)


def test_the_clock_counts_operations_that_wait_for_each_other() -> None:
    lines = [line.split() for line in clock_ir().splitlines() if " i64 %x" in line and "phi" not in line]
    assert len(lines) == ADDITIONS
    assert all(made[0] == used[4].rstrip(",") for made, used in pairwise(lines))
    assert {line[2] for line in lines} == {"add", "xor"}
    assert 0.05 < clock_probe(HOST, 1e-4)() < 10


@pytest.mark.parametrize("threads", [1, 2])
def test_probes_return_a_rate(threads: int) -> None:
    assert 0.5 < fma_probe(HOST, threads, 128)() < 100_000
    assert 0.1 < read_probe(HOST, 1 << 16, threads)() < 100_000


def test_the_bandwidth_is_that_of_the_smallest_working_set_that_is_as_large() -> None:
    peak = Peak(
        1,
        100.0,
        (Bandwidth(Roof.L1, 1000, 50.0), Bandwidth(Roof.L2, 10_000, 20.0), Bandwidth(Roof.MEMORY, 100_000, 5.0)),
    )
    found = [peak.bandwidth(size).roof for size in (0, 1000, 1001, 50_000, 10**9)]
    assert found == [Roof.L1, Roof.L1, Roof.L2, Roof.MEMORY, Roof.MEMORY]


def test_what_disturbs_a_measurement_makes_it_lower() -> None:
    quiet, noisy = (
        Peak(2, flops, (Bandwidth(Roof.MEMORY, 1000, read),)) for flops, read in ((100.0, 10.0), (80.0, 20.0))
    )
    assert quiet.best_of(noisy) == Peak(2, 100.0, (Bandwidth(Roof.MEMORY, 1000, 20.0),))

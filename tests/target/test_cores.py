"""Tables of AArch64 cores: they agree with those of processors, and figures of the cost model follow from them."""

import pytest

from tilewright.base.processors import PROCESSORS, Architecture
from tilewright.measure.job import target_fingerprint
from tilewright.target.cores import CORES, Pipe
from tilewright.target.machine import Machine
from tilewright.target.target import Target

OUT_OF_ORDER = ("cortex-a72", "cortex-a76", "neoverse-n1", "neoverse-v1", "apple-m1")


@pytest.mark.parametrize("name", CORES)
def test_a_core_has_as_many_pipelines_as_its_processor(name: str) -> None:
    assert name in PROCESSORS[Architecture.AARCH64]
    core, target = CORES[name], Target.parse(f"aarch64,{name}")
    assert target.fma_per_cycle == core.pipes[Pipe.VECTOR] * core.fp_bits // target.vector_bits
    assert target.loads_per_cycle == core.pipes[Pipe.LOAD]
    assert core.l1.bytes < core.l2.bytes
    assert core.l3 is None or core.l3.latency < core.memory.latency
    for cache in (core.l1, core.l2):
        lines = cache.bytes // 64
        assert lines % cache.ways == 0


@pytest.mark.parametrize("name", CORES)
def test_a_target_has_the_caches_of_its_core_and_its_text_does_not_say_so(name: str) -> None:
    target = Target.parse(f"aarch64,{name}")
    assert (target.l1_bytes, target.l2_bytes) == (CORES[name].l1.bytes, CORES[name].l2.bytes)
    assert str(target) == f"aarch64,{name}"
    other = Target.parse(f"aarch64,{name},l2=256K,fma_latency=9")
    assert (other.l2_bytes, other.machine.fma_latency) == (256 << 10, 9)
    assert Target.parse(str(other)) == other
    assert target_fingerprint(str(target)) != target_fingerprint(f"aarch64,{name},l1=8K")


def test_figures_follow_from_the_core() -> None:
    a72, a55 = (Target.parse(f"aarch64,{name}").machine for name in ("cortex-a72", "cortex-a55"))
    assert (a72.fma_latency, a72.way_bytes) == (3, 16 << 10)  # UAN 0016A: 7, and 3 to the next sum
    assert a55.load_cycles > a72.load_cycles
    assert Target.parse("aarch64").machine == Machine()


@pytest.mark.parametrize("name", OUT_OF_ORDER)
def test_farther_levels_are_slower(name: str) -> None:
    machine = Target.parse(f"aarch64,{name}").machine
    assert machine.l2_registers > machine.l3_registers >= machine.memory_registers

"""The peak probe: its code, and rates that make sense."""

import llvmlite.binding as llvm
import pytest

from benchmarks.peak import ACCUMULATORS, compile_loop, fma_probe, loop_ir, native_vector_bits, share_of_peak


def test_loop_has_independent_chains() -> None:
    text = loop_ir(512)
    assert text.count("call <16 x float> @llvm.fma.v16f32") == ACCUMULATORS
    llvm.parse_assembly(text).verify()


def test_flops_are_counted() -> None:
    loop = compile_loop(128)
    assert loop.flops_per_iteration == 2 * ACCUMULATORS * 4
    begin, end = loop.timed(1000)
    assert end > begin


def test_wider_vectors_than_the_machine_has_are_refused() -> None:
    with pytest.raises(ValueError, match="this CPU's vectors have"):
        fma_probe(2 * native_vector_bits())


@pytest.mark.parametrize("threads", [1, 2])
def test_probe_returns_a_rate(threads: int) -> None:
    rate = fma_probe(128, threads)()
    assert 0.5 < rate < 10_000


def test_share_of_peak() -> None:
    share = share_of_peak(lambda: None, 1e-3, lambda: 50.0, samples=5)
    assert share.peak == 50.0
    assert 0 < share.share <= share.kernel / share.peak

"""Figures of this machine: what samples say, and experiments that give something."""

import pytest

from tilewright.base.settings import Settings
from tilewright.insight.figures import Finding, finding, kept, measure_figures
from tilewright.target.machine import MEASURED
from tilewright.target.target import Target


def test_the_median_counts_with_two_digits() -> None:
    assert finding("near_bytes", [28.04, 27.96, 27.99, 28.01, 1.0], 24.0) == Finding(
        "near_bytes", 28.0, pytest.approx((28.025 - 14.48) / 27.99), 24.0, "it varies by 48%: something else runs"
    )
    found = finding("region_cycles", [1712.0, 1718.0, 1722.0, 1719.0, 9000.0, 1716.0, 1717.0, 1713.0], 2000.0)
    assert (found.value, found.problem) == (1700.0, None)
    assert kept([found, Finding("far_bytes", 1.0, 0.9, 10.0, "it varies")]) == {"region_cycles": 1700.0}


@pytest.mark.parametrize(
    ("samples", "latency"), [([3.93, 3.98, 4.02], 4.0), ([4.6, 4.55, 4.52], 5.0), ([0.3] * 3, 1.0)]
)
def test_a_latency_is_a_number_of_cycles(samples: list[float], latency: float) -> None:
    assert finding("fma_latency", samples, latency).value == latency


@pytest.mark.parametrize("value", [1.1, 81.0, -9.0, 0.0])
def test_what_no_machine_has_is_not_kept(value: float) -> None:
    found = finding("far_bytes", [value] * 5, 10.0)
    assert found.problem == "it is too far from that of any known machine"
    assert not kept([found])


def test_experiments_give_numbers_that_make_sense() -> None:
    found = {one.name: one for one in measure_figures(Target.host(Settings()), threads=2, samples=2)}
    assert tuple(found) == MEASURED
    assert all(one.spread >= 0 and one.built_in > 0 for one in found.values())
    assert 1 <= found["fma_latency"].value < 1000
    assert 0 < found["stream_bytes"].value < 10_000


def test_one_thread_has_no_regions() -> None:
    *_, region = measure_figures(Target.host(Settings()), threads=1, samples=1)
    assert region == Finding("region_cycles", 2000.0, 0.0, 2000.0, "there is one thread")

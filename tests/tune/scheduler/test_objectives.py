"""Objectives over networks: their values by hand, their derivatives by differences."""

from math import inf

import pytest

from tilewright.tune.scheduler.objectives import Objective, Requirements, Speedup, SumOfLatencies, latencies_of
from tilewright.tune.scheduler.state import Point, TaskState

LATENCIES = (0.004, 0.009, 0.002)
OBJECTIVES = [
    (SumOfLatencies(), 0.015),
    (Requirements((0.005, 0.005, 0.001)), 0.005 + 0.009 + 0.002),
    (Speedup((0.008, 0.009, 0.001)), -((2.0 * 1.0 * 0.5) ** (1 / 3))),
]


@pytest.mark.parametrize(("objective", "value"), OBJECTIVES, ids=["sum", "requirements", "speedup"])
def test_values_and_derivatives(objective: Objective, value: float) -> None:
    assert objective.value(LATENCIES) == pytest.approx(value)
    for network, slope in enumerate(objective.slopes(LATENCIES)):
        ends = [list(LATENCIES), list(LATENCIES)]
        ends[0][network] -= 1e-7
        ends[1][network] += 1e-7
        low, high = map(objective.value, ends)
        assert slope == pytest.approx((high - low) / 2e-7, rel=1e-3)


def test_a_network_takes_what_its_kernels_take_and_a_rest_that_stays() -> None:
    tasks = [
        TaskState((2, 0), (Point(4, 3.0), Point(8, 2.0)), untuned=3.0),
        TaskState((1, 5), (Point(4, 1.0),), untuned=1.5),
        TaskState((9, 9), (Point(4, inf),)),  # it is not known what that takes
    ]
    assert latencies_of(tasks) == (2 * 2.0 + 1.0, 5 * 1.0)
    # Untuned, the first network's kernels took 2 * 3.0 + 1.5 of 10.0; those of the second more than was measured.
    assert latencies_of(tasks, (10.0, 7.0)) == (5.0 + 2.5, 5.0)

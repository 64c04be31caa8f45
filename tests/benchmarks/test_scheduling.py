"""Replayed schedulers: on made-up curves, whose sums can be told."""

import numpy as np

from benchmarks.ablation.layers import LAYERS
from benchmarks.scheduling import CALLS, flops, replayed, schedulers, tag
from tilewright.tune.scheduler.gradient import Gradient
from tilewright.tune.scheduler.round_robin import RoundRobin


def test_layers_have_work_and_groups() -> None:
    assert flops(LAYERS["C2"]) == 2 * 56 * 56 * 64 * 64 * 9
    assert flops(LAYERS["C1"]) == 2 * 112 * 112 * 3 * 64 * 49
    assert tag(LAYERS["C6"]) == tag(LAYERS["C9"]) == tag(LAYERS["C12"])
    assert tag(LAYERS["C6"]) != tag(LAYERS["C7"])
    assert sum(CALLS.values()) == 21


def test_round_robin_by_hand() -> None:
    """Rounds of four; C2 counts four times, and has nothing left to try after eight trials."""
    found = {"C1": np.array([5.0] * 4 + [3.0] * 12), "C2": np.array([9.0] * 4 + [1.0] * 4)}
    total = replayed(RoundRobin(), found, 20)
    assert (total[:7] == np.inf).all()
    assert total[7:].tolist() == [41.0] * 4 + [39.0] * 4 + [7.0] * 5
    late = {"C1": np.array([5.0] * 8 + [2.0] * 8), "C2": np.array([1.0] * 4)}
    assert replayed(RoundRobin(), late, 20).tolist() == [np.inf] * 7 + [9.0] * 8 + [6.0] * 5


def test_the_gradient_is_ahead_where_one_task_is_most_of_the_time() -> None:
    falling = np.geomspace(1.0, 0.1, 400)
    found = {"C1": falling, "C2": 10 * falling, "C3": 0.1 * falling, "C4": 0.1 * falling}
    even, greedy = (replayed(scheduler, found, 200) for scheduler in (RoundRobin(), Gradient()))
    assert (greedy[60:] < even[60:]).all()
    assert {name for name in schedulers(0)} >= {"round robin", "gradient"}

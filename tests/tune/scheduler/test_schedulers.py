"""Who gets the next round: gradients by hand, groups, early stopping, exploration."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import inf, log

import pytest

from tests.measure.jobs import product
from tilewright.tune.scheduler.gradient import Gradient
from tilewright.tune.scheduler.groups import LEAVING, operations_of, reachable, tag_of
from tilewright.tune.scheduler.objectives import Objective, Requirements, Speedup, SumOfLatencies
from tilewright.tune.scheduler.round_robin import RoundRobin
from tilewright.tune.scheduler.state import Point, TaskScheduler, TaskState

GREEDY = Gradient(epsilon=0.0)
PAPER = Gradient(epsilon=0.0, decay=0.0)


def points(*seconds: float, size: int = 1) -> tuple[Point, ...]:
    """Rounds of equally many candidates."""
    return tuple(Point(size * number, each) for number, each in enumerate(seconds, 1))


def after(scheduler: TaskScheduler, tasks: Sequence[TaskState], rounds: int, gain: float = 0.9) -> list[int]:
    """The choices of so many rounds, each of which makes its task faster by ``gain``, as is not over."""
    states, chosen = list(tasks), list[int]()
    for _ in range(rounds):
        place = scheduler.next(states)
        if place is None:
            break
        task = states[place]
        now = 1.0 if not task.points else gain * task.seconds
        states[place] = replace(task, points=(*task.points, Point(len(task.points) + 1, now)))
        chosen.append(place)
    return chosen


def test_gradients_by_hand() -> None:
    """The formula of the paper, where rounds count as one."""
    tasks = [
        TaskState((3,), points(9.0, 8.0, 6.0, 5.0, 4.0)),
        TaskState((1,), points(8.0), flops=100, tag="a"),
        TaskState((2,), points(2.0, 2.0), flops=100, tag="a"),
        TaskState((1,), points(inf)),
        TaskState((0,), points(inf)),
    ]
    falls = PAPER.gradients(tasks)
    assert falls[0] == pytest.approx(3 * (0.2 * (4.0 - 8.0) / 3 + 0.8 * (-4.0 / 5)))
    assert falls[1] == pytest.approx(0.8 * min(-8.0 / 1, 2 * 100 / 50 - 8.0))
    assert falls[2] == pytest.approx(2 * (0.2 * 0.0 + 0.8 * min(-2.0 / 2, 4.0 - 2.0)))
    assert falls[3:] == [-inf, 0.0]
    assert GREEDY.next(tasks) == 3


def test_similar_tasks_promise_more_than_the_past() -> None:
    """A task of ten rounds that is four times as slow as its like could still become twice as fast."""
    slow = TaskState((1,), points(*[8.0] * (LEAVING - 1)), flops=400, tag="a")
    fast = TaskState((1,), points(2.0), flops=400, tag="a")
    (fall, _) = PAPER.gradients([slow, fast])
    assert fall == pytest.approx(0.8 * (2 * 2.0 - 8.0))
    (alone, _) = PAPER.gradients([slow, replace(fast, tag="b")])
    assert alone == pytest.approx(0.8 * -8.0 / 5)


def test_changes_are_per_candidate() -> None:
    """Rounds of eight: an eighth of the change for each candidate."""
    task = TaskState((1,), points(9.0, 6.0, size=8), flops=100, tag="a", next_trials=8)
    fast = TaskState((1,), points(1.0, size=8), flops=100, tag="a", next_trials=8)
    (fall, _) = PAPER.gradients([task, fast])
    assert fall == pytest.approx(0.2 * (6.0 - 9.0) / 8 + 0.8 * (2.0 - 6.0) / 8)


def test_a_tasks_own_promise_falls_with_its_candidates() -> None:
    """After its first round of four it is as in the paper; after 8 and 16 candidates a half and a quarter of that."""
    for rounds, part in ((1, 1.0), (2, 0.5), (4, 0.25)):
        task = TaskState((1,), points(*[3.0] * rounds, size=4))
        (fall, paper) = (each.gradients([task])[0] for each in (GREEDY, PAPER))
        assert paper == pytest.approx(0.8 * -3.0 / (4 * rounds))
        assert fall == pytest.approx(part * paper)


def test_a_task_that_stays_slow_leaves_its_group() -> None:
    fast = TaskState((1,), points(1.0), flops=100, tag="a")
    for seconds, left in ((3.0, True), (1.9, False)):
        for rounds in (LEAVING - 1, LEAVING):
            slow = TaskState((1,), points(*[seconds] * rounds), flops=100, tag="a")
            expected = inf if left and rounds == LEAVING else 2.0
            assert reachable([fast, slow], 1, beta=2.0) == expected
            assert reachable([fast, slow], 0, beta=2.0) == 2.0
    assert reachable([replace(fast, tag=None)], 0, beta=2.0) == inf
    assert reachable([TaskState((1,), points(inf), flops=100, tag="a")], 0, beta=2.0) == inf


def test_groups_are_of_one_structure_and_of_similar_size() -> None:
    assert operations_of(product("a", 64)) == 2 * 64**3
    # 2 * 64**3 and 2 * 66**3 are in one interval of ratio 1.618, 2 * 128**3 is not.
    assert int(log(2 * 64**3) / log(1.618)) == int(log(2 * 66**3) / log(1.618))
    assert tag_of(product("a", 64)) == tag_of(product("b", 66))
    assert tag_of(product("a", 64)) != tag_of(product("a", 128))


@pytest.mark.parametrize("scheduler", [GREEDY, RoundRobin()], ids=["gradient", "round robin"])
def test_each_task_has_a_round_first(scheduler: TaskScheduler) -> None:
    assert after(scheduler, [TaskState((1,)), TaskState((1000,)), TaskState((1,))], 3) == [0, 1, 2]


def test_round_robin_takes_turns() -> None:
    tasks = [TaskState((1,)), TaskState((1000,)), TaskState((1,), is_over=True)]
    assert after(RoundRobin(), tasks, 6) == [0, 1, 0, 1, 0, 1]
    assert RoundRobin().next([TaskState((1,), is_over=True)]) is None


def test_a_network_that_does_not_count_gets_the_first_round_only() -> None:
    """The check of appendix H: of n rounds, n - 1 and 1."""

    class First:
        """The second network is not looked at."""

        def value(self, latencies: Sequence[float]) -> float:
            return latencies[0]

        def slopes(self, latencies: Sequence[float]) -> tuple[float, ...]:
            return 1.0, 0.0

    objective: Objective = First()
    chosen = after(Gradient(objective, epsilon=0.5), [TaskState((1, 0)), TaskState((0, 1))], 20)
    assert Counter(chosen) == {0: 19, 1: 1}


def test_objectives_decide_where_rounds_go() -> None:
    """A network of 10 and one of 1, both as far from their ends."""
    tasks = [TaskState((10, 0), points(1.0)), TaskState((0, 1), points(1.0))]
    assert GREEDY.next(tasks) == 0
    assert Gradient(Requirements((10.0, 0.5)), epsilon=0.0).next(tasks) == 1
    assert Gradient(Requirements((10.0, 1.0))).next(tasks) is None
    assert Gradient(Speedup((10.0, 1.0))).gradients(tasks) == pytest.approx([-0.4, -0.4])


def test_requirements_end_the_search_when_they_are_met() -> None:
    tasks = [TaskState((1,)), TaskState((1,))]
    chosen = after(Gradient(Requirements((1.5,)), epsilon=0.0), tasks, 100)
    assert len(chosen) < 10
    assert chosen[:2] == [0, 1]


def test_a_task_without_gains_stops() -> None:
    stuck = TaskState((1000,), points(2.0, 1.0, 1.0, 1.0))
    assert stuck.idle_rounds == 2
    for scheduler in (Gradient(patience=3, epsilon=0.0), RoundRobin(patience=3)):
        assert scheduler.next([stuck]) == 0
    for stopping in (Gradient(patience=2), RoundRobin(patience=2)):
        assert stopping.next([stuck, TaskState((1,), points(1.0))]) == 1
        assert stopping.next([stuck]) is None
    assert TaskState((1,)).idle_rounds == 0
    assert TaskState((1,), points(inf, inf)).idle_rounds == 1


def test_exploration_takes_any_task_that_helps_a_part_of_the_time() -> None:
    tasks = [TaskState((calls,), points(1.0)) for calls in (1, 100, 1, 0)]
    chosen = Counter(Gradient(epsilon=0.3, seed=seed).next(tasks) for seed in range(600))
    assert chosen[3] == 0
    assert 30 < chosen[0] < 90
    assert 30 < chosen[2] < 90


def test_ties_are_drawn_and_follow_from_the_seed() -> None:
    tasks = [TaskState((1,), points(1.0)) for _ in range(3)]
    chosen = [Gradient(SumOfLatencies(), seed=seed).next(tasks) for seed in range(60)]
    assert set(chosen) == {0, 1, 2}
    assert chosen == [Gradient(SumOfLatencies(), seed=seed).next(tasks) for seed in range(60)]
    assert after(Gradient(seed=1), tasks, 30) == after(Gradient(seed=1), tasks, 30)


def test_the_gradient_needs_fewer_rounds_than_taking_turns() -> None:
    """Two networks' kernels, of which one is called often: by the geometric mean, at equal rounds."""
    tasks = [TaskState((1, 0)), TaskState((20, 0)), TaskState((1, 1)), TaskState((0, 9))]
    objective = Speedup((22.0, 10.0))

    def reached(scheduler: TaskScheduler) -> float:
        rounds = Counter(after(scheduler, tasks, 24))
        times = [0.9 ** (rounds[place] - 1) for place in range(len(tasks))]
        return -objective.value([sum(t.calls[n] * time for t, time in zip(tasks, times, strict=True)) for n in (0, 1)])

    assert reached(Gradient(objective)) > 1.1 * reached(RoundRobin())

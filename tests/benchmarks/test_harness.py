"""Interleaving, warm-up, medians and ratios, on a clock of our own."""

from dataclasses import dataclass, field

import pytest

from benchmarks.harness import (
    CandidateError,
    Local,
    Plan,
    Samples,
    Spread,
    interleave,
    measure,
    measure_survivors,
    ratio,
    run_slot,
    spread,
)


@dataclass(slots=True)
class Recorder:
    """A candidate that writes down when it was asked, and answers with the next of its slots."""

    name: str
    log: list[str]
    slots: list[list[float]] = field(default_factory=list[list[float]])

    def run_slot(self, plan: Plan) -> list[float]:
        self.log.append(self.name)
        return self.slots.pop(0)


class Time:
    """A clock that only moves when something is done."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = 0

    def work(self) -> None:
        self.now += 1.0 if self.calls < 2 else 0.25  # the first two calls are slow: they are the warm-up
        self.calls += 1


def test_every_candidate_has_one_slot_a_round() -> None:
    log: list[str] = []
    candidates = [Recorder("a", log, [[1.0], [2.0]]), Recorder("b", log, [[3.0, 4.0], [5.0]])]
    samples = measure(candidates, Plan(rounds=2))
    assert log == ["a", "b", "a", "b"]
    assert samples == {"a": Samples("a", ((1.0,), (2.0,))), "b": Samples("b", ((3.0, 4.0), (5.0,)))}
    assert "".join(interleave("abc", 2)) == "abcabc"


def test_a_candidate_that_fails_leaves_the_round() -> None:
    log: list[str] = []

    @dataclass
    class Failing(Recorder):
        def run_slot(self, plan: Plan) -> list[float]:
            if log.count(self.name) == 1:
                raise CandidateError("died")
            return Recorder.run_slot(self, plan)

    candidates = [Recorder("a", log, [[1.0], [2.0], [3.0]]), Failing("b", log, [[4.0]])]
    samples, failures = measure_survivors(candidates, Plan(rounds=3))
    assert samples == {"a": Samples("a", ((1.0,), (2.0,), (3.0,)))}
    assert failures == {"b": "died"}
    assert log == ["a", "b", "a", "a"]
    with pytest.raises(CandidateError, match="died"):
        measure([Failing("b", log, [])], Plan())


def test_candidates_need_different_names() -> None:
    with pytest.raises(ValueError, match="different names"):
        measure([Local("a", list), Local("a", list)], Plan())


def test_warm_up_is_discarded_and_slot_is_filled() -> None:
    time = Time()
    times = run_slot(time.work, Plan(slot=1.0, warm_up=2.0), lambda: time.now)
    assert times == [0.25] * 4


def test_slow_candidates_run_a_least_number_of_times() -> None:
    time = Time()
    times = run_slot(time.work, Plan(slot=0.0, warm_up=0.0, least_runs=5), lambda: time.now)
    assert times == [1.0, 0.25, 0.25, 0.25, 0.25]  # one call of warm-up even so


def test_local_candidate_is_called() -> None:
    calls: list[int] = []
    samples = measure([Local("count", lambda: calls.append(1))], Plan(rounds=3, slot=0.0, warm_up=0.0, least_runs=2))
    assert len(calls) == 3 * (1 + 2)
    assert [len(slot) for slot in samples["count"].slots] == [2, 2, 2]


def test_medians() -> None:
    samples = Samples("a", ((1.0, 9.0, 2.0), (4.0, 3.0), (100.0,)))
    assert samples.slot_medians == [2.0, 3.5, 100.0]
    assert samples.median == 3.5
    assert samples.spread == Spread(2.25, 3.5, 7.75)


def test_ratio_is_taken_within_rounds() -> None:
    slow = Samples("slow", ((2.0,), (20.0,), (40.0,)))  # the machine slows down tenfold: the ratio doesn't notice
    fast = Samples("fast", ((1.0,), (10.0,), (10.0,)))
    assert ratio(slow, fast) == Spread(2.0, 2.0, 3.0)
    assert str(ratio(slow, fast)) == "2.00 (2.00 to 3.00)"


def test_quartiles() -> None:
    assert spread([5.0]) == Spread(5.0, 5.0, 5.0)
    assert spread([4.0, 1.0, 3.0, 2.0, 5.0]) == Spread(2.0, 3.0, 4.0)


@pytest.mark.parametrize("plan", [{"rounds": 0}, {"least_runs": 0}, {"slot": -1.0}])
def test_impossible_plans(plan: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a plan needs"):
        Plan(**plan)

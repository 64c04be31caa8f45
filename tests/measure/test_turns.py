"""Times by a clock that tests turn themselves."""

from collections.abc import Callable

import pytest

from tilewright.measure.turns import Plan, Run, Timing, measure, ratio, spread


class Clock:
    """A clock that stands still but for ``spend``."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, costs: Callable[[int], float]) -> Run:
        """A run; its n-th one, from 0 on, takes ``costs(n)`` seconds."""
        count = 0

        def run() -> None:
            nonlocal count
            self.now += costs(count)
            count += 1

        return run


ONCE = Plan(rounds=8, slot=0.0, rest=0.0)
"""One run of each turn is counted."""


def test_candidates_take_turns_in_both_orders() -> None:
    clock, calls = Clock(), list[str]()

    def named(name: str, seconds: float) -> Run:
        return clock.spend(lambda _: calls.append(name) or seconds)

    both = {"a": named("a", 1.0), "b": named("b", 2.0)}
    timings = measure(both, Plan(rounds=3, slot=2.0, rest=0.0), clock)
    assert "".join(calls) == "aaabb" + "bbaaa" + "aaabb"
    assert timings == {"a": Timing(((1.0, 1.0),) * 3), "b": Timing(((2.0,),) * 3)}
    assert ratio(timings["b"], timings["a"]) == 2.0


def test_what_a_timing_tells() -> None:
    several = Timing(((1.0, 2.0, 3.0), (4.0, 5.0)))
    assert (several.median, several.least, several.quartiles, several.runs) == (3.0, 1.0, (2.0, 4.0), 5)
    a, b = Timing(((1.0,), (4.0,), (9.0,))), Timing(((2.0,), (2.0,), (3.0,)))
    assert (ratio(a, b), spread(a, b)) == (2.0, (0.5, 3.0))


def test_each_turn_begins_with_a_rest() -> None:
    clock, rests = Clock(), list[tuple[float, float]]()
    runs = {name: clock.spend(lambda _: 1.0) for name in "ab"}
    measure(runs, Plan(rounds=2, slot=0.0, rest=0.5), clock, lambda seconds: rests.append((clock.now, seconds)))
    assert rests == [(0.0, 0.5), (2.0, 0.5), (4.0, 0.5), (6.0, 0.5)]


def test_no_round_begins_after_the_budget() -> None:
    clock = Clock()
    timing = measure({"a": clock.spend(lambda _: 10.0)}, Plan(rounds=9, slot=0.0, rest=0.0, budget=30.0), clock)["a"]
    assert (timing.runs, clock.now) == (2, 40.0)


def test_there_is_one_round_whatever_the_budget() -> None:
    clock = Clock()
    timing = measure({"a": clock.spend(lambda _: 10.0)}, Plan(rounds=9, slot=0.0, rest=0.0, budget=0.0), clock)["a"]
    assert timing == Timing(((10.0,),))


def test_a_machine_that_slows_down_slows_down_both() -> None:
    clock = Clock()
    runs = {str(own): clock.spend(lambda _, own=own: own * (1.0 + clock.now)) for own in (0.01, 0.03)}
    timings = measure(runs, ONCE, clock)
    assert timings["0.03"].turns[-1] > timings["0.03"].turns[0]
    assert ratio(timings["0.03"], timings["0.01"]) == pytest.approx(3.0, rel=0.005)


def test_the_first_run_of_a_turn_is_not_counted() -> None:
    clock = Clock()
    last: list[str] = []

    def named(name: str, cost: float) -> Run:
        def run() -> None:
            clock.now += cost if last == [name] else 100.0 * cost
            last[:] = [name]

        return run

    timings = measure({"a": named("a", 1.0), "b": named("b", 2.0)}, ONCE, clock)
    assert timings == {"a": Timing(((1.0,),) * 8), "b": Timing(((2.0,),) * 8)}


def test_a_clock_that_does_not_tick() -> None:
    clock = Clock()
    timings = measure({name: clock.spend(lambda _: 0.0) for name in "ab"}, ONCE, clock)
    assert ratio(timings["b"], timings["a"]) == 1.0

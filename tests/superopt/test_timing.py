"""Times by a clock that tests turn themselves."""

from collections.abc import Callable

import pytest

from tilewright.superopt.timing import Patience, in_turns, seconds


class Clock:
    """A clock that stands still but for ``spend``."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, costs: Callable[[int], float]) -> Callable[[], None]:
        """A run; its n-th one takes ``costs(n)`` seconds."""
        count = 0

        def run() -> None:
            nonlocal count
            self.now += costs(count)
            count += 1

        run()
        return run


PATIENCE = Patience(rounds=9, budget=100.0, least=0.0)


def test_the_median_of_rounds() -> None:
    clock = Clock()
    run = clock.spend(lambda n: 50.0 if n == 1 else 9.0 if n % 3 == 0 else 2.0)
    assert seconds(run, clock, PATIENCE) == 2.0


def test_short_runs_are_timed_together() -> None:
    clock = Clock()
    counts: list[int] = []
    run = clock.spend(lambda n: counts.append(n) or 0.001)
    assert seconds(run, clock, Patience(rounds=3, budget=100.0, least=0.1)) == pytest.approx(0.001)
    assert len(counts) == 1 + 2 + 3 * 100


def test_no_round_begins_after_the_budget() -> None:
    clock = Clock()
    run = clock.spend(lambda _: 10.0)
    before = clock.now
    assert seconds(run, clock, Patience(rounds=9, budget=35.0, least=0.0)) == 10.0
    assert clock.now - before == 40.0


def test_a_machine_that_slows_down_slows_down_both() -> None:
    clock = Clock()
    first, second = (clock.spend(lambda _, own=own: own * (1.0 + clock.now)) for own in (0.001, 0.003))
    assert in_turns(first, second, clock, PATIENCE) == pytest.approx(3.0, rel=0.01)


def test_the_first_run_of_a_turn_is_not_counted() -> None:
    clock = Clock()
    last: list[str] = []

    def named(name: str, cost: float) -> Callable[[], None]:
        def run() -> None:
            clock.now += cost if last == [name] else 100.0 * cost
            last[:] = [name]

        return run

    patience = Patience(rounds=8, budget=1e6, least=0.0)
    assert in_turns(named("a", 1.0), named("b", 2.0), clock, patience) == pytest.approx(2.0)


def test_a_clock_that_does_not_tick() -> None:
    clock = Clock()
    run = clock.spend(lambda _: 0.0)
    assert seconds(run, clock, Patience(rounds=2, budget=1.0, least=1e-8)) > 0.0

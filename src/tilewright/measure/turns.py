"""Interleaved timing: all candidates take turns, round by round, so that the machine's noise hits them alike.

timings = measure({"old": run_old, "new": run_new}, Plan(rounds=8, slot=0.2))
ratio(timings["new"], timings["old"])
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Run = Callable[[], object]
"""A timed function, which can be called repeatedly."""
Clock = Callable[[], float]
"""A clock in seconds, with any origin."""

_TICK = 1e-9
"""Minimum seconds of a run: the clock may not have ticked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of interleaved timing; times in seconds.

    ``slot``: no run begins after this time of a turn; ``rest``: pause before a turn, in which the previous one's
    threads go to sleep; ``budget``: no round except the first begins after that.
    """

    rounds: int = 8
    slot: float = 0.2
    rest: float = 0.1
    budget: float = math.inf


@dataclass(frozen=True, slots=True)
class Timing:
    """The seconds of each run of one candidate, turn by turn."""

    turns: tuple[tuple[float, ...], ...]

    @property
    def median(self) -> float:
        """The median of all runs."""
        return statistics.median(seconds for turn in self.turns for seconds in turn)

    @property
    def least(self) -> float:
        """The fastest run."""
        return min(seconds for turn in self.turns for seconds in turn)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and the upper quartile of all runs."""
        runs = sorted(seconds for turn in self.turns for seconds in turn)
        return runs[len(runs) // 4], runs[(3 * len(runs)) // 4]

    @property
    def runs(self) -> int:
        """The number of timed runs."""
        return sum(map(len, self.turns))

    @property
    def medians(self) -> list[float]:
        """The median of each turn."""
        return [statistics.median(turn) for turn in self.turns]


def measure(
    candidates: Mapping[str, Run],
    plan: Plan,
    clock: Clock = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Timing]:
    """Time all candidates in turns, in alternating order, so that a drift of the machine affects all alike.

    The first run of each turn is not counted: the caches contain another candidate's data.
    """
    turns: dict[str, list[tuple[float, ...]]] = {name: [] for name in candidates}
    order, end = list(candidates), clock() + plan.budget
    for number in range(plan.rounds):
        if number > 0 and clock() >= end:
            break
        for name in order:
            sleep(plan.rest)
            turns[name].append(_turn(candidates[name], plan.slot, clock))
        order.reverse()
    return {name: Timing(tuple(of_name)) for name, of_name in turns.items()}


def _turn(run: Run, slot: float, clock: Clock) -> tuple[float, ...]:
    run()
    runs: list[float] = []
    end = clock() + slot
    while not runs or clock() < end:
        begin = clock()
        run()
        runs.append(max(clock() - begin, _TICK))
    return tuple(runs)


def ratio(a: Timing, b: Timing) -> float:
    """The ratio of the times of ``a`` and ``b``: the median, over the rounds, of the ratio of the turns' medians."""
    return statistics.median(_ratios(a, b))


def spread(a: Timing, b: Timing) -> tuple[float, float]:
    """The minimum and the maximum of the ratios over the rounds."""
    return min(_ratios(a, b)), max(_ratios(a, b))


def _ratios(a: Timing, b: Timing) -> list[float]:
    return [x / y for x, y in zip(a.medians, b.medians, strict=True)]

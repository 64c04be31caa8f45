"""A network with and without the results of a search, measured in turns."""

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.graph import Array
from tilewright.measure.turns import Plan, Timing, measure, ratio
from tilewright.model import CompiledModel

COMPARING = Plan(rounds=24, slot=0.1, rest=0.02, budget=30.0)
"""Many short rounds: few of them contain a change of the machine's clock speed between the two models."""
ALONE = Plan(rounds=3, slot=0.1, rest=0.02)
MOST = 0.75
"""The fraction of rounds that a model must win to count as faster."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Times of the whole model with and without the results, measured in turns; ``is_found``: the two differ."""

    before: Timing
    after: Timing
    is_found: bool = True

    @property
    def ratio(self) -> float:
        """The ratio of the two times, per round."""
        return ratio(self.after, self.before) if self.is_found else 1.0

    @property
    def is_kept(self) -> bool:
        """Whether it is faster with the results in three rounds of four.

        By chance, this happens once in a hundred times in 24 rounds, and more often with a model so slow that fewer
        rounds fit into the budget.

        Medians over all runs are not used: if the machine changes its clock speed every few seconds, one median may
        come from slow seconds and the other from fast ones.
        """
        return self.is_found and _wins(self.after, self.before)

    @property
    def is_slower(self) -> bool:
        """Whether it is slower with the results in three rounds of four."""
        return self.is_found and not self.is_kept and _wins(self.before, self.after)


def _wins(one: Timing, other: Timing) -> bool:
    rounds = list(zip(one.medians, other.medians, strict=True))
    return sum(a < b for a, b in rounds) >= MOST * len(rounds)


def in_turns(before: CompiledModel, after: CompiledModel, feeds: Mapping[str, Array]) -> Comparison:
    """Run both on the same inputs."""
    runs = {"before": lambda: before.run(None, feeds), "after": lambda: after.run(None, feeds)}
    timings = measure(runs, COMPARING)
    return Comparison(timings["before"], timings["after"])


def seconds_of(model: CompiledModel, feeds: Mapping[str, Array]) -> float:
    """The median time of a run, in a few turns."""
    return measure({"alone": lambda: model.run(None, feeds)}, ALONE)["alone"].median

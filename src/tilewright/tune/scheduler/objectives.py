"""Objectives over the latencies of networks that are tuned together (Zheng et al. 2020, table 2), to be minimized.

The fourth of the table, early stopping of tasks, goes with each of these: see ``state.open_tasks``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Protocol

from tilewright.tune.scheduler.state import TaskState


class Objective(Protocol):
    """A function of the latencies of networks, in seconds."""

    def value(self, latencies: Sequence[float]) -> float:
        """The smaller, the better."""
        ...

    def slopes(self, latencies: Sequence[float]) -> tuple[float, ...]:
        """The derivative by each latency; all are at least 0."""
        ...


@dataclass(frozen=True, slots=True)
class SumOfLatencies:
    """f1: the sum of all latencies."""

    def value(self, latencies: Sequence[float]) -> float:
        """In seconds."""
        return sum(latencies)

    def slopes(self, latencies: Sequence[float]) -> tuple[float, ...]:
        """All 1."""
        return (1.0,) * len(latencies)


@dataclass(frozen=True, slots=True)
class Requirements:
    """f2: as f1, but a network that is as fast as required counts as exactly that. ``seconds``: of each network."""

    seconds: tuple[float, ...]

    def value(self, latencies: Sequence[float]) -> float:
        """In seconds."""
        return sum(map(max, latencies, self.seconds))

    def slopes(self, latencies: Sequence[float]) -> tuple[float, ...]:
        """1 where a network is too slow, else 0."""
        return tuple(
            1.0 if latency > required else 0.0 for latency, required in zip(latencies, self.seconds, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Speedup:
    """f3: the negated geometric mean of speedups. ``references``: seconds of each network that count as 1."""

    references: tuple[float, ...]

    def value(self, latencies: Sequence[float]) -> float:
        """Without a unit."""
        ratios = (reference / latency for reference, latency in zip(self.references, latencies, strict=True))
        return -(prod(ratios) ** (1 / len(latencies)))

    def slopes(self, latencies: Sequence[float]) -> tuple[float, ...]:
        """Large for fast networks: the same gain is a larger part of them."""
        mean = -self.value(latencies)
        return tuple(mean / (len(latencies) * latency) for latency in latencies)


def latencies_of(tasks: Sequence[TaskState], untuned: Sequence[float] | None = None) -> tuple[float, ...]:
    """Estimated seconds of each network: the sum over its kernels. Those without a right candidate are left out.

    ``untuned``: measured seconds of each network with the analytic choices. What their kernels do not account for is
    then added: it stays as it is.
    """
    known = [task for task in tasks if task.seconds < inf]
    sums = [sum(task.calls[network] * task.seconds for task in known) for network in range(len(tasks[0].calls))]
    if untuned is None:
        return tuple(sums)
    saved = [sum(task.calls[network] * task.saved for task in known) for network in range(len(sums))]
    return tuple(map(_with_rest, sums, saved, untuned))


def _with_rest(tuned: float, saved: float, untuned: float) -> float:
    return tuned + max(0.0, untuned - (tuned + saved))

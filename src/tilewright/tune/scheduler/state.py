"""The state of a task, and the protocol of what chooses among tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Point:
    """After a round: candidates so far, and seconds of the fastest one (infinity if none was right)."""

    trials: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskState:
    """What is known of a task.

    ``calls``: how often a run of each network computes it. ``points``: after each of its rounds. ``flops``: operations
    of one call. ``tag``: equal for tasks of the same structure; None: like no other. ``next_trials``: candidates of its
    next round. ``untuned``: seconds of the analytic choice; None if that is not known. ``is_over``: nothing is left to
    try.
    """

    calls: tuple[float, ...]
    points: tuple[Point, ...] = ()
    flops: int = 0
    tag: str | None = None
    next_trials: int = 1
    untuned: float | None = None
    is_over: bool = False

    @property
    def seconds(self) -> float:
        """Of the fastest candidate; infinity if none was right yet."""
        return self.points[-1].seconds if self.points else inf

    @property
    def saved(self) -> float:
        """Seconds by which a call became faster than the analytic choice."""
        return 0.0 if self.untuned is None or self.seconds == inf else max(0.0, self.untuned - self.seconds)

    @property
    def speed(self) -> float:
        """Operations per second; 0 if none was right yet."""
        return self.flops / self.seconds

    @property
    def idle_rounds(self) -> int:
        """Rounds since the last one that found something faster."""
        return max(0, sum(point.seconds == self.seconds for point in self.points) - 1)


class TaskScheduler(Protocol):
    """Chooses the task of the next round."""

    def next(self, tasks: Sequence[TaskState]) -> int | None:
        """The position of a task that is not over; None if none needs another round."""
        ...


def open_tasks(tasks: Sequence[TaskState], patience: int | None) -> list[int]:
    """Positions of tasks with something to try, except those that found nothing in their last ``patience`` rounds.

    That is the fourth objective of Zheng et al.: early stopping of single tasks.
    """
    return [
        place
        for place, task in enumerate(tasks)
        if not task.is_over and (patience is None or task.idle_rounds < patience)
    ]


def first_rounds(tasks: Sequence[TaskState], among: Sequence[int]) -> int | None:
    """The first task without a round, as each gets one before any gets a second; None if all had one."""
    return next((place for place in among if not tasks[place].points), None)

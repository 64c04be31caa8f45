"""Equally many rounds for all tasks: what the gradient scheduler is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.tune.scheduler.state import TaskState, open_tasks


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """``patience``: rounds without a gain after which a task stops."""

    patience: int | None = None

    def next(self, tasks: Sequence[TaskState]) -> int | None:
        """The first of the tasks with the fewest rounds."""
        among = open_tasks(tasks, self.patience)
        return min(among, key=lambda place: len(tasks[place].points), default=None)

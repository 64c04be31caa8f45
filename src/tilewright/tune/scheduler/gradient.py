"""The gradient scheduler: the next round goes to the task by which the objective is expected to fall fastest.

The expected change of the objective f per candidate of task i (Zheng et al. 2020, section 6.2, and appendix A) is

    df/dg * (alpha * (g(t) - g(t - dt)) / dt  +  (1 - alpha) * min(-g(t) / t, beta * C / max V - g(t)))

``g``: seconds of the task's fastest candidate after ``t`` candidates; the first term is the recent gain, over a window
of rounds; the second an optimistic bound of the next one: as much again as each candidate so far could have gained, or
the speed of similar tasks (``C``: operations of the task, ``V``: operations per second of tasks of its group).

Two things are not as in the paper, and measured to be better (``benchmarks/scheduling.py``). There rounds are equally
large, and count as one; here small rounds come first, so changes are per candidate: that of similar tasks is reached
within the next round. And a search finds most at first: ``g / t`` is multiplied by the part of the candidates that the
first round had, as if what is left to find were inverse to their number (``decay=0``: it is not).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from tilewright.tune.scheduler.groups import reachable
from tilewright.tune.scheduler.objectives import Objective, SumOfLatencies, latencies_of
from tilewright.tune.scheduler.state import TaskState, first_rounds, open_tasks

ALPHA, BETA, WINDOW = 0.2, 2.0, 3
"""Of the released Ansor: weight of the past, trust in similar tasks, rounds over which recent gains are computed."""
DECAY = 1.0
"""The power of a task's number of candidates, relative to its first round, by which its own promise falls."""
EPSILON = 0.05
"""How often any task that could help is chosen."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """Greedy by gradients, except for a part ``epsilon`` of all rounds.

    ``untuned``: measured seconds of each network with the analytic choices (see ``latencies_of``). ``patience``: rounds
    without a gain after which a task stops.
    """

    objective: Objective = field(default_factory=SumOfLatencies)
    untuned: tuple[float, ...] | None = None
    patience: int | None = None
    epsilon: float = EPSILON
    seed: int = 0
    alpha: float = ALPHA
    beta: float = BETA
    window: int = WINDOW
    decay: float = DECAY

    def next(self, tasks: Sequence[TaskState]) -> int | None:
        """First each task once, in order; then by gradients. Tasks that can't lower the objective get no round."""
        among = open_tasks(tasks, self.patience)
        fresh = first_rounds(tasks, among)
        if fresh is not None or not among:
            return fresh
        falls = self.gradients(tasks)
        helpful = [place for place in among if falls[place] < 0]
        if not helpful:
            return None
        # The generator follows from the state alone: a search that is resumed draws the same.
        random = np.random.default_rng((self.seed, sum(len(task.points) for task in tasks)))
        if random.random() < self.epsilon:
            return int(random.choice(helpful))
        steepest = min(falls[place] for place in helpful)
        return int(random.choice([place for place in helpful if falls[place] == steepest]))

    def gradients(self, tasks: Sequence[TaskState]) -> list[float]:
        """The expected change of the objective per further candidate of each task, at most 0.

        Negative infinity for a task that counts and has no right candidate yet.
        """
        slopes = self.objective.slopes(latencies_of(tasks, self.untuned))
        weights = [sum(slope * calls for slope, calls in zip(slopes, task.calls, strict=True)) for task in tasks]
        return [weight * self._fall(tasks, place) if weight else 0.0 for place, weight in enumerate(weights)]

    def _fall(self, tasks: Sequence[TaskState], place: int) -> float:
        """The expected change of a task's seconds per further candidate."""
        task = tasks[place]
        if task.seconds == inf:
            return -inf
        similar = (reachable(tasks, place, self.beta) - task.seconds) / task.next_trials
        trials = task.points[-1].trials
        own = -task.seconds / trials * (task.points[0].trials / trials) ** self.decay
        possible = min(own, similar)
        return self.alpha * self._recent(task) + (1 - self.alpha) * possible

    def _recent(self, task: TaskState) -> float:
        """The change per candidate in the last rounds; 0 where nothing was right before."""
        now, before = task.points[-1], task.points[-1 - min(self.window, len(task.points) - 1)]
        gained = now.trials > before.trials and before.seconds < inf
        return (now.seconds - before.seconds) / (now.trials - before.trials) if gained else 0.0

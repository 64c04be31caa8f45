"""What is asked of a search for networks."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import BadInput
from tilewright.base.search import Goal, Model, Scheduling, Search, Spaces
from tilewright.tune.kernel_tuner import Setup
from tilewright.tune.scheduler.gradient import Gradient
from tilewright.tune.scheduler.objectives import Objective, Requirements, Speedup, SumOfLatencies
from tilewright.tune.scheduler.round_robin import RoundRobin
from tilewright.tune.scheduler.state import TaskScheduler
from tilewright.tune.strategy import Models, Searches


@dataclass(frozen=True, slots=True)
class Plan:
    """``minutes``: of searching, for all networks together. ``requirements``: seconds of each network, for the goal of
    that name; else empty. ``patience``: rounds without a gain after which a kernel is searched no more; None: never.

    Raises ``BadInput`` for requirements that do not go with the goal.
    """

    minutes: float = 10.0
    search: Searches = Search.ANNEALING
    model: Models = Model.TREES
    spaces: Spaces = Spaces.TEMPLATES
    seed: int = 0
    transfer: bool = True
    goal: Goal = Goal.SUM
    requirements: tuple[float, ...] = ()
    scheduling: Scheduling = Scheduling.GRADIENT
    patience: int | None = None

    def __post_init__(self) -> None:
        if (self.goal is Goal.REQUIREMENTS) != bool(self.requirements):
            raise BadInput(
                "requirements are given, but the objective is another one: ask for the objective requirements"
                if self.requirements
                else "the objective requirements needs the time that is required of each model: give --requirement"
            )
        if self.scheduling is Scheduling.ROUND_ROBIN and self.goal is not Goal.SUM:
            raise BadInput(f"round-robin looks at no objective: leave {self.goal.value} out, or ask for gradient")

    @property
    def measures_first(self) -> bool:
        """Whether the scheduler has to know how long untuned networks take."""
        return self.goal is not Goal.SUM

    def setup(self, threads: int) -> Setup:
        """Of each kernel's search."""
        return Setup(
            seed=self.seed,
            threads=threads,
            search=self.search,
            model=self.model,
            spaces=self.spaces,
            transfer=self.transfer,
        )

    def scheduler(self, untuned: Sequence[float]) -> TaskScheduler:
        """``untuned``: seconds of each network before the search; empty if they were not asked for."""
        if self.scheduling is Scheduling.ROUND_ROBIN:
            return RoundRobin(self.patience)
        return Gradient(self._objective(untuned), tuple(untuned) or None, self.patience, seed=self.seed)

    def _objective(self, untuned: Sequence[float]) -> Objective:
        match self.goal:
            case Goal.SUM:
                return SumOfLatencies()
            case Goal.REQUIREMENTS:
                return Requirements(self.requirements)
            case Goal.SPEEDUP:
                return Speedup(tuple(untuned))

"""The space of a kernel's schedules that the compiler itself chooses from, as a tuner searches it."""

from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.cost.analytic import open_space
from tilewright.cost.model import best, estimate
from tilewright.kernels.space import Candidate, Knob, Nest, Population, Space
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.tune.space import Digits, Floats, Mask


@dataclass(frozen=True, slots=True)
class KernelSpace:
    """All candidates of ``naive``: the knobs of its nests, one after the other."""

    naive: Program
    target: Target
    opened: Schedule
    """The program with everything inlined that is inlined in all candidates. Not to be changed: ``schedule`` copies."""
    space: Space

    @staticmethod
    def of(naive: Program, target: Target) -> "KernelSpace":
        """The space of a naive program. Raises ``ScheduleError`` if it has no schedules."""
        opened = Schedule(naive)
        return KernelSpace(naive, target, opened, open_space(opened, target))

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Those of all nests."""
        return tuple(knob for nest in self.space.nests for knob in nest.knobs)

    @property
    def radices(self) -> tuple[int, ...]:
        """How many values each knob has."""
        return tuple(len(knob.values) for knob in self.knobs)

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates have numbers that go together."""
        mask = np.ones(len(digits), np.bool_)
        for nest, population in self._populations(digits):
            mask &= nest.allowed(population)
        return mask

    def estimates(self, digits: Digits) -> Floats:
        """What the analytic model thinks of each candidate, in cycles of its nests together: smaller is better."""
        total = np.zeros(len(digits))
        for nest, population in self._populations(digits):
            total += estimate(nest, population, self.target)
        return total

    def numbers(self, digits: Digits) -> Digits:
        """The values of the knobs."""
        columns = [np.array(knob.values, np.int64)[digits[:, place]] for place, knob in enumerate(self.knobs)]
        return np.stack(columns, axis=1) if columns else np.zeros((len(digits), 0), np.int64)

    def features(self, digits: Digits) -> Floats:
        """The numbers of the knobs, as logarithms."""
        return np.log2(1.0 + self.numbers(digits))

    def candidate(self, digits: Digits) -> Candidate:
        """The choices of one candidate."""
        return Candidate(tuple(population[0] for _, population in self._populations(digits[None])))

    def digits(self, candidate: Candidate) -> Digits:
        """The digits of one candidate. Raises ``ScheduleError`` if it is of another space."""
        numbers = [number for choice in candidate.choices for number in choice]
        if len(numbers) != len(self.knobs):
            raise ScheduleError(f"{self.naive.name} has {len(self.knobs)} knobs, and {len(numbers)} numbers are given")
        return np.array([k.values.index(number) for k, number in zip(self.knobs, numbers, strict=True)], np.int64)

    def analytic(self) -> Digits:
        """The candidate that the compiler takes where nothing was measured."""
        return self.digits(best(self.space, self.target))

    def schedule(self, digits: Digits) -> Schedule:
        """The scheduled program of one candidate. Raises ``ScheduleError`` if there is none."""
        scheduled = self.opened.copy()
        self.space.apply(scheduled, self.candidate(digits))
        return scheduled

    def _populations(self, digits: Digits) -> list[tuple[Nest, Population]]:
        """The numbers of each nest."""
        found: list[tuple[Nest, Population]] = []
        numbers, start = self.numbers(digits), 0
        for nest in self.space.nests:
            end = start + len(nest.knobs)
            found.append((nest, Population(tuple(knob.name for knob in nest.knobs), numbers[:, start:end])))
            start = end
        return found

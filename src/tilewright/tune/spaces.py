"""The search spaces of the compiler's kernels, derived from their nests."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.search import Spaces
from tilewright.cost.analytic import open_space
from tilewright.cost.model import best, estimate
from tilewright.cost.recurrence import is_recurrent
from tilewright.kernels.contraction import Contraction
from tilewright.kernels.nests import Nest, Nests, Tiles
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.sketch import SketchRule, sketch_spaces
from tilewright.space.population import Choice, IntArray, Population
from tilewright.space.space import Candidates, Digits, Floats, Mask, Space
from tilewright.space.union import Union
from tilewright.target.target import Target
from tilewright.tune.contraction_space import contraction_space

TEMPLATE = "template"
"""What the compiler's own space is called in a union and in records; sketches are called by their rules."""


def candidates_of(
    naive: Program,
    target: Target,
    spaces: Spaces = Spaces.TEMPLATES,
    rules: Sequence[SketchRule] = (),
    *,
    standard: bool = True,
    threads: int | None = None,
) -> Candidates | None:
    """What is searched for a naive program; None if there is nothing to choose.

    ``rules``: one's own, of sketches; ``standard``: whether those of the target are asked, too; ``threads``: that
    sketches are for, by default one for each core.
    """
    members: list[tuple[str, Space]] = []
    if spaces is not Spaces.SKETCHES:
        members.append((TEMPLATE, space_of(naive, target)))
    if spaces is not Spaces.TEMPLATES and not is_recurrent(naive):
        made = sketch_spaces(naive, target, rules, standard=standard, threads=threads)
        members += [(str(sketch), space) for sketch, space in made]
    members = [(label, space) for label, space in members if space.knobs]
    if not members:
        return None
    if spaces is Spaces.TEMPLATES:
        return members[0][1]
    return Union(tuple(space for _, space in members), tuple(label for label, _ in members))


def space_of(naive: Program, target: Target) -> Space:
    """The space of a naive program: the larger one, if it ends with a contraction without dot-product instructions."""
    opened = Schedule(naive)
    nests = open_space(opened, target)
    last = nests.nests[-1] if nests.nests else None
    # A tile class with its own schedule has the space of its knobs.
    if last is not None and type(last) is Tiles and isinstance(last.roles, Contraction) and last.instruction is None:
        return contraction_space(naive, target, opened, nests, last)
    return _of_nests(naive, target, opened, nests)


def kernel_space(naive: Program, target: Target) -> Space:
    """The compiler's own space of a naive program, for any nests."""
    opened = Schedule(naive)
    return _of_nests(naive, target, opened, open_space(opened, target))


def _of_nests(naive: Program, target: Target, opened: Schedule, nests: Nests) -> Space:
    return Space(naive, target, opened, nests.generate, nests.knobs, OfNests(nests, target))


@dataclass(frozen=True, slots=True)
class OfNests:
    """Analytic estimates for the nests of a kernel (``Known``): their knobs, one nest after the other."""

    nests: Nests
    target: Target

    @property
    def first(self) -> Digits:
        """The compiler's choice without measurements."""
        return self._digits(best(self.nests, self.target))

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates have valid combinations of values."""
        mask = np.ones(len(digits), np.bool_)
        for nest, population in self._populations(digits):
            mask &= nest.allowed(population)
        return mask

    def estimates(self, digits: Digits) -> Floats:
        """The analytic model's estimate of each candidate, in cycles of all nests: smaller is better."""
        total = np.zeros(len(digits))
        for nest, population in self._populations(digits):
            total += estimate(nest, population, self.target)
        return total

    def _digits(self, choices: tuple[Choice, ...]) -> Digits:
        numbers = [number for choice in choices for number in choice]
        places = [knob.values.index(number) for knob, number in zip(self.nests.knobs, numbers, strict=True)]
        return np.array(places, np.int64)

    def _populations(self, digits: Digits) -> list[tuple[Nest, Population]]:
        """The values of the knobs of each nest."""
        found: list[tuple[Nest, Population]] = []
        start = 0
        for nest in self.nests.nests:
            names = tuple(knob.name for knob in nest.knobs)
            numbers: IntArray = np.empty((len(digits), len(names)), np.int64)
            for place, knob in enumerate(nest.knobs):
                numbers[:, place] = np.array(knob.values, np.int64)[digits[:, start + place]]
            found.append((nest, Population(names, numbers)))
            start += len(names)
        return found

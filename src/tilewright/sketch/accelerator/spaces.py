"""The spaces of a program's sketches for the accelerator: only candidates that fit its memories, with estimates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Timing
from tilewright.base.errors import BadProgram, ScheduleError, Unsupported
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.sketch.accelerator.computation import Computation, computation_of
from tilewright.sketch.accelerator.decision import Decision
from tilewright.sketch.accelerator.estimate import estimate
from tilewright.sketch.accelerator.placed import placed
from tilewright.sketch.accelerator.room import fits
from tilewright.sketch.accelerator.rules import rules_for
from tilewright.sketch.derive import Sketch, sketches
from tilewright.sketch.structure import Structure
from tilewright.space.config import Collector
from tilewright.space.config import Config as Decisions
from tilewright.space.knobs import Knob, Value
from tilewright.space.space import Digits, Floats, Mask, Space
from tilewright.space.union import Union
from tilewright.target.target import Target

MEMORIES = Structure("SSRS", (1,), virtual_threads=4)
"""Tiles of the result; those that virtual threads compute by turns; stages of what is summed; inside of both."""
_SAMPLED, _CLIMBED = 1024, 6
"""Candidates at random of which the best ones are improved, knob by knob, to find the first candidate of a space."""


@dataclass(frozen=True, slots=True)
class Generated:
    """The generator (``space.config.Generator``) of a sketch: from a placed schedule to one for the accelerator."""

    sketch: Sketch
    target: Target

    def __call__(self, s: Schedule, decisions: Decisions) -> None:
        draft = self.sketch.draft(s, decisions, self.target)
        for tile in draft.tiles.values():
            if tile.instruction is not None:
                s.tensorize(tile.vector, tile.instruction.intrinsic)


def sketches_for(naive: Program, config: Config, target: Target) -> tuple[Sketch, ...]:
    """The sketches of a program. Raises ``Unsupported`` for what the accelerator can't compute."""
    return _derived(placed(naive, config), config, target)[1]


def _derived(begun: Schedule, config: Config, target: Target) -> tuple[Computation, tuple[Sketch, ...]]:
    computation = computation_of(begun.program, config)
    rules = rules_for(computation, config)
    return computation, sketches(begun.program, target, rules, standard=False, structure=MEMORIES)


@dataclass(frozen=True)
class InCycles(Union):
    """Spaces whose estimates are comparable: the one that begins with the best candidate is the first."""

    @staticmethod
    def of(labelled: Sequence[tuple[str, Space]]) -> "InCycles":
        """Spaces with their labels, which all know a first candidate."""
        ordered = sorted(labelled, key=lambda pair: _first_cycles(pair[1]))
        return InCycles(tuple(space for _, space in ordered), tuple(label for label, _ in ordered))

    @property
    def labelled(self) -> list[tuple[str, Space]]:
        """The members, each with its label."""
        return list(zip(self.labels, self.members, strict=True))

    def estimates(self, digits: Digits) -> Floats:
        """Cycles."""
        result = np.zeros(len(digits))
        for position, member in enumerate(self.members):
            rows = np.flatnonzero(digits[:, 0] == position)
            own = member.estimates(digits[rows, 1 : 1 + len(member.radices)])
            assert own is not None, "all members have estimates"
            result[rows] = own
        return result


def _first_cycles(space: Space) -> float:
    assert space.known is not None, "spaces for the accelerator have estimates"
    return float(space.known.estimates(space.known.first[None])[0])


def sketch_space(naive: Program, config: Config, timing: Timing, target: Target) -> InCycles:
    """All sketches of ``naive``, with those candidates that fit the memories.

    Raises ``Unsupported`` for what the accelerator can't compute, ``BadProgram`` if no tile fits.
    """
    begun = placed(naive, config)
    computation, found = _derived(begun, config, target)
    members = list(_spaces(naive, begun, computation, found, (config, timing, target)))
    if not found:
        raise Unsupported(f"{naive.name} has no schedule for the accelerator by the rules of sketches\n\n{naive}")
    if not members:
        raise BadProgram(f"no tile of {naive.name} fits {config.name}; use one virtual thread or larger memories")
    return InCycles.of(members)


def _spaces(
    naive: Program,
    begun: Schedule,
    computation: Computation,
    found: Sequence[Sketch],
    device: tuple[Config, Timing, Target],
) -> Iterator[tuple[str, Space]]:
    """Each sketch that has any candidate, with its space."""
    config, timing, target = device
    for sketch in found:
        generator, collector = Generated(sketch, target), Collector()
        try:
            generator(begun.copy(), collector)
        except ScheduleError as error:
            raise Unsupported(f"the accelerator {config.name} can't compute {naive.name}: {error}") from error
        knobs = tuple(collector.knobs)
        known = Known(computation, config, timing, knobs)
        if known.best is not None:
            yield str(sketch), Space(naive, target, begun, generator, knobs, known, known.fitting)


@dataclass(frozen=True)
class Known:
    """What is known without simulating (``space.Known``): which candidates fit, and estimates of cycles."""

    computation: Computation
    config: Config
    timing: Timing
    knobs: tuple[Knob[Value], ...]

    def allowed(self, digits: Digits) -> Mask:
        """Those that no other candidate is the same schedule as."""
        return np.array([self._decision(row).is_plain for row in digits], np.bool_)

    def fitting(self, digits: Digits) -> Mask:
        """Those that the memories have room for."""
        return np.array([fits(self._decision(row), self.config) for row in digits], np.bool_)

    def estimates(self, digits: Digits) -> Floats:
        """Cycles."""
        found = [estimate(self._decision(row), self.config, self.timing) for row in digits]
        return np.array(found, np.float64)

    @property
    def first(self) -> Digits:
        """The best candidate by the estimate."""
        assert self.best is not None, "spaces have candidates"
        return self.best

    @cached_property
    def best(self) -> Digits | None:
        """What some climbs find, from the best ones of a sample; None if nothing fits."""
        radices, random = [len(knob.values) for knob in self.knobs], np.random.default_rng(0)
        sampled = random.integers(0, np.array(radices, np.int64), (_SAMPLED, len(radices)))
        sampled = np.concatenate([np.zeros((1, len(radices)), np.int64), sampled])
        fitting = sampled[self.allowed(sampled) & self.fitting(sampled)]
        starts = fitting[np.argsort(self.estimates(fitting), kind="stable")[:_CLIMBED]]
        found = [self._climbed(start) for start in starts]
        return min(found, key=lambda row: self.estimates(row[None])[0], default=None)

    def _climbed(self, start: Digits) -> Digits:
        """The best candidate that is reached by changing one decision, or two, at a time."""
        now, least = start, self._rated(start)
        while True:
            others = [row for row in self._beside(now) if self._fits(self._decision(row))]
            rated = [(self._rated(row), place) for place, row in enumerate(others)]
            better, place = min(rated, default=(least, 0))
            if better >= least:
                return now
            now, least = others[place], better

    def _beside(self, now: Digits) -> Iterator[Digits]:
        """With another decision, or with two that are the next values of their knobs."""
        radices = [len(knob.values) for knob in self.knobs]
        for place, radix in enumerate(radices):
            for digit in set(range(radix)) - {int(now[place])}:
                row = now.copy()
                row[place] = digit
                yield row
        for first, second in combinations(range(len(radices)), 2):
            for steps in product((-1, 1), repeat=2):
                row = now.copy()
                row[[first, second]] += steps
                if (row >= 0).all() and (row < radices).all():
                    yield row

    def _rated(self, row: Digits) -> float:
        return estimate(self._decision(row), self.config, self.timing)

    def _fits(self, decision: Decision) -> bool:
        return decision.is_plain and fits(decision, self.config)

    def _decision(self, row: Digits) -> Decision:
        values = {knob.name: knob.values[int(digit)] for knob, digit in zip(self.knobs, row, strict=True)}
        return Decision.of(self.computation, values)


def best_schedule(naive: Program, config: Config, timing: Timing, target: Target) -> Schedule:
    """The schedule that is estimated to take least cycles, of all sketches. Raises as ``sketch_space``."""
    space = sketch_space(naive, config, timing, target)
    first = space.analytic()
    assert first is not None, "spaces begin with a candidate"
    return space.schedule(first)

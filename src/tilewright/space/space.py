"""``Space``: all schedules that a generator makes of one program.

A *generator* schedules a program, and takes each open decision from a ``Config``: a *candidate* is the schedule for one
set of decisions, and the *knobs* are the decisions with their possible values. Searchers see a finite set: a candidate
is a mixed-radix number with a digit for each knob, the position of the decision among the knob's values. A *population*
is an array of digits, a row for each candidate and a column for each knob; searchers and models work on whole
populations at once. Candidate ``index`` has the digits of ``index``, the first knob's least significant.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import ScheduleError
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.space.config import Collector, Decided, Generator
from tilewright.space.knobs import Knob, Value, spelled
from tilewright.space.tables import knob_features, table_of
from tilewright.space.variation import crossed, varied
from tilewright.target.target import Target

Digits: TypeAlias = NDArray[np.int64]
"""Shape (candidates, knobs), or (knobs,) for one candidate."""
Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]


class Searchable(Protocol):
    """The interface of a space for searchers."""

    @property
    def radices(self) -> tuple[int, ...]:
        """The number of values of each knob."""
        ...

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates of a population are valid, as far as known without scheduling them."""
        ...

    def sample(self, count: int, random: np.random.Generator) -> Digits:
        """``(count, knobs)``: candidates at random, allowed or not."""
        ...


class Candidates(Searchable, Protocol):
    """What is tuned: one space, or several of one program (``Union``). The methods are those of ``Space``."""

    @property
    def naive(self) -> Program:
        """The program."""
        ...

    @property
    def target(self) -> Target:
        """What it is scheduled for."""
        ...

    def schedule(self, digits: Digits) -> Schedule:
        """The schedule of one candidate, ``(knobs,)``. Raises ``ScheduleError`` if it is invalid."""
        ...

    def features(self, digits: Digits) -> Floats:
        """What the knobs are set to, as logarithms of numbers; NaN for knobs that a candidate does not have."""
        ...

    def analytic(self) -> Digits | None:
        """The candidate that is thought best before anything is measured; None if nothing is known."""
        ...

    def completed(self, digits: Digits, decided: int) -> Digits:
        """A population whose first ``decided`` knobs count: the others as in the analytic choice, or else the first
        values of knobs."""
        ...

    def estimates(self, digits: Digits) -> Floats | None:
        """(candidates,): what each is thought to take, in any unit; None if nothing is known."""
        ...

    def decisions(self, digits: Digits) -> tuple[tuple[str, str], ...]:
        """The decisions of one candidate, by the knobs' names, as texts."""
        ...

    def vary(self, digits: Digits, random: np.random.Generator) -> Digits:
        """One candidate with one decision changed."""
        ...

    def cross(self, first: Digits, second: Digits, random: np.random.Generator) -> Digits:
        """A child of two candidates: what concerns one block comes from one of them."""
        ...


class Known(Protocol):
    """Prior knowledge of a space's candidates, without measurements."""

    @property
    def first(self) -> Digits:
        """The candidate that is predicted to be the fastest."""
        ...

    def allowed(self, digits: Digits) -> Mask:
        """See ``Searchable``."""
        ...

    def estimates(self, digits: Digits) -> Floats:
        """Predicted times, (candidates,), in any unit."""
        ...


LEAST_TIME = float(np.finfo(np.float64).tiny)
"""In any unit."""
TRIES = 16
"""Of finding random candidates that are sensible."""


@dataclass(frozen=True, slots=True)
class Space:
    """The schedules of ``naive`` for a target. Some may turn out to be invalid only when they are scheduled."""

    naive: Program
    target: Target
    opened: Schedule
    """The input of the generator. Do not change it: ``schedule`` copies it."""
    generator: Generator
    knobs: tuple[Knob[Value], ...]
    known: Known | None = None
    sensible: Callable[[Digits], Mask] | None = None
    """Which candidates are worth a look: others are valid, but neither sampled nor allowed."""
    _tables: tuple[Floats, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tables", tuple(table_of(knob) for knob in self.knobs))

    @classmethod
    def of(cls, generator: Generator, naive: Program, target: Target | None = None) -> "Space":
        """The space of a template, which runs once to collect its knobs. ``target``: by default this machine.

        Raises ``ScheduleError`` if the first values of all knobs give no valid schedule.
        """
        opened, collector = Schedule(naive), Collector()
        generator(opened.copy(), collector)
        return cls(naive, target or Target.host(), opened, generator, tuple(collector.knobs))

    @property
    def radices(self) -> tuple[int, ...]:
        """The number of values of each knob."""
        return tuple(len(knob.values) for knob in self.knobs)

    @property
    def widths(self) -> tuple[int, ...]:
        """How many features each knob has."""
        return tuple(rows.shape[1] for rows in self._tables)

    def sample(self, count: int, random: np.random.Generator) -> Digits:
        """Candidates at random, all equally likely; the sensible ones among them, if some tries find as many."""
        found = self._drawn(count, random)
        for _ in range(TRIES if self.sensible is not None else 0):
            found = found[self.allowed(found)]
            if len(found) >= count:
                break
            found = np.concatenate([found, self._drawn(count, random)])
        return found[:count]

    def _drawn(self, count: int, random: np.random.Generator) -> Digits:
        return random.integers(0, np.array(self.radices, np.int64), (count, len(self.radices)))

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates are valid, as far as known, and sensible; by default all."""
        mask = self._valid(digits)
        return mask if self.sensible is None else mask & self.sensible(digits)

    def _valid(self, digits: Digits) -> Mask:
        return np.ones(len(digits), np.bool_) if self.known is None else self.known.allowed(digits)

    def schedule(self, digits: Digits) -> Schedule:
        """The schedule of one candidate, ``(knobs,)``. Raises ``ScheduleError`` if it is invalid."""
        decided = Decided(self.knobs, self._checked(digits))
        if not self._valid(digits[None])[0]:
            raise ScheduleError(f"{self.describe(digits)} do not go together: they are no candidate of the space")
        s = self.opened.copy()
        self.generator(s, decided)
        decided.check_finished()
        return s

    def features(self, digits: Digits) -> Floats:
        """The knobs' values as logarithms of numbers: (candidates, numbers of all knobs)."""
        return np.log2(1.0 + knob_features(self._tables, digits))

    def analytic(self) -> Digits | None:
        """The candidate predicted to be the fastest without measurements; None without a prediction."""
        return None if self.known is None else self.known.first

    def completed(self, digits: Digits, decided: int) -> Digits:
        """A population, in which all knobs from ``decided`` on are as in ``analytic``, or have their first values."""
        result, analytic = digits.copy(), self.analytic()
        result[:, decided:] = 0 if analytic is None else analytic[decided:]
        return result

    def estimates(self, digits: Digits) -> Floats | None:
        """Predicted times, (candidates,), in any unit; None without a prediction.

        They are positive, as models take logarithms: a program without elements is predicted to take no time.
        """
        return None if self.known is None else np.maximum(self.known.estimates(digits), LEAST_TIME)

    def describe(self, digits: Digits) -> dict[str, Value]:
        """The decisions of one candidate by the knobs' names. Raises ``ScheduleError`` if it is not in the space."""
        return {knob.name: knob.values[digit] for knob, digit in zip(self.knobs, self._checked(digits), strict=True)}

    def decisions(self, digits: Digits) -> tuple[tuple[str, str], ...]:
        """``describe`` as texts, in the order of the knobs."""
        return tuple((name, spelled(value)) for name, value in self.describe(digits).items())

    def vary(self, digits: Digits, random: np.random.Generator) -> Digits:
        """One candidate with one decision changed (``variation``)."""
        return varied(self.knobs, digits, random)

    def cross(self, first: Digits, second: Digits, random: np.random.Generator) -> Digits:
        """A child of two candidates (``variation``)."""
        return crossed(self.knobs, first, dict(zip(self.knobs, second.tolist(), strict=True)), random)

    def digits(self, decisions: dict[str, Value]) -> Digits:
        """The candidate with these decisions: the inverse of ``describe``. Raises ``ScheduleError`` for others."""
        try:
            found = [knob.values.index(decisions[knob.name]) for knob in self.knobs]
        except (KeyError, ValueError) as error:
            raise ScheduleError(f"{decisions} are not the decisions of a candidate: {error}") from error
        return np.array(found, np.int64)

    def _checked(self, digits: Digits) -> tuple[int, ...]:
        given = tuple(int(digit) for digit in digits)
        fits = len(given) == len(self.knobs) and all(0 <= d < r for d, r in zip(given, self.radices, strict=True))
        if not fits:
            raise ScheduleError(f"{given} is no candidate of a space with radices {self.radices}")
        return given


def size(space: Searchable) -> int:
    """The number of candidates, including those not allowed."""
    result = 1
    for radix in space.radices:
        result *= radix
    return result

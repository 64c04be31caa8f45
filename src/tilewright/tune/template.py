"""Templates: a function that schedules a program, and asks a ``Config`` where it does not know (AutoTVM's notation).

The function runs once with a config that collects the knobs and takes the first value of each, and then once for each
candidate, with a config that has the decisions (Chen et al., NeurIPS 2018). ``examples/template.py`` is a whole one. ::

    def matmul(s: Schedule, config: Config) -> None:
        y, x, k = s.get_loops("C")
        yo, yi = s.split(y, config.split("tile_y", extent(s, y), parts=2))
        xo, xi = s.split(x, config.split("tile_x", extent(s, x), parts=2))
        s.reorder(yo, xo, *config.reorder("order", (k, yi), All()), xi)
        config.annotate("inner", s, (yi, xi))

    space = TemplateSpace.of(matmul, program)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from tilewright.base.errors import BadInput, ScheduleError
from tilewright.loops.ir import LoopKind
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import LoopRef, Refusal, loop_at
from tilewright.symbolic.expr import Const
from tilewright.target.target import Target
from tilewright.tune.features.knobs import knob_features, one_hot, table
from tilewright.tune.knobs import Kinds, Knob, Policy, Sizes, Value, annotate_knob, choice_knob, split_knob
from tilewright.tune.orders import All, Orders, reorder_knob
from tilewright.tune.space import Digits, Floats, Mask

T = TypeVar("T", bound=Value)

ANY_KIND: Kinds = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED)


class Config(ABC):
    """What a template asks. All methods raise ``BadInput`` for a knob that can't be, or is defined twice."""

    def split(
        self,
        name: str,
        extent: int,
        parts: int,
        policy: Policy = Policy.FACTORS,
        *,
        candidates: Sequence[Sizes] = (),
        max_factor: int | None = None,
        filter: Callable[[Sizes], bool] | None = None,
        no_tail: bool = False,
    ) -> Sizes:
        """The extents of ``parts`` loops, outermost first, for ``Schedule.split``; see ``knobs.split_knob``."""
        given = split_knob(
            name, extent, parts, policy, candidates=candidates, max_factor=max_factor, filter=filter, no_tail=no_tail
        )
        return self.decide(given)

    def reorder(self, name: str, loops: Sequence[LoopRef], orders: Orders | None = None) -> tuple[LoopRef, ...]:
        """``loops`` in one of ``orders`` (every one, by default), for ``Schedule.reorder``."""
        given = tuple(loops)
        return tuple(given[position] for position in self.decide(reorder_knob(name, given, orders or All())))

    def annotate(self, name: str, s: Schedule, loops: Sequence[LoopRef], kinds: Kinds = ANY_KIND) -> None:
        """Give each of ``loops`` one of ``kinds``; at most one is vectorized. ``SERIAL`` leaves a loop as it is.

        Raises ``ScheduleError`` if a loop can't be of the kind that is decided.
        """
        for loop, kind in zip(loops, self.decide(annotate_knob(name, len(loops), kinds)), strict=True):
            _apply(kind, s, loop)

    def choice(self, name: str, values: Sequence[int]) -> int:
        """One of ``values``."""
        return self.decide(choice_knob(name, values))

    @abstractmethod
    def decide(self, knob: Knob[T]) -> T:
        """One of the knob's values."""


Template: TypeAlias = Callable[[Schedule, Config], None]


class Collector(Config):
    """The config of the first run: notes the knobs, and takes the first value of each."""

    def __init__(self) -> None:
        self.knobs: list[Knob[Value]] = []

    def decide(self, knob: Knob[T]) -> T:
        """The first value."""
        if any(other.name == knob.name for other in self.knobs):
            raise BadInput(f"the template defines knob {knob.name!r} twice; give each knob a name of its own")
        self.knobs.append(knob)
        return knob.values[0]


class Entity(Config):
    """The config of a candidate: has a decision for each knob, in the order in which they were collected."""

    def __init__(self, knobs: tuple[Knob[Value], ...], digits: tuple[int, ...]) -> None:
        self._rest = list(zip(knobs, digits, strict=True))

    def decide(self, knob: Knob[T]) -> T:
        """The value that the digits tell."""
        expected, digit = self._rest.pop(0) if self._rest else (None, 0)
        if knob != expected:
            raise BadInput(f"{_changed(knob.name)}; which knobs there are must not depend on decisions")
        return knob.values[digit]

    def check_finished(self) -> None:
        """Raises ``BadInput`` if the template has not asked for all knobs."""
        if self._rest:
            raise BadInput(f"{_changed(self._rest[0][0].name)}; a template must define the same knobs on each run")


@dataclass(frozen=True, slots=True)
class TemplateSpace:
    """All schedules that a template can make of a program (``Space``)."""

    template: Template
    opened: Schedule
    """What the template goes on from. Not to be changed: ``schedule`` copies."""
    knobs: tuple[Knob[Value], ...]
    tables: tuple[Floats, ...]
    """Of each knob, what its values are as numbers: see ``knob_features``."""

    @classmethod
    def of(cls, template: Template, start: Program | Schedule) -> "TemplateSpace":
        """Run the template to see its knobs, on a program or on what a schedule has made of one already.

        Raises ``ScheduleError`` if the first values of all knobs are no valid schedule together.
        """
        opened = start if isinstance(start, Schedule) else Schedule(start)
        collector = Collector()
        template(opened.copy(), collector)
        return cls(template, opened, tuple(collector.knobs), tuple(map(_table, collector.knobs)))

    @property
    def radices(self) -> tuple[int, ...]:
        """How many values each knob has."""
        return tuple(len(knob.values) for knob in self.knobs)

    def allowed(self, digits: Digits) -> Mask:
        """All of them, as far as is known before scheduling."""
        return np.ones(len(digits), np.bool_)

    def schedule(self, digits: Digits) -> Schedule:
        """The schedule of one candidate, ``(knobs,)``. Raises ``ScheduleError`` if it is invalid."""
        entity = Entity(self.knobs, self._checked(digits))
        s = self.opened.copy()
        self.template(s, entity)
        entity.check_finished()
        return s

    def features(self, digits: Digits) -> Floats:
        """What the knobs are set to, as numbers: (candidates, numbers of all knobs)."""
        return knob_features(self.tables, digits)

    def describe(self, digits: Digits) -> dict[str, Value]:
        """The decisions of one candidate by the knobs' names. Raises ``ScheduleError`` if it is none of the space."""
        return {knob.name: knob.values[digit] for knob, digit in zip(self.knobs, self._checked(digits), strict=True)}

    def _checked(self, digits: Digits) -> tuple[int, ...]:
        given = tuple(int(digit) for digit in digits)
        fits = len(given) == len(self.knobs) and all(0 <= d < r for d, r in zip(given, self.radices, strict=True))
        if not fits:
            raise ScheduleError(f"{given} is no candidate of a space with radices {self.radices}")
        return given


@dataclass(frozen=True, slots=True)
class Templated:
    """A template's schedules of a program for a target, as a tuner searches them (``Tunable``).

    Nothing is known of them before they are measured.
    """

    naive: Program
    target: Target
    space: TemplateSpace

    @classmethod
    def of(cls, template: Template, naive: Program, target: Target) -> "Templated":
        """Raises ``ScheduleError`` as ``TemplateSpace.of`` does."""
        return cls(naive, target, TemplateSpace.of(template, naive))

    @property
    def radices(self) -> tuple[int, ...]:
        """How many values each knob has."""
        return self.space.radices

    def allowed(self, digits: Digits) -> Mask:
        """All of them, as far as is known before scheduling."""
        return self.space.allowed(digits)

    def schedule(self, digits: Digits) -> Schedule:
        """The schedule of one candidate. Raises ``ScheduleError`` if it is invalid."""
        return self.space.schedule(digits)

    def features(self, digits: Digits) -> Floats:
        """What the knobs are set to."""
        return self.space.features(digits)

    def analytic(self) -> None:
        """Nothing is known."""

    def estimates(self, digits: Digits) -> None:
        """Nothing is known."""


def _table(knob: Knob[Value]) -> Floats:
    """The numbers of each value; kinds of loops are none."""
    values = [value if isinstance(value, tuple) else (value,) for value in knob.values]
    numbers = [[number for number in value if isinstance(number, int)] for value in values]
    return table(numbers) if all(map(len, numbers)) else one_hot(len(values))


def extent(s: Schedule, loop: LoopRef) -> int:
    """The iterations of ``loop``. Raises ``ScheduleError`` if they are known at run time only."""
    try:
        found = loop_at(s.program, loop).stmt.extent
    except Refusal as refusal:
        raise ScheduleError(f"{refusal}\n\n{s.program}") from refusal
    if not isinstance(found, Const):
        raise ScheduleError(f"loop {loop} has {found} iterations: a number that is known at run time only")
    return int(found.value)


def _apply(kind: LoopKind, s: Schedule, loop: LoopRef) -> None:
    match kind:
        case LoopKind.SERIAL:
            pass
        case LoopKind.UNROLLED:
            s.unroll(loop)
        case LoopKind.VECTORIZED:
            s.vectorize(loop)
        case LoopKind.PARALLEL:
            s.parallel(loop)
        case _:
            s.bind(loop, kind.value)


def _changed(name: str) -> str:
    return f"the template does not ask for knob {name!r} as it did on its first run"

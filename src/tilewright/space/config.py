"""Templates: functions that schedule a program with open decisions taken from a ``Config`` (AutoTVM's notation).

The function runs once with a config that collects the knobs and takes the first value of each, and then once for each
candidate, with a config that has its decisions (Chen et al., NeurIPS 2018). ``examples/template.py`` is a full example.
::

    def matmul(s: Schedule, config: Config) -> None:
        y, x, k = s.get_loops("C")
        yo, yi = s.split(y, config.split("tile_y", extent(s, y), parts=2))
        xo, xi = s.split(x, config.split("tile_x", extent(s, x), parts=2))
        s.reorder(yo, xo, *config.reorder("order", (k, yi), All()), xi)
        config.annotate("inner", s, (yi, xi))

    space = Space.of(matmul, program)

The compiler's own spaces use the same interface (``Generator``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from tilewright.base.errors import BadInput, ScheduleError
from tilewright.loops.ir import LoopKind
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import LoopRef, Refusal, loop_at
from tilewright.space.knobs import Kinds, Knob, Policy, Sizes, Value, annotate_knob, choice_knob, split_knob
from tilewright.space.orders import All, Orders, reorder_knob
from tilewright.symbolic.expr import Const

T = TypeVar("T", bound=Value)

ANY_KIND: Kinds = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED)


class Config(ABC):
    """The interface of templates. All methods raise ``BadInput`` for an invalid or duplicate knob."""

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
        """A split: the extents of ``parts`` loops, outermost first, for ``Schedule.split`` (``knobs.split_knob``)."""
        given = split_knob(
            name, extent, parts, policy, candidates=candidates, max_factor=max_factor, filter=filter, no_tail=no_tail
        )
        return self.decide(given)

    def reorder(self, name: str, loops: Sequence[LoopRef], orders: Orders | None = None) -> tuple[LoopRef, ...]:
        """An order of ``loops``, one of ``orders`` (by default, all), for ``Schedule.reorder``."""
        given = tuple(loops)
        return tuple(given[position] for position in self.decide(reorder_knob(name, given, orders or All())))

    def annotate(self, name: str, s: Schedule, loops: Sequence[LoopRef], kinds: Kinds = ANY_KIND) -> None:
        """Give each of ``loops`` one of ``kinds``; at most one is vectorized. ``SERIAL`` leaves a loop unchanged.

        Raises ``ScheduleError`` if a loop can't have the chosen kind.
        """
        for loop, kind in zip(loops, self.decide(annotate_knob(name, len(loops), kinds)), strict=True):
            _apply(kind, s, loop)

    def choice(self, name: str, values: Sequence[int]) -> int:
        """One of ``values``."""
        return self.decide(choice_knob(name, values))

    @abstractmethod
    def decide(self, knob: Knob[T]) -> T:
        """One of the knob's values."""


Generator: TypeAlias = Callable[[Schedule, Config], None]
"""Schedules a program, with decisions taken from the config. Templates are such functions."""


class Collector(Config):
    """The config of the first run: collects the knobs, and takes the first value of each."""

    def __init__(self) -> None:
        self.knobs: list[Knob[Value]] = []

    def decide(self, knob: Knob[T]) -> T:
        """The first value."""
        if any(other.name == knob.name for other in self.knobs):
            raise BadInput(f"the template defines knob {knob.name!r} twice; give each knob a name of its own")
        self.knobs.append(knob)
        return knob.values[0]


class Decided(Config):
    """The config of a candidate: has a decision for each knob, in the order of collection."""

    def __init__(self, knobs: tuple[Knob[Value], ...], digits: tuple[int, ...]) -> None:
        self._rest = list(zip(knobs, digits, strict=True))

    def decide(self, knob: Knob[T]) -> T:
        """The value that the candidate's digit selects."""
        expected, digit = self._rest.pop(0) if self._rest else (None, 0)
        if knob != expected:
            raise BadInput(f"{_changed(knob.name)}; which knobs there are must not depend on decisions")
        return knob.values[digit]

    def check_finished(self) -> None:
        """Raises ``BadInput`` if the template has not used all knobs."""
        if self._rest:
            raise BadInput(f"{_changed(self._rest[0][0].name)}; a template must define the same knobs on each run")


def extent(s: Schedule, loop: LoopRef) -> int:
    """The number of iterations of ``loop``. Raises ``ScheduleError`` if it is known only at run time."""
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

"""Numbers that note what is done with them, so that it is known what of a schedule depends on which decision.

A comparison with another number is noted with its answer: other values of the knob for which it has the same answer
would have led to the same schedule so far. After arithmetic nothing is known but that the value itself matters.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np

from tilewright.space.config import Decided
from tilewright.space.knobs import Knob, Value
from tilewright.space.space import Digits, Mask

T = TypeVar("T", bound=Value)
_COMPARISONS: dict[str, Callable[[int, object], bool]] = {
    f"__{name}__": getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
_ARITHMETIC = (
    *(f"__{side}{name}__" for name in ("add", "sub", "mul", "floordiv", "mod", "pow", "truediv") for side in ("", "r")),
    *("__neg__", "__abs__", "__bool__", "__divmod__", "__rdivmod__"),
)


def part_of(value: Value, part: int) -> int:
    """The number at ``part`` of what a knob decides."""
    found = value[part] if isinstance(value, tuple) else value
    assert isinstance(found, int)
    return found


@dataclass(slots=True)
class Notes:
    """What was done with the numbers of one candidate."""

    used: set[int] = field(default_factory=set[int])
    """Knobs whose values matter."""
    answers: list[tuple[int, int, str, int, bool]] = field(default_factory=list[tuple[int, int, str, int, bool]])
    """Comparisons: of which knob, of which part, how, with what, and the result."""

    @property
    def compared(self) -> set[int]:
        """Knobs whose values were compared."""
        return {knob for knob, *_ in self.answers}

    def options(self, knobs: Sequence[Knob[Value]], digits: Digits) -> Mapping[int, Mask]:
        """For each knob that something depends on: which of its values would have given the same answers."""
        found: dict[int, Mask] = {}
        for knob in self.used:
            found[knob] = np.arange(len(knobs[knob].values)) == digits[knob]
        for knob, part, name, other, result in dict.fromkeys(self.answers):
            compare = _COMPARISONS[name]
            same = [compare(part_of(value, part), other) == result for value in knobs[knob].values]
            found[knob] = found.get(knob, np.ones(len(same), np.bool_)) & np.array(same)
        return found


class Size(int):
    """A number that a knob decided: the one at ``part`` of its value."""

    knob: int
    part: int
    notes: Notes

    @classmethod
    def of(cls, value: int, knob: int, part: int, notes: Notes) -> "Size":
        """``value``; what is done with it goes into ``notes``."""
        made = cls(value)
        made.knob, made.part, made.notes = knob, part, notes
        return made

    __hash__ = int.__hash__


def _compared(name: str) -> Callable[[Size, object], object]:
    plain: Callable[[int, object], object] = getattr(int, name)

    def method(self: Size, other: object) -> object:
        result = plain(self, other)
        if isinstance(other, Size):
            self.notes.used |= {self.knob, other.knob}
        elif isinstance(other, int) and isinstance(result, bool):
            self.notes.answers.append((self.knob, self.part, name, other, result))
        else:
            self.notes.used.add(self.knob)
        return result

    return method


def _calculated(name: str) -> Callable[..., object]:
    plain: Callable[..., object] = getattr(int, name)

    def method(self: Size, *others: object) -> object:
        self.notes.used.add(self.knob)
        return plain(self, *others)

    return method


for _name in _COMPARISONS:
    setattr(Size, _name, _compared(_name))
for _name in _ARITHMETIC:
    setattr(Size, _name, _calculated(_name))


class Noted(Decided):
    """The decisions of a candidate, as numbers that are noted."""

    def __init__(self, knobs: tuple[Knob[Value], ...], digits: tuple[int, ...]) -> None:
        super().__init__(knobs, digits)
        self.notes = Notes()
        self._next = 0

    def decide(self, knob: Knob[T]) -> T:
        """The value that the candidate's digit selects."""
        value, position = super().decide(knob), self._next
        self._next += 1
        made: Value = value
        if isinstance(value, int):
            made = Size.of(value, position, 0, self.notes)
        elif all(isinstance(item, int) for item in value):
            made = tuple(
                Size.of(item, position, part, self.notes) for part, item in enumerate(value) if isinstance(item, int)
            )
        return cast(T, made)

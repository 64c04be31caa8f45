"""Parallel regions: loops outlined to a function, which the worker pool calls once per chunk.

Values of the surrounding function are passed in an array of eight-byte slots; the context comes first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.backend.cpu.abilities import Abilities
from tilewright.backend.cpu.accesses import Environment
from tilewright.backend.cpu.places import Place
from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.values import Value
from tilewright.base import dtypes
from tilewright.loops.ir import Loop
from tilewright.symbolic.expr import Expr, Var

_ELSEWHERE = Value("", dtypes.index)


@dataclass(frozen=True, slots=True)
class Captures:
    """The captured values of a region, in the order of its slots: pointers, non-literal scalars, numbers."""

    places: tuple[tuple[str, Place], ...]
    """By the buffers' names; the pointers are read from the slots."""
    scalars: tuple[Var, ...]
    literals: tuple[tuple[Var, Value], ...]
    """The scalars that need no slot."""
    numbers: tuple[Value | None, ...]
    """The literals; others are read from their slots."""

    @staticmethod
    def of(environment: Environment, numbers: Sequence[Value]) -> "Captures":
        """The captured values of ``environment``, and ``numbers``."""
        places = ((name, replace(place, pointer=_ELSEWHERE)) for name, place in environment.places.items())
        scalars = environment.scalars.items()
        return Captures(
            tuple(places),
            tuple(var for var, value in scalars if value.literal is None),
            tuple((var, value) for var, value in scalars if value.literal is not None),
            tuple(None if value.literal is None else value for value in numbers),
        )

    def pack(self, text: FunctionText, environment: Environment, numbers: Sequence[Value]) -> str:
        """Store all slots; returns the pointer to them."""
        pointers = [place.pointer for place in environment.places.values()]
        slots = [*pointers, *(environment.scalars[var] for var in self.scalars), *numbers]
        array = text.alloca(f"[{len(slots) + 1} x i64]")
        text.effect(f"store ptr %context, ptr {array}")
        for position, value in enumerate(slots, start=1):
            at = text.pure(f"getelementptr inbounds i64, ptr {array}, i64 {position}", 0)
            kind = "ptr" if position <= len(pointers) else "i64"
            text.effect(f"store {kind} {value.text}, ptr {at}")
        return array

    def unpack(self, text: FunctionText) -> tuple[Environment, list[Value]]:
        """Load all slots; returns the environment inside, and the numbers."""
        places = {
            name: replace(place, pointer=_loaded(text, "ptr", position))
            for position, (name, place) in enumerate(self.places, start=1)
        }
        first = len(places) + 1
        scalars = {var: _loaded(text, "i64", position) for position, var in enumerate(self.scalars, start=first)}
        first += len(scalars)
        numbers = [
            _loaded(text, "i64", position) if value is None else value
            for position, value in enumerate(self.numbers, start=first)
        ]
        return Environment({**dict(self.literals), **scalars}, places), numbers


def _loaded(text: FunctionText, kind: str, position: int) -> Value:
    at = text.pure(f"getelementptr inbounds i64, ptr %argument, i64 {position}", 0)
    return Value(text.emit(f"load {kind}, ptr {at}"), dtypes.index)


@dataclass(frozen=True, slots=True)
class Region:
    """A parallel loop, and all that determines the text of its function, if it has no calls."""

    name: str
    loop: Loop
    captures: Captures
    """The numbers are the total iterations of all its loops, the chunks, and the extents of the loops."""
    bounds: tuple[tuple[Var, int | None], ...]
    offsets: tuple[tuple[str, Expr], ...]
    abilities: Abilities


@dataclass(frozen=True, slots=True)
class RegionText:
    """The function of a region as LLVM IR, its declarations, and its scratch per worker."""

    text: str
    declarations: tuple[str, ...]
    scratch_bytes: int
    is_alone: bool = False
    """Whether it is independent of its module: it has neither sites of checks nor calls of other functions."""

    @property
    def shared(self) -> str:
        """The text, for another module to call it."""
        return self.text.replace("define internal", "define hidden", 1)

"""Fields of instructions and micro-ops: the one description that encoder, decoder, printer and manual derive from.

The fields of a dataclass whose types are ``Annotated[..., Bits(...)]`` are the fields of its encoding, from bit 0
upwards, in the order in which they are declared; those of a nested dataclass stand in its place. A width is a number,
or follows from the depth of memories. ::

    class Example:
        address: Annotated[int, Bits(Index(Scratchpad.ACC), "The first tile.")] = 0
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from enum import IntEnum
from typing import Annotated, cast, get_args, get_origin, get_type_hints

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.base.errors import BadInput


class UnencodableField(BadInput):
    """A value does not fit its field: ``field`` is its name, ``value`` the value, ``width`` the field's bits."""

    def __init__(self, form: str, field: str, value: int, width: int, least: int, most: int) -> None:
        super().__init__(
            f"{form}: {field}={value} does not fit its {width} bits ({least} to {most}); split the work into several "
            "instructions, or use a configuration with larger memories"
        )
        self.field = field
        self.value = value
        self.width = width


class InvalidInstruction(BadInput):
    """An instruction has no meaning, or bits that are no instruction."""


@dataclass(frozen=True, slots=True)
class Index:
    """The width of an address in a memory; the widest of several, plus ``extra`` bits."""

    pad: Scratchpad
    other: Scratchpad | None = None
    extra: int = 0

    def bits(self, config: Config) -> int:
        """The width in ``config``."""
        other = self.pad if self.other is None else self.other
        return max(config.index_bits(self.pad), config.index_bits(other)) + self.extra


@dataclass(frozen=True, slots=True)
class Bits:
    """A field: its width, its meaning, and whether it starts the upper half of the instruction."""

    width: int | Index
    text: str
    upper: bool = False
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A declared field. ``path`` leads to it from the outer dataclass."""

    path: tuple[str, ...]
    kind: type[int]
    bits: Bits

    @property
    def name(self) -> str:
        """Its name, which no other field of the form has."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class Placed:
    """A field at its place in a word."""

    field: Field
    shift: int
    width: int

    @property
    def least(self) -> int:
        """The smallest value."""
        return -(1 << (self.width - 1)) if self.field.bits.signed else 0

    @property
    def most(self) -> int:
        """The largest value."""
        return (1 << (self.width - self.field.bits.signed)) - 1

    @property
    def mask(self) -> int:
        """Its bits, at bit 0."""
        return (1 << self.width) - 1

    def put(self, form: str, value: int) -> int:
        """The word with ``value`` in this field, and 0 elsewhere. Raises ``UnencodableField``."""
        if not self.least <= value <= self.most:
            raise UnencodableField(form, self.field.name, value, self.width, self.least, self.most)
        return (value & self.mask) << self.shift

    def take(self, word: int) -> int:
        """The value of this field in ``word``."""
        raw = (word >> self.shift) & self.mask
        return raw - (1 << self.width) if self.field.bits.signed and raw > self.most else raw


@functools.cache
def _hints(form: type) -> dict[str, object]:
    return cast(dict[str, object], get_type_hints(form, include_extras=True))


@functools.cache
def fields_of(form: type) -> tuple[Field, ...]:
    """The fields of a dataclass, and of those in it, in the order of their places."""
    return tuple(_fields(form, ()))


def _fields(form: type, path: tuple[str, ...]) -> Iterator[Field]:
    for name, hint in _hints(form).items():
        if get_origin(hint) is Annotated:
            kind, bits = cast(tuple[type[int], Bits], get_args(hint)[:2])
            yield Field((*path, name), kind, bits)
        elif isinstance(hint, type) and is_dataclass(hint):
            yield from _fields(hint, (*path, name))


@functools.lru_cache(maxsize=256)
def layout(form: type, config: Config, first: int, word: int) -> tuple[Placed, ...]:
    """The places of the fields of ``form`` in ``word`` bits, from bit ``first`` on.

    Raises ``BadInput`` if they do not fit.
    """
    placed: list[Placed] = []
    end = first
    for field in fields_of(form):
        width = field.bits.width if isinstance(field.bits.width, int) else field.bits.width.bits(config)
        shift = max(end, word // 2) if field.bits.upper else end
        placed.append(Placed(field, shift, width))
        end = shift + width
    if end > word:
        raise BadInput(
            f"{config.name}: {form.__name__} takes {end} bits, and there are {word}; use smaller memories, or a larger "
            "uop_bits or instruction_bits"
        )
    return tuple(placed)


def packed(value: object, places: tuple[Placed, ...]) -> int:
    """The word of a dataclass. Raises ``UnencodableField``."""
    form = type(value).__name__
    return sum(place.put(form, value_of(value, place.field)) for place in places)


def value_of(value: object, field: Field) -> int:
    """The number in a field of a dataclass."""
    for name in field.path:
        value = cast(object, getattr(value, name))
    return int(cast(int, value))


def unpacked(form: type, word: int, places: tuple[Placed, ...]) -> dict[str, object]:
    """The arguments of the dataclass ``form`` whose word is ``word``. Raises ``InvalidInstruction``."""
    used = sum(place.mask << place.shift for place in places)
    if word & ~used:
        raise InvalidInstruction(f"{form.__name__}: bits {word & ~used:#x} belong to no field, and must be 0")
    values = {place.field.path: _typed(form, place.field, place.take(word)) for place in places}
    return _nested(form, values, ())


def _typed(form: type, field: Field, value: int) -> object:
    if not issubclass(field.kind, IntEnum):
        return field.kind(value)
    try:
        return field.kind(value)
    except ValueError:
        known = ", ".join(f"{item.name} {item.value}" for item in field.kind)
        raise InvalidInstruction(f"{form.__name__}: {field.name} is {value}; known are {known}") from None


def _nested(form: type, values: dict[tuple[str, ...], object], path: tuple[str, ...]) -> dict[str, object]:
    arguments: dict[str, object] = {}
    for name, hint in _hints(form).items():
        if get_origin(hint) is Annotated:
            arguments[name] = values[(*path, name)]
        elif isinstance(hint, type) and is_dataclass(hint):
            arguments[name] = hint(**_nested(hint, values, (*path, name)))
    return arguments

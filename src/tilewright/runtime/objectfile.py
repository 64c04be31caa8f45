"""A relocatable object, independent of its file format: the output of a parser (``elf``) and the input of the linker.

It has only loaded sections: code, constants and data, without debug information, notes and unwind tables.
"""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from tilewright.base.errors import UnsupportedTarget

MAX_IMAGE = 1 << 28
"""Maximum bytes. Weights are not in an image, so a larger one is damaged (or a bomb: zero-filled sections take no
file)."""


class Machine(Enum):
    """The instruction set of an object."""

    X86_64 = "x86_64"
    AARCH64 = "aarch64"
    RISCV64 = "riscv64"


INSTRUCTION_BYTES: Mapping[Machine, int] = {Machine.X86_64: 1, Machine.AARCH64: 4, Machine.RISCV64: 2}
"""Alignment of functions."""


class Segment(Enum):
    """The kind of a section, which decides the protection of its pages (never both writable and executable)."""

    CODE = "code"
    CONSTANTS = "constants"
    DATA = "data"


class Place(Enum):
    """The place of a symbol that is in no loaded section."""

    UNDEFINED = "undefined"
    ABSOLUTE = "absolute"
    DROPPED = "dropped"


class Binding(Enum):
    """The binding of a symbol: its visibility, and its precedence among equal names."""

    LOCAL = "local"
    GLOBAL = "global"
    WEAK = "weak"


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place to patch: ``offset`` in its section, the format's ``kind``, index of a symbol, and an addend in bytes."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Section:
    """A section that is loaded as a whole: ``size`` bytes that start with ``data``; the rest is zero."""

    name: str
    segment: Segment
    alignment: int
    size: int
    data: bytes
    relocations: tuple[Relocation, ...]

    @cached_property
    def first_at(self) -> Mapping[int, Relocation]:
        """The first relocation of each patched place, by its offset."""
        return {relocation.offset: relocation for relocation in reversed(self.relocations)}


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name for ``size`` bytes, ``value`` bytes after the start of section number ``place``, or of nothing."""

    name: str
    binding: Binding
    place: int | Place
    value: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """One parsed object. ``name`` is for error messages."""

    name: str
    machine: Machine
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]


def host_machine() -> Machine:
    """The machine of this process. Raises ``UnsupportedTarget`` if the loader does not support its relocations."""
    names = {**{m.value: m for m in Machine}, "amd64": Machine.X86_64, "arm64": Machine.AARCH64}
    name = platform.machine().lower()
    if name not in names:
        raise UnsupportedTarget(f"images can't be loaded on {name} yet; known: {', '.join(m.value for m in Machine)}")
    return names[name]

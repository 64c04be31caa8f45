"""Hashes of loop programs, independent of the program's name and formatting.

``identity`` is a hash of a program without its own name, and without what it says about which inputs are constants:
that changes which schedules it may have, but not what it computes. The names of its loops, blocks and buffers count, as
schedules refer to them, and lowering names them deterministically. ``family`` also leaves out numbers: programs of one
family differ only in these, and ``numbers`` lists them in a fixed order. ::

    identity(lower(C)) == identity(parse_program(str(lower(C))))
"""

import hashlib
from collections.abc import Iterable
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from math import log2
from typing import cast

from tilewright.base.dtypes import DType
from tilewright.loops.program import Program, without_constants
from tilewright.symbolic.expr import Expr, Extent

_BESIDE = {Program: frozenset({"name"}), Extent: frozenset({"label"})}
"""Fields used only in messages."""


def identity(program: Program) -> str:
    """The hash of ``program``: 64 hexadecimal digits."""
    return _hash(repr(atom) for atom in _atoms(program))


def family(program: Program) -> str:
    """The hash of ``program`` without its numbers."""
    return _hash("#" if _is_number(atom) else repr(atom) for atom in _atoms(program))


def numbers(program: Program) -> tuple[float, ...]:
    """The numbers of ``program``: equally many for all programs of a family."""
    return tuple(cast(float, atom) for atom in _atoms(program) if _is_number(atom))


def doublings_apart(program: Program, other: Program) -> float:
    """The distance of two programs of one family: the sum of differences of their numbers on a log2 scale."""
    pairs = zip(numbers(program), numbers(other), strict=True)
    return sum(abs(log2((1 + abs(a)) / (1 + abs(b)))) for a, b in pairs)


def _atoms(program: Program) -> list[object]:
    """``program`` as a sequence of names, numbers and their classes; each class is followed by its number of items."""
    atoms: list[object] = []
    known: dict[Expr, slice] = {}

    def add(value: object) -> None:
        if isinstance(value, int | float | str | None):
            atoms.append(value)
        elif isinstance(value, tuple):
            items = cast("tuple[object, ...]", value)
            atoms.append(("tuple", len(items)))
            for item in items:
                add(item)
        elif isinstance(value, DType | Enum):
            atoms.append((type(value).__name__, str(value)))
        elif isinstance(value, Expr) and value in known:  # most are variables, which occur often
            atoms.extend(atoms[known[value]])
        else:
            start = len(atoms)
            atoms.append((type(value).__name__,))
            for name in _fields(type(value)):
                add(getattr(value, name))
            if isinstance(value, Expr):
                known[value] = slice(start, len(atoms))

    add(without_constants(program))
    return atoms


def _is_number(atom: object) -> bool:
    return isinstance(atom, int | float) and not isinstance(atom, bool)


@lru_cache(maxsize=256)
def _fields(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass that are part of the identity."""
    return tuple(field.name for field in fields(kind) if field.name not in _BESIDE.get(kind, ()))


def _hash(atoms: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(atoms).encode()).hexdigest()

"""Which program is the same as another one, whatever it is called and however its text looks.

``identity`` is a hash of all that a program is made of, but for its own name. The names of its loops, blocks and
buffers count: schedules refer to them, and lowering names what is at one place alike. ``family`` leaves numbers out:
programs of one family are the same but for these, and ``numbers`` are theirs, in one order. ::

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
from tilewright.loops.program import Program
from tilewright.symbolic.expr import Expr, Extent

_BESIDE = {Program: frozenset({"name"}), Extent: frozenset({"label"})}
"""Fields that are for people only."""


def identity(program: Program) -> str:
    """The hash of ``program``: 64 hexadecimal digits."""
    return _hash(repr(atom) for atom in _atoms(program))


def family(program: Program) -> str:
    """The hash of ``program`` without its numbers."""
    return _hash("#" if _is_number(atom) else repr(atom) for atom in _atoms(program))


def numbers(program: Program) -> tuple[float, ...]:
    """The numbers of ``program``: as many in all of a family."""
    return tuple(cast(float, atom) for atom in _atoms(program) if _is_number(atom))


def doublings_apart(program: Program, other: Program) -> float:
    """How different the numbers of two programs of one family are, on a scale of log2, all together."""
    pairs = zip(numbers(program), numbers(other), strict=True)
    return sum(abs(log2((1 + abs(a)) / (1 + abs(b)))) for a, b in pairs)


def _atoms(program: Program) -> list[object]:
    """``program`` as names, numbers and the classes that they are in, in order; each says how much belongs to it."""
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
        elif isinstance(value, Expr) and value in known:  # most are variables, again and again
            atoms.extend(atoms[known[value]])
        else:
            start = len(atoms)
            atoms.append((type(value).__name__,))
            for name in _fields(type(value)):
                add(getattr(value, name))
            if isinstance(value, Expr):
                known[value] = slice(start, len(atoms))

    add(program)
    return atoms


def _is_number(atom: object) -> bool:
    return isinstance(atom, int | float) and not isinstance(atom, bool)


@lru_cache(maxsize=256)
def _fields(kind: type) -> tuple[str, ...]:
    """The names of the fields of a dataclass that count."""
    return tuple(field.name for field in fields(kind) if field.name not in _BESIDE.get(kind, ()))


def _hash(atoms: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(atoms).encode()).hexdigest()

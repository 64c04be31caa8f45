"""What rules say about integers, and the values that variables of a kind stand for.

Integers wrap around, and are not rounded: they are a commutative ring. Two polynomials with whole coefficients that are
equal for all real numbers have the same coefficients, so they are equal for integers, too; and what only moves elements
moves integers. Quotients, means, and an order beside sums are other functions there.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tilewright.base.dtypes import f32, i8, u8
from tilewright.graph import Array, Value
from tilewright.ops import Trait
from tilewright.ops.operator import require
from tilewright.passes.rules.terms import Apply, Kind, Number, Rule, Term, Variable, subterms

OF_RINGS = tuple(map(require, ("Add", "Sub", "Mul", "Neg", "MatMul", "Conv", "ReduceSum")))
"""Of integers, polynomials with whole coefficients."""
LARGEST_SCALE = 2.0**100
"""All bytes times it are finite."""


def fits(variable: Variable, value: Value, arrays: Mapping[str, Array]) -> bool:
    """Whether ``value`` is of the kind of ``variable``. ``arrays``: constants by name."""
    match variable.kind:
        case Kind.ANY:
            return True
        case Kind.BYTE:
            return value.dtype in (i8, u8)
        case Kind.INTEGER:
            return value.dtype.is_int
        case Kind.SCALE:
            return value.dtype == f32 and value.name in arrays and _are_scales(arrays[value.name])


def _are_scales(array: Array) -> bool:
    exact = array.astype(np.float64)
    return bool(np.all((exact >= np.finfo(np.float32).tiny) & (exact <= LARGEST_SCALE)))


@lru_cache(maxsize=4096)
def has_kinds(rule: Rule) -> bool:
    """Whether ``rule`` is about integers: some variable has a kind, or it names a type."""
    return any(variable.kind is not Kind.ANY for variable in rule.variables)


@lru_cache(maxsize=4096)
def only_moves(rule: Rule) -> bool:
    """Whether the sources compute nothing."""
    return not any(isinstance(term, Apply) and not term.op.has(Trait.MOVES) for term in subterms(rule.sources))


@lru_cache(maxsize=4096)
def holds_for_integers(rule: Rule) -> bool:
    """Whether ``rule``, which holds for real numbers, holds for integers that wrap around."""
    return not has_kinds(rule) and is_of_rings(rule)


@lru_cache(maxsize=4096)
def is_of_rings(rule: Rule) -> bool:
    """Whether both sides are polynomials with whole coefficients, of elements that are moved."""
    return all(map(_is_of_rings, subterms([*rule.sources, *rule.targets])))


def _is_of_rings(term: Term) -> bool:
    match term:
        case Variable():
            return True
        case Number(value):
            return value.is_integer()
        case Apply():
            return term.op in OF_RINGS or term.op.has(Trait.MOVES)


def for_integers(rule: Rule) -> Rule:
    """``rule``, of which ``holds_for_integers`` is true, for integers only."""
    return replace(rule, only_integers=True)

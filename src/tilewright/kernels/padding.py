"""Terms of a sum that read only padding: how many there are, for tiles that keep or leave a term together.

A convolution of 16 positions with three taps 12 apart reads 48 elements, of which 24 lie in the padding. A tile of
neighbours leaves out a tap if it is outside for all of them, so small tiles leave out more.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tilewright.loops.ir import Block
from tilewright.loops.program import Program
from tilewright.schedule.skip_padding import inside
from tilewright.space.population import BoolArray
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import Const, Expr
from tilewright.symbolic.linear import Polynomial

MOST_PLACES = 1 << 16
"""Pairs of an output and a tap up to which they are counted: a longer axis is mostly inside."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """The taps of a window along an axis of the result: tap ``k`` of output ``i`` is inside where all of ``inside``,
    ``(a, b, c)``, have ``a * i + b * k + c >= 0``."""

    tap: int
    """The position of the axis of the taps among those of its block."""
    outputs: int
    taps: int
    inside: frozenset[tuple[int, int, int]]

    def share(self, group: int) -> float:
        """The share of the terms that remain if ``group`` neighbours leave out a term together."""
        return _share(self, group)

    @property
    def positions(self) -> int:
        """The number of different positions inside that all outputs read."""
        a, b, _ = min(self.inside)
        places = np.add.outer(a * np.arange(self.outputs), b * np.arange(self.taps))
        return len(np.unique(places[_kept(self, 1)]))


@lru_cache(1024)
def _share(sliding: Sliding, group: int) -> float:
    weights = np.minimum(group, sliding.outputs - np.arange(0, sliding.outputs, group))
    return float(weights @ _kept(sliding, group).sum(axis=1)) / (sliding.outputs * sliding.taps)


def _kept(sliding: Sliding, group: int) -> BoolArray:
    """For each ``group`` of outputs and each tap, whether the tap is inside for one of them."""
    first = np.arange(0, sliding.outputs, group)
    taps = np.arange(sliding.taps)
    kept = np.ones((len(first), len(taps)), np.bool_)
    for a, b, c in sliding.inside:
        kept &= np.add.outer(a * first + max(a, 0) * (group - 1) + c, b * taps) >= 0
    return kept


def slidings(program: Program, block: Block) -> dict[int, Sliding]:
    """The axes of ``block``, a sum of products, along which a factor slides into padding, by position."""
    found: dict[tuple[IterVar, IterVar], set[tuple[int, int, int]]] = {}
    for inequality in inside(program, block):
        pair = _pair(inequality, block.axes)
        if pair is not None:
            one, tap = pair
            found.setdefault(pair, set()).add((inequality[one.var,], inequality[tap.var,], inequality.get((), 0)))
    made = {
        block.axes.index(one): Sliding(block.axes.index(tap), _number(one), _number(tap), frozenset(conditions))
        for (one, tap), conditions in found.items()
    }
    return {place: sliding for place, sliding in made.items() if sliding.outputs * sliding.taps <= MOST_PLACES}


def _pair(inequality: Polynomial, axes: tuple[IterVar, ...]) -> tuple[IterVar, IterVar] | None:
    """The axis of the result and that of the reduction in ``inequality``, if it is linear in just these."""
    known: dict[Expr, IterVar] = {axis.var: axis for axis in axes if _number(axis)}
    found = [known.get(monomial[0]) if len(monomial) == 1 else None for monomial in inequality if monomial]
    match sorted((axis for axis in found if axis is not None), key=lambda axis: axis.kind is IterKind.REDUCE):
        case [one, other] if len(found) == 2 and (one.kind, other.kind) == (IterKind.SPATIAL, IterKind.REDUCE):
            return one, other
        case _:
            return None


def _number(axis: IterVar) -> int:
    return int(axis.extent.value) if isinstance(axis.extent, Const) else 0

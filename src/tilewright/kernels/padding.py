"""Terms of a sum that read only padding: how many there are, for tiles that keep or leave a term together.

A convolution of 16 positions with three taps 12 apart reads 48 elements, of which 24 lie in the padding. A tile of
neighbours leaves out a tap if it is outside for all of them, so small tiles leave out more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from tilewright.loops.ir import Block
from tilewright.loops.program import Program
from tilewright.schedule.skip_padding import inside
from tilewright.space.population import BoolArray
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import Const, Var, const
from tilewright.symbolic.linear import Polynomial, to_expr
from tilewright.symbolic.simplify import simplify
from tilewright.symbolic.traversal import free_vars, substitute

MOST_PLACES = 1 << 16
"""Pairs of an output and a tap up to which they are counted: a longer axis is mostly inside."""
Conditions: TypeAlias = frozenset[tuple[int, int, int]]
"""Of output ``i`` and tap ``k``: ``a * i + b * k + c >= 0`` for all of these ``(a, b, c)``."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """The taps of a window along an axis of the result."""

    tap: int
    """The position of the axis of the taps among those of its block."""
    outputs: int
    taps: int
    inside: tuple[Conditions, ...]
    """Which taps of which outputs are inside, for each phase: windows of a transposed convolution begin elsewhere in
    each."""

    def share(self, group: int) -> float:
        """The share of the terms that remain if ``group`` neighbours leave out a term together."""
        return _share(self, group)

    @property
    def positions(self) -> int:
        """The number of different positions inside that all outputs of a phase read."""
        a, b, _ = min(self.inside[0])
        places = np.add.outer(a * np.arange(self.outputs), b * np.arange(self.taps))
        return max(len(np.unique(places[_kept(self, phase, 1)])) for phase in self.inside)


@lru_cache(1024)
def _share(sliding: Sliding, group: int) -> float:
    weights = np.minimum(group, sliding.outputs - np.arange(0, sliding.outputs, group))
    kept = sum(float(weights @ _kept(sliding, phase, group).sum(axis=1)) for phase in sliding.inside)
    return kept / (sliding.outputs * sliding.taps * len(sliding.inside))


def _kept(sliding: Sliding, phase: Conditions, group: int) -> BoolArray:
    """For each ``group`` of outputs and each tap, whether the tap is inside for one of them."""
    first = np.arange(0, sliding.outputs, group)
    taps = np.arange(sliding.taps)
    kept = np.ones((len(first), len(taps)), np.bool_)
    for a, b, c in phase:
        kept &= np.add.outer(a * first + max(a, 0) * (group - 1) + c, b * taps) >= 0
    return kept


def slidings(program: Program, block: Block) -> dict[int, Sliding]:
    """The axes of ``block``, a sum of products, along which a factor slides into padding, by position."""
    found: dict[_Axes, list[Polynomial]] = {}
    for inequality in inside(program, block):
        axes = _axes(inequality, block.axes)
        if axes is not None:
            found.setdefault(axes, []).append(inequality)
    made = {block.axes.index(axes.outputs): _sliding(block, axes, found[axes]) for axes in found}
    return {place: one for place, one in made.items() if one.outputs * one.taps * len(one.inside) <= MOST_PLACES}


@dataclass(frozen=True, slots=True)
class _Axes:
    """The axes that say whether a term is inside: linear in the first two, any function of the third."""

    outputs: IterVar
    taps: IterVar
    phases: IterVar | None


def _sliding(block: Block, axes: _Axes, inequalities: Sequence[Polynomial]) -> Sliding:
    phases = 1 if axes.phases is None else _number(axes.phases)
    inside = tuple(frozenset(_condition(one, axes, phase) for one in inequalities) for phase in range(phases))
    return Sliding(block.axes.index(axes.taps), _number(axes.outputs), _number(axes.taps), inside)


def _condition(inequality: Polynomial, axes: _Axes, phase: int) -> tuple[int, int, int]:
    own = (axes.outputs.var,), (axes.taps.var,)
    rest = to_expr({monomial: number for monomial, number in inequality.items() if monomial not in own})
    value = rest if axes.phases is None else simplify(substitute(rest, {axes.phases.var: const(phase)}), Bounds({}))
    assert isinstance(value, Const), "it depends on nothing else"
    return inequality[own[0]], inequality[own[1]], int(value.value)


def _axes(inequality: Polynomial, axes: tuple[IterVar, ...]) -> _Axes | None:
    """The axes in ``inequality``: one of the result, one of the reduction, and perhaps another of the result."""
    used = {var for monomial in inequality for atom in monomial for var in free_vars(atom)}
    known = [axis for axis in axes if axis.var in used and _number(axis)]
    linear = {axis for axis in known if _is_linear(inequality, axis.var)}
    taps = [axis for axis in known if axis.kind is IterKind.REDUCE]
    others = sorted((axis for axis in known if axis.kind is IterKind.SPATIAL), key=lambda axis: axis not in linear)
    if len(known) != len(used) or len(taps) != 1 or not others or not linear.issuperset((taps[0], others[0])):
        return None
    match others:
        case [one]:
            return _Axes(one, taps[0], None)
        case [one, other] if other not in linear:
            return _Axes(one, taps[0], other)
        case _:
            return None


def _is_linear(inequality: Polynomial, var: Var) -> bool:
    """Whether ``var`` is in no term but its own."""
    return all(var not in free_vars(atom) for term in inequality if term != (var,) for atom in term)


def _number(axis: IterVar) -> int:
    return int(axis.extent.value) if isinstance(axis.extent, Const) else 0

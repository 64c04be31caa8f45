"""Accesses whose place is not linear in a loop, which was fused, say, or runs over a packed buffer.

How far such a loop leads, and to how many elements, is found out by going along it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.symbolic.evaluate import Array, compile_exprs
from tilewright.symbolic.expr import Expr, Var

Floats: TypeAlias = NDArray[np.float64]
Factors: TypeAlias = NDArray[np.int64]
"""(candidates, symbols): a value for each symbol of a structure."""
Function: TypeAlias = Callable[..., list[Array]]


@dataclass(frozen=True, slots=True)
class Walk:
    """An access whose place is not linear in a loop (it was fused, or is packed): found out by going along the loop."""

    place: Function
    relevant: tuple[int, ...]
    """The columns of factors that it depends on."""

    @staticmethod
    def along(var: Var, place: Expr, symbols: tuple[Var, ...]) -> "Walk":
        relevant = tuple(position for position, symbol in enumerate(symbols) if symbol in place.variables)
        return Walk(compile_exprs([place], (*(symbols[position] for position in relevant), var)), relevant)

    def measure(self, lengths: Floats, factors: Factors) -> tuple[Floats, Floats, Floats]:
        """Strides, mods and how many distinct elements there are, of all candidates."""
        # Few combinations of the factors that matter occur in a population, so each of them is gone along once.
        keys = np.column_stack([factors[:, list(self.relevant)], lengths.astype(np.int64)])
        rows, inverse = np.unique(keys, axis=0, return_inverse=True)
        found = np.array([self._along(row) for row in rows], np.float64)[inverse.reshape(-1)]
        return found[:, 0], found[:, 1], found[:, 2]

    def _along(self, key: Factors) -> tuple[int, int, int]:
        (places,) = self.place(*key[:-1], np.arange(key[-1]))
        return _travel(places.astype(np.int64))


def _travel(places: Factors) -> tuple[int, int, int]:
    """Stride, mod and number of distinct elements of the places that a loop visits."""
    moved = np.flatnonzero(places != places[:1])
    if not len(moved):
        return 0, -1, min(len(places), 1)
    first = int(moved[0])
    stride = int(places[first] - places[0])
    back = np.flatnonzero(places[first:] == places[0])
    mod = abs(stride) * (first + int(back[0])) // first if len(back) else -1
    return stride, mod, len(np.unique(places))

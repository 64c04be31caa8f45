"""How numbers change along loops: the elements that an access visits, and how often.

Usually a number is linear in the variable of a loop. If it is not (for a fused loop, or a packed buffer), the loop's
iterations are enumerated; both methods give the same results where both apply.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import Expr, Var

Floats: TypeAlias = NDArray[np.float64]
Factors: TypeAlias = NDArray[np.int64]
"""(candidates, symbols): a value for each symbol of a structure."""
Function: TypeAlias = Callable[..., list[Array]]


@dataclass(frozen=True, slots=True)
class Travel:
    """The behaviour of a number along loops: arrays (loops, candidates)."""

    strides: Floats
    """Its first change; 0 in a loop of one iteration."""
    mods: Floats
    """Its total change when it returns to its first value; -1 if never."""
    distinct: Floats
    """The number of its distinct values."""
    starts: Floats
    """The number of iterations with its first value."""

    @staticmethod
    def linear(strides: Floats, lengths: Floats) -> "Travel":
        """For numbers that change by ``strides`` in each iteration."""
        moves, once = np.where(lengths > 1, strides, 0.0), np.minimum(lengths, 1.0)
        is_moved = moves != 0
        distinct, starts = np.where(is_moved, lengths, once), np.where(is_moved, once, lengths)
        return Travel(moves, np.full_like(moves, -1.0), distinct, starts)

    def set_row(self, row: int, found: Floats) -> None:
        """Store the results of one loop: (4, candidates)."""
        for numbers, own in zip((self.strides, self.mods, self.distinct, self.starts), found, strict=True):
            numbers[row] = own


@dataclass(frozen=True, slots=True)
class Walk:
    """A number that is not linear in a loop."""

    number: Function
    relevant: tuple[int, ...]
    """The columns of factors that it depends on."""

    @staticmethod
    def along(var: Var, number: Expr, symbols: tuple[Var, ...]) -> "Walk":
        """For ``number`` along the loop over ``var``."""
        relevant = tuple(position for position, symbol in enumerate(symbols) if symbol in number.variables)
        return Walk(compile_exprs([number], (*(symbols[position] for position in relevant), var)), relevant)

    def measure(self, lengths: Floats, factors: Factors) -> Floats:
        """Strides, mods, distinct values and starts of all candidates: (4, candidates)."""
        # A population has few combinations of the relevant factors, so each of them is enumerated once.
        keys = np.column_stack([factors[:, list(self.relevant)], lengths.astype(np.int64)])
        rows, inverse = np.unique(keys, axis=0, return_inverse=True)
        found = np.array([self._along(row) for row in rows], np.float64).reshape(len(rows), 4)
        return found[inverse.reshape(-1)].T

    def _along(self, key: Factors) -> tuple[int, int, int, int]:
        (numbers,) = self.number(*key[:-1], np.arange(key[-1]))
        return _travel(numbers.astype(np.int64))


def _travel(numbers: Factors) -> tuple[int, int, int, int]:
    """``Travel``'s results from the values of a number in the iterations of a loop."""
    moved = np.flatnonzero(numbers != numbers[:1])
    if not len(moved):
        return 0, -1, min(len(numbers), 1), len(numbers)
    first = int(moved[0])
    stride = int(numbers[first] - numbers[0])
    back = np.flatnonzero(numbers[first:] == numbers[0])
    mod = abs(stride) * (first + int(back[0])) // first if len(back) else -1
    return stride, mod, len(np.unique(numbers)), len(numbers) - len(moved)

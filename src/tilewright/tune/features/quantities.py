"""The numbers that features are made of, for whole populations: one array operation for all candidates at once.

Arrays have a row for each loop (or each step of an access), and a column for each candidate.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import BadInput
from tilewright.loops.ir import LoopKind
from tilewright.loops.program import Program
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import Expr
from tilewright.tune.features.nest import Structure, Touch, describe
from tilewright.tune.features.walk import Factors, Floats, Function, Walk

NO_FACTORS: Factors = np.zeros((1, 0), np.int64)
"""The one candidate of a program that leaves nothing open."""
_CHUNK = 256
"""Candidates at a time: their features are transposed within the cache."""


@dataclass(frozen=True, slots=True)
class TouchQuantities:
    """Of an access, for each loop around it, outermost first: (steps, candidates)."""

    strides: Floats
    """Elements from an iteration to the next one; 0 in a loop that runs once."""
    mods: Floats
    """How many elements on it is back where it began; -1 for never."""
    counts: Floats
    """Distinct elements within the loop."""
    totals: Floats
    """Accesses within the loop."""
    reuses: Floats
    """How often each element is accessed within the loop."""
    thread_counts: Floats
    """``counts`` over that of the loops that one thread runs; 0 for loops that are not parallel."""
    thread_reuses: Floats


@dataclass(frozen=True, slots=True)
class Quantities:
    """Of all loops, (loops, candidates), and of all accesses."""

    lengths: Floats
    topdown: Floats
    """The product of the lengths of a loop and those around it."""
    bottomup: Floats
    """The most accesses to one buffer within the loop: the product of its length and those inside."""
    touches: tuple[TouchQuantities, ...]


@dataclass(frozen=True, slots=True)
class Extractor:
    """A structure, compiled to array functions. Make it once for a sketch, and use it for all populations."""

    structure: Structure
    _lengths: Function
    _strides: tuple[Function, ...]
    _places: dict[Expr, Walk]

    @staticmethod
    def of(program: Program) -> "Extractor":
        """That of ``program``, which may have symbolic split factors. Raises ``Unsupported`` as ``describe`` does."""
        structure = describe(program)
        symbols = structure.symbols
        walks = {
            step.place: Walk.along(structure.loops[step.loop].var, step.place, symbols)
            for touch in structure.touches
            for step in touch.steps
            if step.place is not None
        }
        strides = tuple(compile_exprs([step.stride for step in touch.steps], symbols) for touch in structure.touches)
        return Extractor(structure, compile_exprs([loop.extent for loop in structure.loops], symbols), strides, walks)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the columns of ``Factors``."""
        return tuple(var.name for var in self.structure.symbols)

    def features(self, factors: Factors, width: int, of: Callable[[Quantities], Floats]) -> Floats:
        """The features of all candidates, (candidates, width); ``of`` makes those of some, (width, candidates).

        Raises ``BadInput`` if ``factors`` has not one positive number for each symbol.
        """
        self._check(factors)
        result = np.empty((len(factors), width))
        for start in range(0, len(factors), _CHUNK):
            result[start : start + _CHUNK] = of(self.quantities(factors[start : start + _CHUNK])).T
        return result

    def _check(self, factors: Factors) -> None:
        if factors.ndim != 2 or factors.shape[1] != len(self.symbols):
            needed = ", ".join(self.symbols) or "none"
            raise BadInput(f"factors have the shape (candidates, symbols), not {factors.shape}; symbols are: {needed}")
        if np.any(factors < 1):
            raise BadInput("factors are at least 1")

    def quantities(self, factors: Factors) -> Quantities:
        """The numbers of all candidates; all factors are positive."""
        lengths = np.maximum(_rows(self._lengths, factors), 0)
        touches = tuple(
            self._touch(touch, strides, lengths, factors)
            for touch, strides in zip(self.structure.touches, self._strides, strict=True)
        )
        topdown, bottomup = _topdown(self.structure, lengths), _bottomup(self.structure, lengths, touches)
        return Quantities(lengths, topdown, bottomup, touches)

    def _touch(self, touch: Touch, strides: Function, lengths: Floats, factors: Factors) -> TouchQuantities:
        own = lengths[[step.loop for step in touch.steps]]
        moves = np.where(own > 1, _rows(strides, factors), 0.0)
        mods = np.full_like(own, -1.0)
        distinct = np.where(moves != 0, own, np.minimum(own, 1.0))
        for row, step in enumerate(touch.steps):
            if step.place is not None:
                moves[row], mods[row], distinct[row] = self._places[step.place].measure(own[row], factors)
        counts = _inward(distinct)
        totals = _inward(np.where([[step.is_repeated] for step in touch.steps], own, distinct))
        reuses = totals / np.maximum(counts, 1)
        bases = _thread_bases([self.structure.loops[step.loop].kind for step in touch.steps])
        return TouchQuantities(
            moves, mods, counts, totals, reuses, _over_base(counts, bases), _over_base(reuses, bases)
        )


def _rows(function: Function, factors: Factors) -> Floats:
    """The values of a function's expressions: a row for each, a column for each candidate."""
    values = function(*factors.T)
    rows = np.empty((len(values), len(factors)))
    for row, value in zip(rows, values, strict=True):
        row[:] = value
    return rows


def _inward(factors: Floats) -> Floats:
    """The products of each row and all rows after it."""
    result = factors.copy()
    for row in range(len(factors) - 2, -1, -1):
        result[row] *= result[row + 1]
    return result


def _topdown(structure: Structure, lengths: Floats) -> Floats:
    result = np.empty_like(lengths)
    around: list[Floats] = []
    for position, loop in enumerate(structure.loops):
        del around[loop.level - 1 :]
        result[position] = lengths[position] * around[-1] if around else lengths[position]
        around.append(result[position])
    return result


def _bottomup(structure: Structure, lengths: Floats, touches: tuple[TouchQuantities, ...]) -> Floats:
    result = np.zeros_like(lengths)
    for touch, measured in zip(structure.touches, touches, strict=True):
        for step, total in zip(touch.steps, measured.totals, strict=True):
            np.maximum(result[step.loop], total, out=result[step.loop])
    return result


_LEVELS = {
    LoopKind.BLOCK_X: 2,
    LoopKind.BLOCK_Y: 2,
    LoopKind.BLOCK_Z: 2,
    LoopKind.THREAD_X: 1,
    LoopKind.THREAD_Y: 1,
    LoopKind.THREAD_Z: 1,
    LoopKind.PARALLEL: 1,
}
"""Of parallelism: threads are in blocks, and serial code in threads (0)."""


def _thread_bases(kinds: list[LoopKind]) -> tuple[int | None, ...]:
    """For each parallel loop, the outermost loop inside it that begins the next lower level, directly below its own."""
    levels = [_LEVELS.get(kind, 0) for kind in kinds]
    return tuple(
        next((b for b in range(a + 1, len(levels)) if levels[b - 1] == levels[a] == levels[b] + 1), None)
        for a in range(len(levels))
    )


def _over_base(values: Floats, bases: tuple[int | None, ...]) -> Floats:
    """The ratio to the value of the base; 0 where there is none."""
    result = np.zeros_like(values)
    for row, base in enumerate(bases):
        if base is not None:
            result[row] = values[row] / np.maximum(values[base], 1)
    return result

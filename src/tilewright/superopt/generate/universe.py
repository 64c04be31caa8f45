"""Computes values of expressions at the extents of discovery, modulo a prime, thousands at once.

An *expression* is an operation and its operand classes; a *class* is a set of expressions of one value, represented by
the first one found. Both are stored in arrays: millions of expressions are evaluated, compared and discarded a few
thousand at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.passes.rules.terms import Term, Variable
from tilewright.superopt.evaluate.evaluator import Bindings, Evaluator
from tilewright.superopt.generate.extents import Mismatch, Shape, Solver, concrete, sizes
from tilewright.superopt.generate.operations import Family
from tilewright.tensor.domains import PRIME

Ids: TypeAlias = NDArray[np.int64]
NONE = -1
"""The second operand of a unary operation, and the operation of an input."""
_CHUNK = 1 << 15
"""Elements of one result in a batch: with operands and intermediate values, it fits in a core's cache."""
_AT = 0
"""The position of the extents of discovery among the family's."""
_HOLES = ("a", "b")
_HALF, _LOWER = np.uint64(16), np.uint64(0xFFFF)


@dataclass(frozen=True, slots=True)
class Expressions:
    """Columns of equal length: operation, first and second operand, and type of each expression.

    For an input, the operation is ``NONE`` and the first operand its number.
    """

    operation: Ids
    first: Ids
    second: Ids
    type: Ids

    def __len__(self) -> int:
        return len(self.operation)

    def __getitem__(self, chosen: Ids | NDArray[np.bool_] | slice) -> "Expressions":
        return Expressions(self.operation[chosen], self.first[chosen], self.second[chosen], self.type[chosen])

    def groups(self, types: Ids) -> Iterator[tuple[int, int, int, Ids]]:
        """``(operation, type of the first operand, of the second, positions)``; ``types``: of classes."""
        applied = self.operation != NONE
        first = np.where(applied, types[np.where(applied, self.first, 0)], self.first)
        second = np.where(self.second != NONE, types[self.second], NONE)
        order = np.lexsort((second, first, self.operation))
        columns = np.stack([self.operation, first, second])[:, order]
        starts = np.flatnonzero(np.any(columns[:, 1:] != columns[:, :-1], axis=0)) + 1
        for positions in np.split(order, starts) if len(order) else ():
            at = positions[0]
            yield int(self.operation[at]), int(first[at]), int(second[at]), np.sort(positions)


def joined(parts: Sequence[Expressions]) -> Expressions:
    """One after the other."""
    if not parts:
        return Expressions(*(np.zeros(0, np.int64) for _ in range(4)))
    return Expressions(
        np.concatenate([p.operation for p in parts]),
        np.concatenate([p.first for p in parts]),
        np.concatenate([p.second for p in parts]),
        np.concatenate([p.type for p in parts]),
    )


@dataclass(slots=True)
class Types:
    """Types: shapes at all extents of a family. Operands fit each other only if they do at all extents."""

    family: Family
    shapes: list[tuple[Shape, ...]] = field(default_factory=list[tuple[Shape, ...]])
    _numbers: dict[tuple[Shape, ...], int] = field(default_factory=dict[tuple[Shape, ...], int])
    _results: dict[tuple[int, int, int], int | None] = field(default_factory=dict[tuple[int, int, int], int | None])

    def of_input(self, number: int) -> int:
        """The type of an input."""
        return self._number(tuple(self.family.inputs[number].concrete(extents) for extents in self.family.extents))

    def result(self, operation: int, first: int, second: int = NONE) -> int | None:
        """The type of a result; None for operands that do not fit."""
        key = (operation, first, second)
        if key not in self._results:
            operands = [self.shapes[t] for t in (first, second) if t != NONE]
            typing = self.family.operations[operation].typing
            try:
                at_each = [typing(Solver(), shapes) for shapes in zip(*operands, strict=True)]
                self._results[key] = self._number(tuple(at_each))
            except Mismatch:
                self._results[key] = None
        return self._results[key]

    def _number(self, shapes: tuple[Shape, ...]) -> int:
        plain = tuple(map(concrete, shapes))
        if plain not in self._numbers:
            self._numbers[plain] = len(self.shapes)
            self.shapes.append(plain)
        return self._numbers[plain]


class Universe:
    """The values of classes at the first of the family's extents."""

    def __init__(self, types: Types, seed: int) -> None:
        self._types = types
        self._domain = types.family.domain(seed)
        self._evaluator = Evaluator(self._domain)
        self._terms = lru_cache(maxsize=None)(self._term)
        self._values: dict[int, Array] = {}
        self._place = np.zeros(0, np.int64)
        self._forms = lru_cache(maxsize=None)(self._form)

    def add(self, classes: Ids, expressions: Expressions, types: Ids) -> None:
        """Store the values of ``classes``, computed by ``expressions`` (one each); ``types``: those of all classes."""
        if len(types) > len(self._place):
            self._place = np.concatenate([self._place, np.full(len(types) - len(self._place), NONE)])
        for kind in np.unique(expressions.type).tolist():
            chosen = np.flatnonzero(expressions.type == kind)
            known = self._values.get(kind)
            start = 0 if known is None else known.shape[1]
            made = np.empty((self._elements(kind), len(chosen)), np.uint32)
            self._place[classes[chosen]] = start + np.arange(len(chosen))
            for positions, values in self._evaluate(expressions[chosen], types):
                made[:, positions] = values.reshape(-1, len(positions))
            self._values[kind] = made if known is None else np.concatenate([known, made], axis=1)

    def sketches(self, expressions: Expressions, types: Ids) -> NDArray[np.uint64]:
        """Hashes of values: 62 bits, two residues of random linear forms of the elements."""
        found = np.zeros(len(expressions), np.uint64)
        for positions, values in self._evaluate(expressions, types):
            found[positions] = self._residues(values.reshape(-1, len(positions)))
        return found

    def _elements(self, kind: int) -> int:
        return prod(sizes(self._types.shapes[kind][_AT]))

    def _evaluate(self, expressions: Expressions, types: Ids) -> Iterator[tuple[Ids, Array]]:
        """Positions and their values, ``[*shape, positions]``."""
        for operation, first, second, positions in expressions.groups(types):
            if operation == NONE:
                yield positions, self._input(first, len(positions))
                continue
            kinds = tuple(kind for kind in (first, second) if kind != NONE)
            result = int(expressions.type[positions[0]])
            step = max(32, _CHUNK // max(map(self._elements, [*kinds, result])))
            for start in range(0, len(positions), step):
                chosen = positions[start : start + step]
                operands = [expressions.first[chosen], expressions.second[chosen]]
                arrays = [self._gathered(kind, ids) for kind, ids in zip(kinds, operands, strict=False)]
                yield chosen, self._applied(operation, kinds, result, arrays)

    def _gathered(self, kind: int, classes: Ids) -> Array:
        taken = self._values[kind][:, self._place[classes]].astype(self._domain.dtype)
        return taken.reshape(*sizes(self._types.shapes[kind][_AT]), len(classes))

    def _applied(self, operation: int, kinds: tuple[int, ...], result: int, arrays: Sequence[Array]) -> Array:
        term = self._terms(operation, kinds, result)
        return self._evaluator.term(term, Bindings(dict(zip(_HOLES, arrays, strict=False))))

    def _term(self, operation: int, kinds: tuple[int, ...], result: int) -> Term:
        """The operation on operands of types ``kinds``, which are variables named as in ``_HOLES``."""
        shapes = [self._types.shapes[kind][_AT] for kind in kinds]
        holes = [Variable(name) for name, _ in zip(_HOLES, kinds, strict=False)]
        building = self._types.family.operations[operation].building
        return building(holes, shapes, self._types.shapes[result][_AT])

    def _input(self, number: int, count: int) -> Array:
        made = self._types.family.inputs[number]
        shape = made.concrete(self._types.family.extents[_AT])
        if made.constant is None:
            value = self._domain.random((*sizes(shape), 1), number)
        else:
            value = self._evaluator.term(made.constant(shape), Bindings({}))
        return np.broadcast_to(value, (*sizes(shape), count))

    def _form(self, elements: int) -> NDArray[np.float64]:
        """Coefficients of two forms, ``[4, elements]``: first the upper halves of both, then the lower ones."""
        generator = np.random.Generator(np.random.PCG64(elements))
        forms = generator.integers(1, PRIME, (2, elements)).astype(np.uint64)
        return np.concatenate([forms >> _HALF, forms & _LOWER]).astype(np.float64)

    def _residues(self, values: Array) -> NDArray[np.uint64]:
        """Residues of both forms; products of 16-bit halves are summed exactly in float64, by matrix multiplication."""
        halves = self._forms(len(values))
        whole = values.astype(np.uint64, copy=False)
        high = (halves @ (whole >> _HALF).astype(np.float64)).astype(np.uint64)
        low = (halves @ (whole & _LOWER).astype(np.float64)).astype(np.uint64)
        prime = np.uint64(PRIME)
        middle = (high[2:] + low[:2]) % prime
        both = (high[:2] % prime * np.uint64(2) + (middle << _HALF) + low[2:]) % prime  # 2^32 is 2
        return (both[0] << np.uint64(31)) | both[1]

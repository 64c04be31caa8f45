"""Enumerates the expressions of a family, and finds those of equal value.

Level ``n`` has the expressions of ``n`` operations, applied to classes of lower levels. A class is a set of expressions
of one value, represented by the first one found, so that equal operands are tried once (as in Quartz, Xu et al., PLDI
2022, and Ruler, Nandi et al., OOPSLA 2021). An expression whose value is known already is a *candidate* for a rule: it
probably equals the representative of its class.

Variables can be renamed, so a candidate has its variables in order: ``x1`` first. Levels up to 3 are enumerated for all
orders, as the sides of a rule may differ in order; level 4, the last, for ordered expressions only.
"""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.superopt.generate.generalization import Tree
from tilewright.superopt.generate.operations import Family, Role
from tilewright.superopt.generate.universe import NONE, Expressions, Ids, Types, Universe, joined

Order: TypeAlias = tuple[int, ...]
"""The variables of an expression in order of first occurrence, by input number."""
_ALL_ORDERS = 3
"""The last level at which expressions of all orders of variables are enumerated."""


@dataclass(frozen=True, slots=True)
class Level:
    """Statistics of one level. ``memory``: peak memory of the process until its end, in bytes."""

    depth: int
    evaluations: int
    classes: int
    candidates: int
    seconds: float
    memory: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """``expressions[i]`` has the value of class ``classes[i]``."""

    expressions: Expressions
    classes: Ids


Watch: TypeAlias = Callable[[Level], None]


@dataclass(slots=True)
class Enumeration:
    """The classes of a family, level by level, in columns indexed by class."""

    family: Family
    seed: int
    types: Types = field(init=False)
    universe: Universe = field(init=False)
    expressions: Expressions = field(init=False)
    levels: list[Ids] = field(init=False)
    """The classes of each level that are operands of later levels."""
    _orders: "Orders" = field(init=False)
    _order: Ids = field(init=False)
    _data: NDArray[np.bool_] = field(init=False)
    _keys: NDArray[np.uint64] = field(init=False)
    """The keys of all classes, sorted; ``_by_key`` are the numbers of the classes."""
    _by_key: Ids = field(init=False)

    def __post_init__(self) -> None:
        inputs = range(len(self.family.inputs))
        self.types = Types(self.family)
        self.universe = Universe(self.types, self.seed)
        self._orders = Orders(self.family)
        self._order = np.array([self._orders.of_input(number) for number in inputs])
        self._data = np.array([not self.family.inputs[number].is_weight for number in inputs])
        kinds = np.array([self.types.of_input(number) for number in inputs])
        self.expressions = Expressions(
            np.full(len(kinds), NONE), np.arange(len(kinds)), np.full(len(kinds), NONE), kinds
        )
        self.levels = [np.arange(len(kinds))]
        self.universe.add(self.levels[0], self.expressions, kinds)
        keys = self._hashed(self.expressions)
        self._by_key = np.argsort(keys, kind="stable")
        self._keys = keys[self._by_key]

    def run(self, depth: int, watch: Watch) -> list[Candidates]:
        """Enumerate all levels up to ``depth``; the candidates of each. ``watch`` is called after each level."""
        return [self._level(level, is_last=level == depth, watch=watch) for level in range(1, depth + 1)]

    def trees(self, expressions: Expressions) -> list[Tree]:
        """Each expression as a tree down to the inputs."""
        known: dict[int, Tree] = {}
        everything = self.expressions

        def of_class(number: int) -> Tree:
            if number not in known:
                at = int(everything.operation[number]), int(everything.first[number]), int(everything.second[number])
                known[number] = of(*at)
            return known[number]

        def of(operation: int, first: int, second: int) -> Tree:
            if operation == NONE:
                return first
            return operation, (of_class(first),) if second == NONE else (of_class(first), of_class(second))

        columns = (expressions.operation, expressions.first, expressions.second)
        return [of(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def _level(self, depth: int, *, is_last: bool, watch: Watch) -> Candidates:
        started = time.perf_counter()
        ordered_only = depth > _ALL_ORDERS
        made = self._applications(depth, ordered_only)
        keys = self._hashed(made)
        first, found = self._sorted(made, keys, ordered_only)
        before = len(self.expressions)
        self._grow(made[first], keys[first], depth, keep=not is_last)
        candidates = self._candidates(made, keys, found)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        seconds = time.perf_counter() - started
        watch(Level(depth, len(made), len(self.expressions) - before, len(candidates.classes), seconds, memory))
        return candidates

    # Expressions of a level

    def _applications(self, depth: int, ordered_only: bool) -> Expressions:
        parts: list[Expressions] = []
        for number, operation in enumerate(self.family.operations):
            if operation.arity == 1:
                parts += self._unary(number, self.levels[depth - 1])
                continue
            for left in range(depth):
                right = depth - 1 - left
                if not operation.commutes or left >= right:
                    parts += self._binary(number, left, right, ordered_only)
        return joined(parts)

    def _unary(self, number: int, classes: Ids) -> list[Expressions]:
        return [
            Expressions(np.full(len(ids), number), ids, np.full(len(ids), NONE), np.full(len(ids), result))
            for kind, ids in self._of_role(classes, self.family.operations[number].roles[0])
            if (result := self.types.result(number, kind)) is not None
        ]

    def _binary(self, number: int, left: int, right: int, ordered_only: bool) -> list[Expressions]:
        operation = self.family.operations[number]
        parts: list[Expressions] = []
        for kind, ids in self._of_role(self.levels[left], operation.roles[0]):
            for other, others in self._of_role(self.levels[right], operation.roles[1]):
                result = self.types.result(number, kind, other)
                if result is None:
                    continue
                first, second = np.repeat(ids, len(others)), np.tile(others, len(ids))
                kept = np.ones(len(first), np.bool_)
                if operation.commutes and left == right:
                    kept = first <= second
                if ordered_only:
                    kept &= self._is_ordered(first, second, left >= right)
                first, second = first[kept], second[kept]
                parts.append(Expressions(np.full(len(first), number), first, second, np.full(len(first), result)))
        return parts

    def _of_role(self, classes: Ids, role: Role) -> list[tuple[int, Ids]]:
        """Those of ``classes`` that ``role`` permits, by type."""
        data = self._data[classes]
        allowed = classes if role is Role.ANY else classes[data if role is Role.DATA else ~data]
        kinds = self.expressions.type[allowed]
        return [(kind, allowed[kinds == kind]) for kind in np.unique(kinds).tolist()]

    def _is_ordered(self, first: Ids, second: Ids, first_leads: bool) -> NDArray[np.bool_]:
        """Whether variables occur in order, with those of the larger operand first."""
        lead, other = (first, second) if first_leads else (second, first)
        return self._orders.is_ordered(self._order[lead], self._order[other])

    def _hashed(self, made: Expressions) -> NDArray[np.uint64]:
        """The keys of values, which include the type."""
        sketches = self.universe.sketches(made, self.expressions.type)
        return sketches ^ (made.type.astype(np.uint64) << np.uint64(62 - 10))

    # New classes and candidates

    def _sorted(self, made: Expressions, keys: NDArray[np.uint64], ordered_only: bool) -> tuple[Ids, Ids]:
        """Positions of the first expression of each new class, and of all expressions with ordered variables."""
        ordered = np.ones(len(made), np.bool_) if ordered_only else self._are_ordered(made)
        rank = np.lexsort((np.arange(len(made)), ~ordered, keys))
        ranked = keys[rank]
        is_first = np.concatenate([np.ones(min(1, len(made)), np.bool_), ranked[1:] != ranked[:-1]])
        place = np.minimum(np.searchsorted(self._keys, ranked), len(self._keys) - 1)
        is_first &= self._keys[place] != ranked
        return np.sort(rank[is_first]), np.flatnonzero(ordered)

    def _are_ordered(self, made: Expressions) -> NDArray[np.bool_]:
        second = np.where(made.second == NONE, made.first, made.second)
        return self._orders.is_ordered(self._order[made.first], self._order[second])

    def _grow(self, new: Expressions, keys: NDArray[np.uint64], depth: int, *, keep: bool) -> None:
        classes = len(self.expressions) + np.arange(len(new))
        self.expressions = joined([self.expressions, new])
        second = np.where(new.second == NONE, new.first, new.second)
        self._order = np.concatenate([self._order, self._orders.joined(self._order[new.first], self._order[second])])
        self._data = np.concatenate([self._data, self._data[new.first] | self._data[second]])
        merged = np.concatenate([self._keys, keys])
        order = np.argsort(merged, kind="stable")
        self._keys, self._by_key = merged[order], np.concatenate([self._by_key, classes])[order]
        if not keep:
            return
        ordered = self._orders.is_ordered(self._order[classes], self._order[classes])
        extended = classes[ordered] if depth >= _ALL_ORDERS else classes
        self.levels.append(extended)
        self.universe.add(extended, self.expressions[extended], self.expressions.type)

    def _candidates(self, made: Expressions, keys: NDArray[np.uint64], ordered: Ids) -> Candidates:
        """Ordered expressions that are not the representative of their class."""
        classes = self._by_key[np.searchsorted(self._keys, keys[ordered])]
        mine, theirs = made[ordered], self.expressions[classes]
        same = (mine.operation == theirs.operation) & (mine.first == theirs.first) & (mine.second == theirs.second)
        return Candidates(mine[~same], classes[~same])


class Orders:
    """Orders of variables, numbered."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._orders: list[Order] = []
        self._numbers: dict[Order, int] = {}
        self._joined = lru_cache(maxsize=None)(self._join)

    def of_input(self, number: int) -> int:
        """The order of an input alone; constants have no variables."""
        return self._number(() if self._family.inputs[number].constant else (number,))

    def joined(self, first: Ids, second: Ids) -> Ids:
        """The orders of expressions from those of their operands."""
        return self._mapped(first, second, lambda a, b: self._joined(a, b)[0])

    def is_ordered(self, first: Ids, second: Ids) -> NDArray[np.bool_]:
        """Whether each variable occurs after those of its kind with smaller numbers."""
        return self._mapped(first, second, lambda a, b: self._joined(a, b)[1]).astype(np.bool_)

    def _mapped(self, first: Ids, second: Ids, function: Callable[[int, int], int]) -> Ids:
        pairs, inverse = np.unique(first * len(self._orders) + second, return_inverse=True)
        count = len(self._orders)
        return np.array([function(pair // count, pair % count) for pair in pairs.tolist()], np.int64)[inverse]

    def _join(self, first: int, second: int) -> tuple[int, bool]:
        order = tuple(dict.fromkeys((*self._orders[first], *self._orders[second])))
        return self._number(order), self._follows(order)

    def _follows(self, order: Order) -> bool:
        counts: dict[int, int] = {}
        for number in order:
            first = self._family.first_of_kind[number]
            if number != first + counts.get(first, 0):
                return False
            counts[first] = counts.get(first, 0) + 1
        return True

    def _number(self, order: Order) -> int:
        if order not in self._numbers:
            self._numbers[order] = len(self._orders)
            self._orders.append(order)
        return self._numbers[order]

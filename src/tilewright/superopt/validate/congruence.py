"""Congruence: equality of values of several graphs by equal definitions.

Values are numbered: two get one number if they are the same input, the same constant, or results of the same operator
with the same attributes on operands with the same numbers (Alpern, Wegman and Zadeck, "Detecting equality of variables
in programs", POPL 1988). A changed graph shares the numbers of all values that were not changed.

    known = Congruence()
    before = known.of_leaves(graph)
    (y,) = known.results(node, [before[x.name]])
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.exact import Exact
from tilewright.graph import Array, Graph, Node, Value
from tilewright.ops import Attribute, FusionKind, Operator, Trait
from tilewright.symbolic.expr import Expr

Attributes: TypeAlias = tuple[tuple[str, Attribute], ...]
_Key: TypeAlias = tuple[Operator, Exact[Attributes], tuple[int | None, ...]]
_FEW = 16
"""The number of elements compared first: they nearly always show that two constants, or two elements, differ."""


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a value."""

    dtype: DType
    shape: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """One application of an operator to numbered values; the numbers of its results."""

    op: Operator
    operands: tuple[int | None, ...]
    attributes: Attributes
    results: tuple[int, ...]

    @property
    def is_view(self) -> bool:
        """Whether it only reinterprets its operand."""
        return self.op.kind is FusionKind.VIEW


@dataclass(slots=True)
class Congruence:
    """Numbered values, with their types and definitions."""

    types: list[Type] = field(default_factory=list[Type])
    definitions: dict[int, Definition] = field(default_factory=dict[int, Definition])
    """The definition of each result; inputs and constants have none."""
    literals: dict[int, float] = field(default_factory=dict[int, float])
    """Constants with equal elements: rules may depend on the number. Other constants are arbitrary values."""
    _nodes: dict[_Key, Definition] = field(default_factory=dict[_Key, Definition])
    _inputs: dict[str, int] = field(default_factory=dict[str, int])
    _constants: dict[tuple[Type, bytes], list[tuple[Array, int]]] = field(
        default_factory=dict[tuple[Type, bytes], list[tuple[Array, int]]]
    )
    """Constants, by type and first elements."""
    _uniform: dict[tuple[Type, Exact[float]], int] = field(default_factory=dict[tuple[Type, Exact[float]], int])

    def of_leaves(self, graph: Graph) -> dict[str, int]:
        """The numbers of the inputs and constants of ``graph``, by name."""
        found = {value.name: self._input(value) for value in graph.inputs}
        return found | {value.name: self._constant(value, array) for value, array in graph.constants.items()}

    def results(self, node: Node, operands: Sequence[int | None]) -> tuple[int, ...]:
        """The numbers of the outputs of ``node``."""
        source, result = operands[0] if operands else None, node.outputs[0]
        if node.op.has(Trait.NEUTRAL) and source is not None and self.types[source] == Type(result.dtype, result.shape):
            return (source,)
        attributes = tuple(sorted(node.attributes, key=lambda named: named[0]))
        key = (node.op, Exact(attributes), tuple(operands))
        known = self._nodes.get(key)
        if known is None or len(known.results) < len(node.outputs):
            made = [] if known is None else list(known.results)
            made += [self._new(value) for value in node.outputs[len(made) :]]
            known = self._nodes[key] = Definition(node.op, tuple(operands), attributes, tuple(made))
            self.definitions.update(dict.fromkeys(made, known))
        return known.results[: len(node.outputs)]

    def _input(self, value: Value) -> int:
        if value.name not in self._inputs:
            self._inputs[value.name] = self._new(value)
        return self._inputs[value.name]

    def _constant(self, value: Value, array: Array) -> int:
        kind = Type(value.dtype, value.shape)
        literal = _literal(array)
        if literal is not None:
            key = (kind, Exact(literal))
            if key not in self._uniform:
                self._uniform[key] = self._new(value)
                self.literals[self._uniform[key]] = literal
            return self._uniform[key]
        known = self._constants.setdefault((kind, array.reshape(-1)[:_FEW].tobytes()), [])
        for other, number in known:
            if other is array or np.array_equal(other, array):
                return number
        known.append((array, self._new(value)))
        return known[-1][1]

    def _new(self, value: Value) -> int:
        self.types.append(Type(value.dtype, value.shape))
        return len(self.types) - 1


def _literal(array: Array) -> float | None:
    """The common number of all elements of ``array``; None if they differ, or if there are none."""
    flat = array.reshape(-1)
    if not flat.size or not bool((flat[:_FEW] == flat[0]).all()) or not bool((flat == flat[0]).all()):
        return None
    return float(flat[0])

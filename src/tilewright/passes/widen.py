"""Computes in f32 what a model computes in floats of 16 bits, f16 or bf16.

Such a model rounds after each operator. Here its values are f32, and only these are rounded:

- outputs of the model, and what its own ``Cast`` makes of wider floats;
- rows that are gathered, and what of inputs becomes part of an output without being computed, such as caches: it stays
  in 16 bits until an operator computes with it.

Rounding less is closer to the operators in real numbers, and takes no time. ``Graph.halves`` has the types that the
values had, from which follows in what types they are stored (``passes.precision``).
"""

from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.base.dtypes import DType, f32
from tilewright.base.names import Names
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops import Attribute, Trait
from tilewright.ops.called import CalledOperator
from tilewright.ops.operator import require

_CAST = require("Cast")


def is_half(dtype: DType) -> bool:
    """Whether ``dtype`` is a float of 16 bits."""
    return dtype.is_float and dtype.bits == 16


def widen(graph: Graph) -> Graph:
    """``graph`` with f32 in place of 16-bit floats, except for its inputs and outputs; unused parts remain."""
    made = (value for node in graph.nodes for value in node.outputs)
    if not any(is_half(value.dtype) for value in (*graph.inputs, *graph.constants, *made)):
        return graph
    return _Widening.of(graph).widened()


@dataclass(slots=True)
class _Widening:
    """The nodes and constants of the new graph. A value of the old one that has 16 bits is there in 16 bits, in f32, or
    both."""

    graph: Graph
    constants: dict[Value, Array]
    names: Names
    leaving: frozenset[Value]
    fixed: set[Value]
    """The values that follow from constants."""
    moved: frozenset[Value]
    """The values from which outputs of the model follow by moving alone."""
    narrow: dict[Value, Value]
    wide: dict[Value, Value] = field(default_factory=dict[Value, Value])
    nodes: list[Node] = field(default_factory=list[Node])

    @staticmethod
    def of(graph: Graph) -> "_Widening":
        constants, names = dict(graph.constants), graph.names()
        given = {value: value for value in (*graph.inputs, *constants)}
        return _Widening(graph, constants, names, frozenset(graph.outputs), {*constants}, _moved(graph), given)

    def widened(self) -> Graph:
        """The new graph."""
        for node in self.graph.nodes:
            made = None if self._stays(node) else self._in_f32(node)
            self.nodes.append(made or replace(node, inputs=tuple(map(self._as_it_was, node.inputs))))
            new = node.outputs if made is None else made.outputs
            for old, value in zip(node.outputs, new, strict=True):
                (self.narrow if value == old else self.wide)[old] = value
            if all(value is None or value in self.fixed for value in node.inputs):
                self.fixed.update(node.outputs)
        for value in self.graph.outputs:
            self._as_it_was(value)
        halves = {new.name: old.dtype for old, new in self.wide.items()}
        return replace(self.graph, nodes=tuple(self.nodes), constants=self.constants, halves=halves)

    def _stays(self, node: Node) -> bool:
        """Whether ``node`` has no 16-bit floats, rounds to them, or moves what has 16 bits."""
        halves = [value for value in node.inputs if value is not None and is_half(value.dtype)]
        source, result = (*node.inputs, None)[0], node.outputs[0]
        if isinstance(node.op, CalledOperator) or not (halves or any(is_half(v.dtype) for v in node.outputs)):
            return True
        if node.op == _CAST and source is not None and source.dtype.is_float and source.dtype != result.dtype:
            return is_half(result.dtype)
        moves = result in self.moved if node.op.has(Trait.MOVES) else node.op.has(Trait.RELOCATES)
        if not moves or all(value is None or value in self.fixed for value in node.inputs):
            return False
        stored = [value for value in halves if value in self.narrow]
        return len(stored) == len(halves) or not self.fixed.issuperset(stored)

    def _in_f32(self, node: Node) -> Node | None:
        """``node`` on f32; None if its results would be others."""
        attributes = {name: f32 if _is_half_type(value) else value for name, value in node.attributes}
        renamed = [is_half(value.dtype) and value in self.leaving for value in node.outputs]
        pairs = zip(node.outputs, renamed, strict=True)
        names = [self.names.fresh(f"{value.name}.f32") if is_new else value.name for value, is_new in pairs]
        made = make_node(node.op, tuple(map(self._in_wide, node.inputs)), names, attributes, node.source)
        types = [(f32 if is_half(value.dtype) else value.dtype, value.shape) for value in node.outputs]
        return made if types == [(value.dtype, value.shape) for value in made.outputs] else None

    def _in_wide(self, value: Value | None) -> Value | None:
        """``value`` in f32, if it has 16 bits."""
        if value is None or not is_half(value.dtype):
            return value
        if value not in self.wide:
            name, array = self.names.fresh(f"{value.name}.f32"), self.graph.constants.get(value)
            if array is None:
                self.nodes.append(make_node(_CAST, [self.narrow[value]], [name], {"to": f32}))
                self.wide[value] = self.nodes[-1].outputs[0]
            else:
                self.wide[value] = Value(name, f32, value.shape)
                self.constants[self.wide[value]] = array.astype(np.float32)
        return self.wide[value]

    def _as_it_was(self, value: Value | None) -> Value | None:
        """``value`` in its own type."""
        if value is None or not is_half(value.dtype):
            return value
        if value not in self.narrow:
            name = value.name if value in self.leaving else self.names.fresh(f"{value.name}.{value.dtype}")
            self.nodes.append(make_node(_CAST, [self.wide[value]], [name], {"to": value.dtype}))
            self.narrow[value] = self.nodes[-1].outputs[0]
        return self.narrow[value]


def _moved(graph: Graph) -> frozenset[Value]:
    found = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.op.has(Trait.MOVES) and not found.isdisjoint(node.outputs):
            found.update(value for value in node.inputs if value is not None)
    return frozenset(found)


def _is_half_type(value: Attribute) -> bool:
    return isinstance(value, DType) and is_half(value)

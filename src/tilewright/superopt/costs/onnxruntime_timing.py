"""Costs of graphs in ONNX Runtime: seconds, measured on this machine.

A node by itself is a model of one node, and is measured once for all that are like it. A whole graph is written as it
would be saved, and optimized by ONNX Runtime as it is by default; it takes turns with the first graph that was asked
about, so that costs of graphs can be compared even if the machine slows down in between.
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from tilewright.base.dtypes import DType, f32
from tilewright.base.exact import Exact
from tilewright.frontend.onnx.onnxruntime import prepared
from tilewright.frontend.onnx.write import exporter
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.measure.turns import Clock, Plan, Run, Timing, measure, ratio
from tilewright.ops import Attribute, Operator, Trait
from tilewright.ops.operator import map_expressions, require
from tilewright.ops.shapes import Shape, number_at, show
from tilewright.symbolic.expr import Expr, const
from tilewright.target.machine import GUESSED_EXTENT

Prepare = Callable[[onnx.ModelProto, Mapping[str, Array], int], Run]
"""A model, its inputs by name, and a number of threads, as something that runs it."""

_NODE = Plan(rounds=5, slot=0.001, rest=0.0, budget=0.03)
_GRAPH = Plan(rounds=25, slot=0.002, rest=0.0, budget=2.0)
_ENTRY = 0.5
"""What floats are made of: neither 0 nor 1, which optimizers know about."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of a node, as far as its cost depends on it."""

    dtype: DType
    shape: Shape
    is_weight: bool

    def __str__(self) -> str:
        return f"{'weight ' if self.is_weight else ''}{self.dtype}{show(self.shape)}"


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that cost the same."""

    op: Operator
    operands: tuple[Operand | None, ...]
    attributes: Exact[tuple[tuple[str, Attribute], ...]]

    @staticmethod
    def of(node: Node, weights: Collection[str]) -> "NodeKind":
        """That of ``node``, some of whose inputs are ``weights``."""
        operands = tuple(None if v is None else Operand(v.dtype, v.shape, v.name in weights) for v in node.inputs)
        return NodeKind(node.op, operands, Exact(node.attributes))

    def __str__(self) -> str:
        options = [f"{name}={value}" for name, value in self.attributes.value]
        return f"{self.op}({', '.join(['_' if o is None else str(o) for o in self.operands] + options)})"


@dataclass(slots=True)
class OnnxRuntimeCosts:
    """Seconds on so many ``threads``. ``sizes``: run-time extents by name, others are ``GUESSED_EXTENT``.

    Needs the extra ``demo``. Both costs raise ``Unsupported`` if onnxruntime is not installed, ``BadInput`` if it
    refuses a model, and ``UnsupportedModel`` for a node that can't be written as ONNX.
    """

    threads: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    prepare: Prepare = prepared
    clock: Clock = time.perf_counter
    table: dict[NodeKind, float] = field(default_factory=dict[NodeKind, float])
    """What was measured of nodes so far."""
    _overhead: float | None = None
    _first: Run | None = None
    _reference: float = 0.0
    """The time of the first graph."""

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        """Of one node by itself, less what any model takes; what is alike is measured once."""
        kind = NodeKind.of(node, weights)
        if kind not in self.table:
            if self._overhead is None:
                self._overhead = self._measured(_NOTHING, ())
            self.table[kind] = max(self._measured(self._at_sizes(node), weights) - self._overhead, 0.0)
        return self.table[kind]

    def of_graph(self, graph: Graph) -> float:
        """Of a run of the whole graph. The first one asked about stays in memory."""
        feeds = {value.name: _drawn(value, self._shape(value)) for value in graph.inputs}
        run = self.prepare(exporter.export(graph), feeds, self.threads)
        if self._first is None:
            self._first, self._reference = run, self._timed({"first": run}, _GRAPH)["first"].median
            return self._reference
        timings = self._timed({"first": self._first, "other": run}, _GRAPH)
        return self._reference * ratio(timings["other"], timings["first"])

    def _measured(self, node: Node, weights: Collection[str]) -> float:
        given = list(dict.fromkeys(value for value in node.inputs if value is not None))
        arrays = {value: _filled(value, self._shape(value), node.op) for value in given}
        constants = {value: array for value, array in arrays.items() if value.name in weights}
        inputs = tuple(value for value in given if value not in constants)
        model = exporter.export(Graph("node", inputs, node.outputs, (node,), constants))
        feeds = {value.name: arrays[value] for value in inputs}
        return self._timed({"node": self.prepare(model, feeds, self.threads)}, _NODE)["node"].median

    def _timed(self, runs: Mapping[str, Run], plan: Plan) -> dict[str, Timing]:
        return measure(runs, plan, self.clock)

    def _at_sizes(self, node: Node) -> Node:
        """``node`` with numbers in the place of run-time extents."""
        inputs = [v and Value(v.name, v.dtype, tuple(map(const, self._shape(v)))) for v in node.inputs]
        attributes = {name: map_expressions(value, self._number) for name, value in node.attributes}
        return make_node(node.op, inputs, [value.name for value in node.outputs], attributes, node.source)

    def _shape(self, value: Value) -> tuple[int, ...]:
        return tuple(map(self._number, value.shape))

    def _number(self, extent: Expr) -> int:
        return number_at(extent, {v: self.sizes.get(v.given, GUESSED_EXTENT) for v in extent.variables})


_NOTHING = make_node(require("Relu"), [Value("x", f32, ())], ["y"], {})
"""The least that a model can do."""


def _filled(value: Value, shape: tuple[int, ...], op: Operator) -> Array:
    """Integers that nothing is divided by are 0, which is inside of whatever they may index."""
    entry = _ENTRY if value.dtype.is_float else int(op.has(Trait.DIVIDES))
    return np.full(shape, entry, value.dtype.numpy)


def _drawn(value: Value, shape: tuple[int, ...]) -> Array:
    """Inputs of a network: normal floats, and zeros, which are inside whatever they may index."""
    if not value.dtype.is_float:
        return np.zeros(shape, value.dtype.numpy)
    return np.random.default_rng(0).standard_normal(shape).astype(value.dtype.numpy)

"""Costs of graphs in ONNX Runtime: seconds, measured on this machine.

A single node is measured as a model of one node, once for all equal nodes. A whole graph is exported, and run with ONNX
Runtime's default optimizations, in turns with the first graph that was measured, so that costs of graphs are comparable
even if the machine's speed changes.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from tilewright.base.dtypes import DType, f32
from tilewright.base.exact import Exact
from tilewright.frontend.onnx.onnxruntime import outputs_of, prepared
from tilewright.frontend.onnx.write import exporter
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.measure.turns import Clock, Plan, Run, Timing, measure, ratio
from tilewright.ops import Attribute, Operator, Trait
from tilewright.ops.operator import map_expressions, require
from tilewright.ops.shapes import Shape, number_at, show
from tilewright.symbolic.expr import Expr, const
from tilewright.target.machine import GUESSED_EXTENT

Prepare = Callable[[onnx.ModelProto, Mapping[str, Array], int], Run]
"""Makes a function that runs a model, given its inputs by name and a number of threads."""

_NODE = Plan(rounds=5, slot=0.001, rest=0.0, budget=0.03)
_GRAPH = Plan(rounds=25, slot=0.002, rest=0.0, budget=2.0)
_ENTRY = 0.5
"""The value of float inputs: neither 0 nor 1, which optimizers treat specially."""


@dataclass(frozen=True, slots=True)
class Operand:
    """The properties of an operand on which a node's cost depends."""

    dtype: DType
    shape: Shape
    is_weight: bool

    def __str__(self) -> str:
        return f"{'weight ' if self.is_weight else ''}{self.dtype}{show(self.shape)}"


@dataclass(frozen=True, slots=True)
class NodeKind:
    """The properties of a node on which its cost depends."""

    op: Operator
    operands: tuple[Operand | None, ...]
    attributes: Exact[tuple[tuple[str, Attribute], ...]]

    @staticmethod
    def of(node: Node, weights: Collection[str]) -> "NodeKind":
        """The kind of ``node``; ``weights``: names of values that are weights."""
        operands = tuple(None if v is None else Operand(v.dtype, v.shape, v.name in weights) for v in node.inputs)
        return NodeKind(node.op, operands, Exact(node.attributes))

    def __str__(self) -> str:
        options = [f"{name}={value}" for name, value in self.attributes.value]
        return f"{self.op}({', '.join(['_' if o is None else str(o) for o in self.operands] + options)})"


@dataclass(slots=True)
class OnnxRuntimeCosts:
    """Seconds with ``threads`` threads. ``sizes``: run-time extents by name, others are ``GUESSED_EXTENT``.

    Needs the extra ``demo``. Both costs raise ``Unsupported`` if onnxruntime is not installed, ``BadInput`` if it
    refuses a model, and ``UnsupportedModel`` for a node that can't be written as ONNX.
    """

    threads: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    prepare: Prepare = prepared
    clock: Clock = time.perf_counter
    table: dict[NodeKind, float] = field(default_factory=dict[NodeKind, float])
    """Seconds of the nodes measured so far."""
    _overhead: float | None = None
    _first: Run | None = None
    _reference: float = 0.0
    """The time of the first graph."""

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        """Seconds of a single node, without the constant overhead of a model; equal nodes are measured once."""
        kind = NodeKind.of(node, weights)
        if kind not in self.table:
            if self._overhead is None:
                self._overhead = self._measured(_NOTHING, ())
            self.table[kind] = max(self._measured(self._at_sizes(node), weights) - self._overhead, 0.0)
        return self.table[kind]

    def of_graph(self, graph: Graph) -> float:
        """Seconds of a run of the whole graph. The first measured graph stays in memory as the reference."""
        feeds = {value.name: _drawn(value, self._shape(value)) for value in graph.inputs}
        run = self.prepare(exporter.export(graph), feeds, self.threads)
        if self._first is None:
            self._first, self._reference = run, self._timed({"first": run}, _GRAPH)["first"].median
            return self._reference
        timings = self._timed({"first": self._first, "other": run}, _GRAPH)
        return self._reference * ratio(timings["other"], timings["first"])

    def run(self, graph: Graph, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """The outputs of a graph, as ONNX Runtime computes them by default. Raises as costs do."""
        return outputs_of(exporter.export(graph), feeds, self.threads)

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
        """``node`` with numbers for run-time extents."""
        inputs = [v and Value(v.name, v.dtype, tuple(map(const, self._shape(v)))) for v in node.inputs]
        attributes = {name: map_expressions(value, self._number) for name, value in node.attributes}
        return make_node(node.op, inputs, [value.name for value in node.outputs], attributes, node.source)

    def _shape(self, value: Value) -> tuple[int, ...]:
        return tuple(map(self._number, value.shape))

    def _number(self, extent: Expr) -> int:
        return number_at(extent, {v: self.sizes.get(v.given, GUESSED_EXTENT) for v in extent.variables})


_NOTHING = make_node(require("Relu"), [Value("x", f32, ())], ["y"], {})
"""A model of minimal work, to measure the constant overhead."""


def _filled(value: Value, shape: tuple[int, ...], op: Operator) -> Array:
    """Values of an input: integers that are not divisors are 0, a valid index of any dimension."""
    entry = _ENTRY if value.dtype.is_float else int(op.has(Trait.DIVIDES))
    return np.full(shape, entry, value.dtype.numpy)


def _drawn(value: Value, shape: tuple[int, ...]) -> Array:
    """Values of an input of a network: normal floats; for integers zeros, which are valid indices of any dimension."""
    if not value.dtype.is_float:
        return np.zeros(shape, value.dtype.numpy)
    return np.random.default_rng(0).standard_normal(shape).astype(value.dtype.numpy)

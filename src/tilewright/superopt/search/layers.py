"""The form of graphs that is searched: layers are products, so that rules of products match in them.

    y = Gemm(x, w, c, alpha=2.0, transpose_b=True)
    t = Transpose(w); s = Mul(t, 2.0); p = MatMul(x, s); y = Add(p, c)

A factor goes to an operand that is a weight, if one is: nothing is computed of it in a run. A layer of what
``DequantizeLinear`` makes stays: a factor would hide the integers.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops import Attribute
from tilewright.ops.operator import Operator, require
from tilewright.passes.rules import Apply, Rule, index_of, matches
from tilewright.passes.rules.terms import subterms

_LAYER, _PRODUCT, _SUM, _SCALED = require("Gemm"), require("MatMul"), require("Add"), require("Mul")
_TURNED, _DEQUANTIZED = require("Transpose"), require("DequantizeLinear")


def forms_of(graph: Graph, rules: Sequence[Rule]) -> tuple[Graph, ...]:
    """The forms of ``graph`` in which ``rules`` are searched: of products, and as it is, if a rule names its layers."""
    products = in_products(graph)
    if products is graph:
        return (graph,)
    index = index_of(graph)
    are_named = any(_names_layers(rule) and next(matches(rule, index), None) is not None for rule in rules)
    return (products, graph) if are_named else (products,)


def _names_layers(rule: Rule) -> bool:
    return any(isinstance(term, Apply) and term.op == _LAYER for term in subterms(rule.sources))


def in_products(graph: Graph) -> Graph:
    """``graph`` with its layers as products; itself, if it has none."""
    exact = {value for node in graph.nodes if node.op == _DEQUANTIZED for value in node.outputs}
    layers = [
        node for node in graph.nodes if node.op == _LAYER and _is_of_floats(node) and exact.isdisjoint(node.inputs)
    ]
    if not layers:
        return graph
    writer, written = _Writer(graph), {node.outputs[0].name for node in layers}
    for node in graph.nodes:
        if node.outputs[0].name in written:
            writer.write(node)
        else:
            writer.nodes.append(node)
    return replace(graph, nodes=tuple(writer.nodes), constants={**graph.constants, **writer.factors})


def _is_of_floats(node: Node) -> bool:
    return node.outputs[0].dtype.is_float


class _Writer:
    """Writes the nodes of one graph anew."""

    def __init__(self, graph: Graph) -> None:
        self._names, self._weights = graph.names(), set(index_of(graph).weights)
        self._source = ""
        self.nodes: list[Node] = []
        self.factors: dict[Value, Array] = {}
        """Numbers that layers multiply by."""

    def write(self, layer: Node) -> None:
        """Add the nodes of ``layer``; the last one has its result."""
        options = {**layer.op.defaults, **dict(layer.attributes)}
        alpha, beta = (float(str(options[name])) for name in ("alpha", "beta"))
        a, b, c = (*layer.inputs, None)[:3]
        assert a is not None and b is not None, "a layer has two matrices"
        self._source = layer.source
        a, b = self._turned(a, options["transpose_a"]), self._turned(b, options["transpose_b"])
        if b.name in self._weights:
            b, alpha = self._scaled(b, alpha), 1.0
        elif a.name in self._weights:
            a, alpha = self._scaled(a, alpha), 1.0
        result = self._scaled(self._add(_PRODUCT, a, b), alpha)
        if c is not None:
            self._add(_SUM, result, self._scaled(c, beta))
        self.nodes[-1] = replace(self.nodes[-1], outputs=layer.outputs)

    def _turned(self, matrix: Value, is_turned: Attribute) -> Value:
        return self._add(_TURNED, matrix, perm=(1, 0)) if is_turned else matrix

    def _scaled(self, value: Value, number: float) -> Value:
        if number == 1.0:
            return value
        factor = Value(self._names.fresh(f"{value.name}.factor"), value.dtype, ())
        self.factors[factor] = np.array(number, value.dtype.numpy)
        self._weights.add(factor.name)
        return self._add(_SCALED, value, factor)

    def _add(self, op: Operator, *operands: Value, **attributes: Attribute) -> Value:
        name = self._names.fresh(f"{operands[0].name}.{op.name}")
        self.nodes.append(make_node(op, operands, [name], attributes, self._source))
        (made,) = self.nodes[-1].outputs
        if self._weights.issuperset(value.name for value in operands):
            self._weights.add(name)
        return made

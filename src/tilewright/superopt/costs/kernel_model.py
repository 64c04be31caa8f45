"""Costs of graphs compiled by Tilewright: cycles, by the analytic model.

A graph is changed as in a compilation: products of one matrix are joined, values get layouts, nodes are fused and
lowered; lowered kernels are cached for all graphs. A single node costs as much as a kernel, except for elementwise
operators: they are fused into the kernel of their first operand, and cost only their arithmetic and the reads of their
other operands.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from tilewright.base.errors import Unsupported
from tilewright.base.exact import Exact
from tilewright.base.identity import ByIdentity
from tilewright.base.names import Names
from tilewright.base.numerics import Math
from tilewright.cost.kernels import work_of
from tilewright.graph import Array, Graph, Node, Value
from tilewright.graph.ir import as_placeholder
from tilewright.loops.lower import lower
from tilewright.ops import FusionKind, Trait
from tilewright.ops.shapes import static
from tilewright.passes.alternatives import BUILT_IN, Alternative, Facts, candidates, expand, facts_of
from tilewright.passes.choose import choose
from tilewright.passes.flatten import flatten_reductions
from tilewright.passes.fuse import Group, fuse
from tilewright.passes.layout import LaidOut
from tilewright.passes.lower import Kernel, Lowered, Lowering
from tilewright.passes.normalize import eliminate_common_subexpressions, eliminate_dead_code, normalize
from tilewright.passes.rules import index_of
from tilewright.passes.shared_weights import share_weights
from tilewright.superopt.costs.memory import size_of
from tilewright.superopt.costs.pricing import Rates, arithmetic_cycles, price
from tilewright.target.target import Target


@dataclass(slots=True)
class KernelCosts:
    """Cycles on ``target``. ``rates``: of the weights and values of the network."""

    target: Target
    math: Math
    bounds: Mapping[str, int]
    rates: Rates
    alternatives: Sequence[Alternative] = BUILT_IN
    _nodes: dict[object, float] = field(default_factory=dict[object, float])
    _seen: ByIdentity[float] = field(default_factory=ByIdentity[float])
    """Cycles by node object, as most nodes are in many graphs. (Which of its operands are weights never changes.)"""
    _lowered: Lowered = field(default_factory=Lowered)
    _kernels: dict[tuple[str, tuple[str, ...]], float] = field(default_factory=dict[tuple[str, tuple[str, ...]], float])

    @staticmethod
    def of(
        graph: Graph,
        target: Target,
        math: Math,
        bounds: Mapping[str, int],
        alternatives: Sequence[Alternative] = BUILT_IN,
    ) -> "KernelCosts":
        """The costs for ``graph``, and for graphs derived from it by rules."""
        size = sum(array.nbytes for array in graph.constants.values())
        return KernelCosts(target, math, bounds, Rates.of(size, target), alternatives)

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        """The cycles of a single node; equal nodes are rated once."""
        return self._seen.of(lambda: self._of_form(node, weights), node)

    def _of_form(self, node: Node, weights: Collection[str]) -> float:
        entering = tuple(None if v is None else (v.dtype, v.shape, v.name in weights) for v in node.inputs)
        key = (node.op.name, entering, Exact(node.attributes))
        if key not in self._nodes:
            self._nodes[key] = self._of_node(node, weights)
        return self._nodes[key]

    def of_graph(self, graph: Graph) -> float:
        """The cycles of a run of ``graph``: the sum over its kernels."""
        laid_out = self._laid_out(share_weights(normalize(_with_stand_ins(eliminate_common_subexpressions(graph)))))
        lowering = Lowering(laid_out, self.target, self.bounds, self._lowered)
        groups = fuse(laid_out.graph, laid_out.leaving_blocks, laid_out.layouts)
        return sum(self._of_group(group, lowering, laid_out) for group in groups)

    def _of_group(self, group: Group, lowering: Lowering, laid_out: LaidOut) -> float:
        try:
            kernel = lowering.kernel(group)
        except Unsupported:
            return self.target.machine.call_cycles
        return self._of_kernel(kernel, frozenset(value.name for value in laid_out.graph.constants))

    def _of_kernel(self, kernel: Kernel, weights: Collection[str]) -> float:
        pairs = list(zip(kernel.program.params, kernel.arguments, strict=True))
        constant = tuple(parameter.name for parameter, value in pairs if value.name in weights)
        key = kernel.text, constant
        if key not in self._kernels:
            self._kernels[key] = price(kernel.program, self.target, constant, self.rates)
        return self._kernels[key]

    def _of_node(self, node: Node, weights: Collection[str]) -> float:
        if node.op.kind is FusionKind.VIEW:
            return 0.0
        cycles = self._fastest(node, weights)
        if cycles > 0:
            return self.target.machine.call_cycles + cycles
        if node.op.has(Trait.RELOCATES):  # a pass over memory, where it can't join its readers
            return self.target.machine.call_cycles + self._passing(node.outputs, 2)
        if node.op.kind is FusionKind.INJECTIVE:
            others = [v for v in node.inputs if v is not None and v.name not in weights][1:]
            return self._passing(others, 1) + self._arithmetic(node)
        return self._alone(node, weights)

    def _arithmetic(self, node: Node) -> float:
        """The cycles of the operations of an elementwise ``node``."""
        if node.op.has(Trait.MOVES):
            return 0.0
        given = list(dict.fromkeys(value for value in node.inputs if value is not None))
        inputs = {value: as_placeholder(value) for value in given}
        results = node.op.apply([None if v is None else inputs[v] for v in node.inputs], dict(node.attributes))
        program = lower(results, inputs=list(inputs.values()), trusted=True)
        return arithmetic_cycles(work_of(program), self.target)

    def _fastest(self, node: Node, weights: Collection[str]) -> float:
        """The cycles of the alternative with the lowest estimate; 0 if there is no estimate."""
        zeros = {value: _zeros(value) for value in node.inputs if value is not None and value.name in weights}
        facts = Facts(zeros, Names(value.name for value in zeros), self.target, self.math, self.alternatives)
        return min(way.cycles for way in candidates(node, facts))

    def _passing(self, values: Collection[Value], times: int) -> float:
        """The cycles to read or write ``values``, ``times`` times."""
        size = times * sum(map(size_of, values))
        return size / (self.target.machine.near_bytes if size <= self.target.l2_bytes else self.rates.values)

    def _alone(self, node: Node, weights: Collection[str]) -> float:
        """The cycles of a graph with ``node`` only."""
        given = list(dict.fromkeys(value for value in node.inputs if value is not None))
        zeros = {value: _zeros(value) for value in given if value.name in weights}
        graph = Graph("node", tuple(v for v in given if v not in zeros), node.outputs, (node,), zeros)
        laid_out = self._laid_out(graph)
        lowering = Lowering(laid_out, self.target, self.bounds, self._lowered)
        return sum(self._of_group(group, lowering, laid_out) for group in fuse(laid_out.graph))

    def _laid_out(self, graph: Graph) -> LaidOut:
        """``graph`` as it is computed."""
        expanded = expand(graph, facts_of(graph, self.target, self.math, self.alternatives))
        choices = choose(expanded, self.target, self.math, alternatives=self.alternatives)
        return flatten_reductions(choices.apply())


def _with_stand_ins(graph: Graph) -> Graph:
    """``graph`` with other numbers for weights, and for values computed from them: costs do not depend on these.

    Each gets a distinct number, broadcast, so that no two weights are merged. Constants of one element, and those that
    are not floats, are kept, as shapes and rules may depend on them.
    """
    weights = index_of(graph).weights
    made = [value for node in graph.nodes for value in node.outputs if value.name in weights]
    unknown = {value for value in (*graph.constants, *made) if value.dtype.is_float and _size(value) > 1}
    unknown -= set(graph.outputs)
    kept = {value: array for value, array in graph.constants.items() if value not in unknown}
    nodes = tuple(node for node in graph.nodes if not unknown.issuperset(node.outputs))
    ordered = sorted(unknown, key=lambda value: value.name)
    stand_ins = {value: _filled(value, number) for number, value in enumerate(ordered, 1)}
    return eliminate_dead_code(replace(graph, nodes=nodes, constants={**kept, **stand_ins}))


def _size(value: Value) -> int:
    shape = static(value.shape)
    return 0 if shape is None else prod(shape)


def _zeros(value: Value) -> Array:
    """Zeros for a weight."""
    return _filled(value, 0)


def _filled(value: Value, bits: int) -> Array:
    """The number with these ``bits``, broadcast to the shape of ``value``."""
    shape = static(value.shape)
    assert shape is not None, "weights have fixed extents"
    number = np.array(bits, f"u{value.dtype.itemsize}").view(value.dtype.numpy)
    return np.broadcast_to(number, shape)

"""The work of graphs by counting, as a cost for comparisons of rules: the same on every machine.

Work is the number of elementwise operations and of elements that a product reads, plus a constant for each operator.
This is no cost model of a processor.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from tilewright.base.dtypes import f32
from tilewright.base.errors import BadProgram
from tilewright.cost.kernels import work_of
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.loops.lower import lower
from tilewright.ops import FusionKind, Operator, Trait
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.passes.rules.terms import Apply, Number, Rule, Term, Variable, subterms
from tilewright.superopt.evaluate.evaluator import Bindings
from tilewright.superopt.evaluate.instances import Instance
from tilewright.tensor.build import placeholder

STARTED, FUSED = 4096, 256
"""The constant work of an operator, in elements, which decides at small sizes; and that of a fused operator."""
_MATMUL, _CONCAT, _IDENTITY = require("MatMul"), require("Concat"), require("Identity")
RENAMING = (Trait.REGROUPS, Trait.ELEMENTWISE | Trait.MOVES)
"""Traits of operators that only reinterpret their operand, without any work."""
_FUSING = (FusionKind.VIEW, FusionKind.INJECTIVE)
WINDOW = 9
"""Points of the window of a pool."""
_PLAIN, _FUNCTION = 0.25, 8.0
"""The work of an element of what is fused into another operator: of a sum, and of a function such as an exponential."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The provider of these costs (``costs.provider.CostProvider``)."""

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        """The work of one operator."""
        if any(map(node.op.has, RENAMING)):
            return 0.0
        if node.op.kind in _FUSING:
            each = 1.0 if node.op is _CONCAT else arithmetic(node.op, len(node.inputs))
            return FUSED + _elements(node.outputs[0]) * each
        read = sum(map(_elements, node.inputs)) if node.op.kind is FusionKind.CONTRACTION else 0
        return float(STARTED + read + _elements(node.outputs[0]) * _per_element(node))

    def of_graph(self, graph: Graph) -> float:
        """The work of all operators."""
        return sum(self.of_node(node, ()) for node in graph.nodes)


@lru_cache(maxsize=512)
def arithmetic(op: Operator, operands: int) -> float:
    """The work of one element of an operator that is fused into the one beside it; 0 for what only moves elements."""
    if not op.has(Trait.ELEMENTWISE) or op.has(Trait.MOVES):
        return 0.0
    scalars = [placeholder((), f32, f"x{number}") for number in range(operands)]
    try:
        work = work_of(lower(op.apply(scalars, {}), inputs=scalars))
    except BadProgram:  # it has attributes without a default
        return _PLAIN
    return _PLAIN * (work.others - work.functions) + _FUNCTION * work.functions


def _elements(value: Value | None) -> int:
    return 1 if value is None else prod(static(value.shape) or ())


def _per_element(node: Node) -> int:
    if node.op.has(Trait.SUMS_CHANNELS):
        filters = node.inputs[1]
        return prod((static(filters.shape) or ())[1:]) if filters is not None else 1
    if node.op is _MATMUL:
        first = node.inputs[0]
        return (static(first.shape) or (1,))[-1] if first is not None else 1
    if node.op.has(Trait.POOLS):
        return WINDOW
    if node.op.kind is FusionKind.REDUCTION:
        return max(1, _elements(node.inputs[0]) // max(1, _elements(node.outputs[0])))
    return 1


def graph_of(rule: Rule, instance: Instance, terms: tuple[Term, ...]) -> Graph:
    """The graph that computes ``terms`` of ``rule`` at ``instance``. Raises ``BadProgram`` if they are ill-typed."""
    concrete = instance.concrete_rule(rule)
    made: dict[Term, Value] = {}
    nodes: list[Node] = []
    constants: dict[Value, Array] = {}
    of_sources = dict(zip(rule.sources, concrete.sources, strict=True))
    known = {**dict(zip(rule.targets, concrete.targets, strict=True)), **of_sources}
    roots = [known[term] for term in terms]
    for number, part in enumerate(subterms(roots)):
        match part:
            case Variable(name, shape):
                made[part] = Value(name, f32, shape)
                if part.is_weight:
                    constants[made[part]] = _array(made[part])
            case Number(value):
                made[part] = Value(f"number{number}", f32, ())
                constants[made[part]] = np.asarray(value, np.float32)
            case Apply():
                operands = [made[operand] for operand in part.operands]
                node = make_node(part.op, operands, [f"value{number}"], Bindings({}).attributes(part))
                nodes.append(node)
                made[part] = node.outputs[part.output]
    outputs = tuple(_output(made[root], nodes) for root in roots)
    inputs = tuple(value for value in made.values() if value not in constants and not _is_made(value, nodes))
    return Graph(rule.name, inputs, outputs, tuple(nodes), constants)


def _array(value: Value) -> Array:
    """Some numbers, not all of them equal, in little memory."""
    shape = static(value.shape)
    if shape is None:
        raise BadProgram(f"the shape of {value!r} is not known")
    return np.broadcast_to(np.linspace(1, 2, shape[-1] if shape else 1, dtype=np.float32), shape or (1,)).reshape(shape)


def _output(value: Value, nodes: list[Node]) -> Value:
    """``value``, copied if no node makes it, as outputs must be made."""
    if _is_made(value, nodes):
        return value
    nodes.append(make_node(_IDENTITY, [value], [f"{value.name}.out"], {}))
    return nodes[-1].outputs[0]


def _is_made(value: Value, nodes: list[Node]) -> bool:
    return any(value in node.outputs for node in nodes)

"""Products of different rows by one matrix become one product, which reads the matrix once.

A recurrent cell that is written out step by step multiplies the input of each step by the same weights. If a core's
caches do not hold them, each of these products takes as long as reading them. Rows are put one after the other, and
readers take their parts of the result; both must be little beside the weights.

Nodes are joined if none of them needs the result of another one: products of the states of a recurrence stay apart.
They may be any contractions that do the same at each place along an axis of their first input (``Operator.batched``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tilewright.base.exact import Exact
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops import FusionKind
from tilewright.ops.operator import BatchAxis, require
from tilewright.ops.shapes import static
from tilewright.passes.normalize import eliminate_common_subexpressions
from tilewright.passes.rules.apply import in_order

_CONCAT, _SLICE = require("Concat"), require("Slice")

WORTH = 16
"""Elements of weights for each element of data and results from which on copying these takes little time."""


def share_weights(graph: Graph) -> Graph:
    """``graph`` with those nodes joined that multiply different rows by the same constants."""
    for alike in _by_weights(graph):
        for nodes in _apart(graph, alike):
            graph = _joined(graph, nodes)
    return eliminate_common_subexpressions(graph)


def _by_weights(graph: Graph) -> list[list[Node]]:
    """Nodes that differ only in their first input, which has the same shape; several in each list."""
    found: dict[object, list[Node]] = {}
    for node in graph.nodes:
        if _is_worth(graph, node):
            data = node.inputs[0]
            kind = data and (data.dtype, data.shape)
            found.setdefault((node.op, kind, node.inputs[1:], Exact(node.attributes)), []).append(node)
    return [nodes for nodes in found.values() if len(nodes) > 1]


def _is_worth(graph: Graph, node: Node) -> bool:
    """Whether rows of ``node`` can be put together, and take little time beside its constants."""
    (data, *others), (result, *more) = node.inputs or (None,), node.outputs
    weights = [value for value in others if value is not None]
    if node.op.kind is not FusionKind.CONTRACTION or not all(value in graph.constants for value in weights):
        return False
    if data is None or data in graph.constants or more or _rows(node) is None:
        return False
    moved = _elements(data) + _elements(result)
    return sum(map(_elements, weights)) >= WORTH * moved


def _rows(node: Node) -> BatchAxis | None:
    """The last axis that only the first input and the result of ``node`` have."""
    shapes = [() if value is None else static(value.shape) for value in node.inputs]
    known = [shape for shape in shapes if shape is not None]
    if node.op.batched is None or len(known) < len(shapes):
        return None
    batch = node.op.batched({**node.op.defaults, **dict(node.attributes)}, known)
    own = [] if batch is None else [axis for axis in batch.axes if _is_of_data(axis)]
    return own[-1] if own else None


def _is_of_data(axis: BatchAxis) -> bool:
    first, *others = axis.operands
    return first is not None and all(place is None for place in others)


def _elements(value: Value) -> int:
    shape = static(value.shape)
    assert shape is not None, "a node with known operands has known results"
    return prod(shape)


def _apart(graph: Graph, alike: Sequence[Node]) -> Iterator[list[Node]]:
    """Nodes of ``alike``, in order, none of which needs another one.

    A node is left for a later list only if it needs one of this list: none of this list needs it then.
    """
    numbers = {node.outputs[0]: number for number, node in enumerate(alike)}
    needs, left = _needs(graph, numbers), list(alike)
    while left:
        taken, mask, later = list[Node](), 0, list[Node]()
        for node in left:
            if needs[node.outputs[0]] & mask:
                later.append(node)
            else:
                taken.append(node)
                mask |= 1 << numbers[node.outputs[0]]
        left = later
        if len(taken) > 1:
            yield taken


def _needs(graph: Graph, numbers: Mapping[Value, int]) -> dict[Value, int]:
    """For each value, as bits, those values with ``numbers`` that it is computed from, itself included."""
    needs: dict[Value, int] = {}
    for node in graph.nodes:
        of_inputs = 0
        for value in node.inputs:
            of_inputs |= 0 if value is None else needs.get(value, 0)
        for value in node.outputs:
            needs[value] = of_inputs | (1 << numbers[value] if value in numbers else 0)
    return needs


def _joined(graph: Graph, nodes: Sequence[Node]) -> Graph:
    """``graph`` with one node in place of ``nodes``, and parts of its result."""
    first, axis, names = nodes[0], _rows(nodes[0]), graph.names()
    assert axis is not None and axis.operands[0] is not None, "nodes are joined along an axis of their first input"
    result = first.outputs[0]
    data = [node.inputs[0] for node in nodes]
    rows = make_node(_CONCAT, data, [names.fresh(f"{result.name}.rows")], {"axis": axis.operands[0]}, first.source)
    inputs = (rows.outputs[0], *first.inputs[1:])
    all_rows = names.fresh(f"{result.name}.all")
    product = make_node(first.op, inputs, [all_rows], dict(first.attributes), first.source)
    of_each = static(result.shape)
    assert of_each is not None, "a node with known operands has known results"
    count = of_each[axis.result]
    parts = {
        node.outputs[0]: _part(product.outputs[0], node, axis.result, number * count, count)
        for number, node in enumerate(nodes)
    }
    made = [rows, product, *parts.values()]
    kept = [node for node in graph.nodes if node.outputs[0] not in parts]
    return replace(graph, nodes=tuple(in_order([*made, *kept])))


def _part(rows: Value, node: Node, axis: int, start: int, count: int) -> Node:
    """The rows of ``node``."""
    attributes = {"starts": (start,), "ends": (start + count,), "axes": (axis,)}
    return make_node(_SLICE, [rows], [node.outputs[0].name], attributes, node.source)

"""Evaluates graphs and nodes with the te evaluator: for constant folding, and as the reference of compiled models."""

from collections.abc import Mapping
from math import prod

from tilewright.base.errors import BadFeed
from tilewright.graph.ir import Array, Graph, Node, Value, apply, as_placeholder
from tilewright.loops.evaluate_extern import evaluate_extern
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import Extent, Var
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import inputs_of, topological_order


def evaluate_node(node: Node, arrays: Mapping[Value, Array], dims: Mapping[Var, int] | None = None) -> list[Array]:
    """The outputs of ``node``, whose inputs are in ``arrays``. Raises the errors of ``tensor.evaluate``."""
    inputs = {value: as_placeholder(value) for value in node.inputs if value is not None}
    operands = [None if value is None else inputs[value] for value in node.inputs]
    results = node.op.apply(operands, dict(node.attributes))[: len(node.outputs)]
    return evaluate(results, {tensor: arrays[value] for value, tensor in inputs.items()}, dims, evaluate_extern)


def bytes_on_the_way(node: Node) -> int:
    """The bytes of the largest intermediate or output of ``evaluate_node``, ignoring run-time extents.

    A small node with small inputs can require a large tensor.
    """
    results = apply(node.op, node.inputs, dict(node.attributes))[: len(node.outputs)]
    inner = (tensor for op in topological_order(results) for tensor in inputs_of(op))
    sizes = ((tensor.dtype, static(tensor.shape)) for tensor in inner)
    return max((dtype.itemsize * prod(shape) for dtype, shape in sizes if shape is not None), default=0)


def evaluate_graph(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of ``graph`` for inputs by name; runs the nodes in order, and frees each result after its last use.

    Raises ``BadFeed`` if an input is missing or does not fit.
    """
    missing = [value.name for value in graph.inputs if value.name not in feeds]
    if missing:
        raise BadFeed(f"no value is given for {', '.join(missing)}")
    arrays = {**graph.constants, **{value: feeds[value.name] for value in graph.inputs}}
    dims = _dims(graph, arrays)
    last = {value: node for node in graph.nodes for value in node.inputs if value is not None}
    for node in graph.nodes:
        arrays.update(zip(node.outputs, evaluate_node(node, arrays, dims), strict=True))
        for value in {v for v in node.inputs if v is not None and last[v] is node}.difference(graph.outputs):
            del arrays[value]
    return [arrays[value] for value in graph.outputs]


def _dims(graph: Graph, arrays: Mapping[Value, Array]) -> dict[Var, int]:
    """The run-time extents, from the inputs' shapes."""
    found: dict[Var, int] = {}
    for value in graph.inputs:
        if len(value.shape) != arrays[value].ndim:
            raise BadFeed(f"{value!r} can't have the shape {list(arrays[value].shape)}")
        for extent, size in zip(value.shape, arrays[value].shape, strict=True):
            if isinstance(extent, Extent) and found.setdefault(extent, size) != size:
                raise BadFeed(
                    f"{value!r} can't have the shape {list(arrays[value].shape)}: {extent} is {found[extent]}"
                )
    return found

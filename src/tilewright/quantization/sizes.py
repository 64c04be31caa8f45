"""A graph for known sizes of its run-time extents: calibration runs it at those of the data."""

from collections.abc import Mapping
from dataclasses import replace

from tilewright.base.errors import BadFeed, BadProgram
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops.operator import map_expressions
from tilewright.ops.shapes import number_at
from tilewright.symbolic.expr import Extent, Var, const


def for_sizes(graph: Graph, sizes: Mapping[Extent, int]) -> Graph:
    """``graph`` with ``sizes`` for its run-time extents; all values keep their names.

    Raises ``BadFeed`` if it does not fit together then.
    """
    if not graph.extents:
        return graph
    numbers: dict[Var, int] = {extent: size for extent, size in sizes.items()}
    try:
        return _with_sizes(graph, numbers)
    except BadProgram as error:
        told = ", ".join(f"{extent.given}={size}" for extent, size in sizes.items())
        raise BadFeed(f"the model does not fit together for {told}: {error}") from error


def _with_sizes(graph: Graph, numbers: Mapping[Var, int]) -> Graph:
    values: dict[Value, Value] = {value: value for value in graph.constants}
    for value in graph.inputs:
        values[value] = replace(value, shape=tuple(const(number_at(extent, numbers)) for extent in value.shape))
    nodes: list[Node] = []
    for node in graph.nodes:
        operands = [None if value is None else values[value] for value in node.inputs]
        attributes = {name: map_expressions(value, lambda e: number_at(e, numbers)) for name, value in node.attributes}
        made = make_node(node.op, operands, [value.name for value in node.outputs], attributes, node.source)
        values.update(zip(node.outputs, made.outputs, strict=True))
        nodes.append(made)
    inputs, outputs = (tuple(values[value] for value in some) for some in (graph.inputs, graph.outputs))
    return Graph(graph.name, inputs, outputs, tuple(nodes), graph.constants)

"""Checks that names in a model are valid UTF-8: in a damaged file they may be any bytes."""

from collections.abc import Iterable, Iterator

import onnx

from tilewright.base.errors import InvalidModel
from tilewright.frontend.onnx.read.external_data import all_tensors
from tilewright.frontend.onnx.read.order import all_nodes, subgraphs


def check_text(model: onnx.ModelProto) -> None:
    """Raises ``InvalidModel`` with the first name that is not UTF-8."""
    for name in _names(model):
        if not isinstance(name, str):
            raise InvalidModel(f"a name in the model is {name!r}, which is no UTF-8 text; the file is damaged")


def _names(model: onnx.ModelProto) -> Iterator[object]:
    for entry in model.opset_import:
        yield entry.domain
    for tensor in all_tensors(model):
        yield tensor.name
        for entry in tensor.external_data:
            yield from (entry.key, entry.value)
    yield from _names_of_graph(model.graph)
    yield from _names_of_nodes(model.graph.node)
    for function in model.functions:
        yield from (function.domain, function.name, *function.input, *function.output)
        yield from (entry.domain for entry in function.opset_import)
        yield from _names_of_nodes(function.node)


def _names_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[object]:
    for node in all_nodes(nodes):
        yield from (node.domain, node.op_type, node.name, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
        for graph in subgraphs(node):
            yield from _names_of_graph(graph)


def _names_of_graph(graph: onnx.GraphProto) -> Iterator[object]:
    yield graph.name
    for info in (*graph.input, *graph.output):
        yield info.name
        for dim in info.type.tensor_type.shape.dim:
            yield dim.dim_param

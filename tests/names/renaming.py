"""Models with other names: of dimensions, inputs, outputs, values and nodes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count

import onnx

from tests.names.hostile import HOSTILE


def hostile(first: int) -> Iterator[str]:
    """Different names, without an end: the hostile ones from number ``first`` on, then plain ones."""
    start = first % len(HOSTILE)
    return chain(HOSTILE[start:], HOSTILE[:start], (f"another{number}" for number in count()))


@dataclass(frozen=True, slots=True)
class Renaming:
    """New names of dimensions, and of values, by the old ones."""

    dims: Mapping[str, str]
    values: Mapping[str, str]

    @staticmethod
    def of(model: onnx.ModelProto, first: int) -> "Renaming":
        """Hostile names for all that is in ``model``: those of dimensions are names of values as well."""
        dims, values = hostile(first), hostile(first + 7)
        found = dict.fromkeys(name for graph in _graphs(model.graph) for name in _values_of(graph))
        return Renaming({name: next(dims) for name in _dims_of(model)}, {name: next(values) for name in found})

    def applied(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """``model`` with the new names; nodes get some, too."""
        renamed = onnx.ModelProto()
        renamed.CopyFrom(model)
        nodes = hostile(len(self.values))
        for graph in _graphs(renamed.graph):
            self._rename(graph)
            for node in graph.node:
                node.name = next(nodes)
        return renamed

    def _rename(self, graph: onnx.GraphProto) -> None:
        for info in (*graph.input, *graph.output, *graph.value_info):
            info.name = self.values[info.name]
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_param:
                    dim.dim_param = self.dims.get(dim.dim_param, dim.dim_param)
        for tensor in graph.initializer:
            tensor.name = self.values[tensor.name]
        for node in graph.node:
            node.input[:] = [self.values[name] if name else name for name in node.input]
            node.output[:] = [self.values[name] if name else name for name in node.output]


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """``graph`` and the bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                if body.node or body.output:
                    yield from _graphs(body)


def _values_of(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (info.name for info in (*graph.input, *graph.output, *graph.value_info))
    yield from (tensor.name for tensor in graph.initializer)
    yield from (name for node in graph.node for name in (*node.input, *node.output) if name)


def _dims_of(model: onnx.ModelProto) -> list[str]:
    dims = (dim for info in model.graph.input for dim in info.type.tensor_type.shape.dim)
    return list(dict.fromkeys(dim.dim_param for dim in dims if dim.dim_param))


def opened(model: onnx.ModelProto, leading: int | None = None) -> onnx.ModelProto:
    """``model`` with dimensions of inputs that are known at run time only, one name for each size.

    ``leading``: only so many dimensions of each input, the first ones.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for info in made.graph.input:
        for dim in info.type.tensor_type.shape.dim[:leading]:
            if dim.dim_value > 1:
                dim.dim_param = f"size{dim.dim_value}"
    return made

"""Functions: operators defined by a graph of other operators, in the model itself or by ONNX.

The importer imports the body of a function in place of the calling node, with the call's inputs and attributes. Before
importing, ``Functions`` checks that expansion ends, and the resulting size.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, cast

import onnx

from tilewright.base.errors import InvalidModel, ResourceLimit
from tilewright.base.names import readable
from tilewright.frontend.onnx.read.listed import Bound, type_of
from tilewright.frontend.onnx.read.order import all_nodes, subgraphs
from tilewright.frontend.onnx.read.protos import own_domain

MAX_NODES = 2_000_000
"""Maximum nodes of a model with functions expanded."""

Key = tuple[str, str, str]
"""Domain, name, overload."""


class _Schema(Protocol):
    """Methods missing in onnx's stubs of ``OpSchema``."""

    has_function: bool
    has_context_dependent_function: bool
    function_opset_versions: Sequence[int]
    context_dependent_function_opset_versions: Sequence[int]

    def get_function_with_opset_version(self, version: int, /) -> bytes: ...

    def get_context_dependent_function_with_opset_version(
        self, version: int, node: bytes, input_types: Sequence[bytes], /
    ) -> bytes: ...


class Functions:
    """The functions that a model defines.

    Raises ``InvalidModel`` if one calls itself, directly or not, ``ResourceLimit`` if the model is too large with the
    bodies expanded.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._bodies = {(own_domain(f.domain), f.name, f.overload): f for f in model.functions}
        if len(self._bodies) != len(model.functions):
            raise InvalidModel("the model defines a function twice; remove one of the definitions")
        sizes: dict[Key, int] = {}
        for key in self._bodies:
            self._measure(key, sizes)
        total = sum(sizes.get(key_of(node), 1) for node in all_nodes(model.graph.node))
        if total > MAX_NODES:
            raise ResourceLimit(f"the model has {total} nodes with its functions in the place of calls: {_advice()}")

    def find(self, node: onnx.NodeProto) -> onnx.FunctionProto | None:
        """The function that ``node`` calls, if the model defines it."""
        return self._bodies.get(key_of(node))

    def _measure(self, start: Key, sizes: dict[Key, int]) -> None:
        """Add the number of nodes of ``start``'s expanded body, and of all its callees, to ``sizes``."""
        path: dict[Key, None] = {}
        waiting = [start]
        while waiting:
            key = waiting[-1]
            callees = [c for c in map(key_of, all_nodes(self._bodies[key].node)) if c in self._bodies]
            missing = next((c for c in callees if c not in sizes), None)
            if key in sizes or missing is None:
                waiting.pop()
                path.pop(key, None)
                sizes[key] = self._size(key, sizes)
                continue
            path[key] = None
            if missing in path:
                cycle = [*list(path)[list(path).index(missing) :], missing]
                raise InvalidModel(
                    f"function {_name(missing)} calls itself ({' -> '.join(map(_name, cycle))}); break the cycle"
                )
            waiting.append(missing)

    def _size(self, key: Key, sizes: Mapping[Key, int]) -> int:
        size = sum(sizes.get(key_of(node), 1) for node in all_nodes(self._bodies[key].node))
        if size > MAX_NODES:
            raise ResourceLimit(f"function {_name(key)} has {size} nodes with the functions that it calls: {_advice()}")
        return size


def key_of(node: onnx.NodeProto) -> Key:
    """The key of the function that ``node`` would call."""
    return own_domain(node.domain), node.op_type, node.overload


def schema_body(
    schema: onnx.defs.OpSchema, node: onnx.NodeProto, opset: int, inputs: Sequence[Bound | None]
) -> onnx.FunctionProto | None:
    """ONNX's function body for the operator of ``node``, if there is one. Some depend on the inputs' types."""
    body = onnx.FunctionProto()
    made_by = cast(_Schema, schema)
    if made_by.has_function:
        version = _newest(made_by.function_opset_versions, opset)
        body.ParseFromString(made_by.get_function_with_opset_version(version))
    elif made_by.has_context_dependent_function:
        version = _newest(made_by.context_dependent_function_opset_versions, opset)
        types = [type_of(value).SerializeToString() for value in inputs]
        asked = _plainly_named(node).SerializeToString()
        made = made_by.get_context_dependent_function_with_opset_version(version, asked, types)
        if not made:
            return None
        body.ParseFromString(made)
    else:
        return None
    defaults = [a.default_value for a in schema.attributes.values() if a.default_value.type]
    given = {attribute.name for attribute in body.attribute_proto}
    body.attribute_proto.extend(a for a in defaults if a.name not in given)
    return body


def _plainly_named(node: onnx.NodeProto) -> onnx.NodeProto:
    """``node`` with simple names for all values: onnx prints bodies as text, and reads only letters."""
    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    names: dict[str, str] = {"": ""}

    def named(old: str) -> str:
        return names.setdefault(old, f"v{len(names)}")

    for graph in _bodies(plain):
        for info in (*graph.input, *graph.output, *graph.value_info):
            info.name = named(info.name)
            for dim in info.type.tensor_type.shape.dim:
                dim.ClearField("dim_param")
        for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
            tensor.name = named(tensor.name)
        graph.name = named(graph.name)
    for one in all_nodes([plain]):
        one.name = ""
        one.input[:] = map(named, one.input)
        one.output[:] = map(named, one.output)
    return plain


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The bodies in ``node``, and those in them."""
    for inner in all_nodes([node]):
        yield from subgraphs(inner)


def _newest(versions: Iterable[int], opset: int) -> int:
    """The newest version up to ``opset``; else the body for a later one, which has its own opset."""
    known = sorted(versions)
    return max((version for version in known if version <= opset), default=known[0])


def called_nodes(function: onnx.FunctionProto, call: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The body's nodes with references to attributes replaced by the call's attributes, or their defaults."""
    given = {attribute.name: attribute for attribute in (*function.attribute_proto, *call.attribute)}
    nodes: list[onnx.NodeProto] = []
    for original in function.node:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        nodes.append(node)
    for node in all_nodes(nodes):
        if any(attribute.ref_attr_name for attribute in node.attribute):
            _resolve(node, given)
    return nodes


def _resolve(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> None:
    """Replace references to attributes; references to omitted attributes are removed."""
    resolved: list[onnx.AttributeProto] = []
    for attribute in node.attribute:
        source = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if source is not None:
            copy = onnx.AttributeProto()
            copy.CopyFrom(source)
            copy.name = attribute.name
            resolved.append(copy)
    del node.attribute[:]
    node.attribute.extend(resolved)


def _name(key: Key) -> str:
    return readable(".".join(part for part in key if part))


def _advice() -> str:
    return f"more than {MAX_NODES}; export the model with fewer, larger operators"

"""Exports graphs as standard ONNX models, for other runtimes.

    save(graph, Path("out.onnx"))

The inverse of ``importer``: every node is written by the form of its operator (``forms``). Inputs, outputs and
all values keep their names; a run-time extent is a named dimension (``dim_param``).
"""

from collections.abc import Iterable
from pathlib import Path

import onnx
from onnx import helper

from tilewright.base.outputs import AnyPath, check_output, output
from tilewright.frontend.onnx.read.foreign import OnnxOperator, operator_of
from tilewright.frontend.onnx.read.kept import Kept
from tilewright.frontend.onnx.read.protos import MAX_FILE_BYTES
from tilewright.frontend.onnx.read.rules import Rule
from tilewright.frontend.onnx.write.forms import FORMS, NOT_WRITTEN, STAGED, Form, Writing
from tilewright.frontend.onnx.write.forms.opsets import NEW, OLD, objection
from tilewright.frontend.onnx.write.forms.writer import Writer, code_of, tensor_of
from tilewright.graph import Graph, Value
from tilewright.ops.hosted import HostOperator
from tilewright.symbolic.expr import Const, Expr, Extent

IR_VERSION = 10
"""The IR version of ONNX 1.16 (2024)."""
_ROOM = 1 << 24
"""Bytes reserved for the model without its weights."""
_PAGE = 1 << 12
"""Alignment in bytes of tensors in an external file, for mapping."""


def export(graph: Graph, operators: Iterable[OnnxOperator] = ()) -> onnx.ModelProto:
    """``graph`` as an ONNX model; ``operators``: user-defined ones; those with declarative rules are written as their
    nodes.

    Raises ``UnsupportedModel`` naming a node that ONNX can't express, and a remedy.
    """
    writer, foreign = Writer(graph), _Foreign(operators)
    opset = max([OLD, *(_write(Writing(node, writer), foreign) for node in graph.nodes)])
    outputs = [value.name for value in graph.outputs]
    nodes = writer.needed(outputs)
    used = {name for node in nodes for name in node.input}.union(outputs)
    own = [tensor_of(array, value.name) for value, array in graph.constants.items() if value.name in used]
    more = [tensor_of(array, name) for name, array in writer.literals.items() if name in used]
    infos = [[_info(value) for value in values] for values in (graph.inputs, graph.outputs)]
    proto = helper.make_graph(nodes, graph.name, *infos, initializer=[*own, *more])
    opsets = [helper.make_opsetid(domain, version) for domain, version in {"": opset, **foreign.versions}.items()]
    return helper.make_model(proto, opset_imports=opsets, ir_version=IR_VERSION, producer_name="tilewright")


class _Foreign:
    """User-defined operators, and the versions of their domains used so far."""

    def __init__(self, operators: Iterable[OnnxOperator]) -> None:
        self._known = {operator_of(one): one for one in (*operators,)[::-1]}
        self.versions: dict[str, int] = {}

    def writes(self, writing: Writing) -> bool:
        """Write the node, if it is one of them."""
        given = self._known.get(writing.node.op)
        if given is None or not isinstance(given.rule, Rule) or given.rule.constant_inputs:
            return False
        form = Form.inverse(given.name, given.rule)
        if form.attributes.keys() != writing.attributes.keys():
            return False
        form(writing)
        writing.writer.nodes[-1].domain = given.domain
        self.versions[given.domain] = max(given.since, self.versions.get(given.domain, 1))
        return True


def _write(writing: Writing, foreign: _Foreign) -> int:
    """Write a node; returns the opset that it needs."""
    op, writer = writing.node.op.name, writing.writer
    if foreign.writes(writing):
        return OLD
    if isinstance(writing.node.op, HostOperator):
        raise writing.unsupported(STAGED)
    if op not in FORMS:
        raise writing.unsupported(NOT_WRITTEN.get(op, "ONNX has no such operator"))
    start = len(writer.nodes)
    FORMS[op](writing)
    dtypes = {value.name: value.dtype for value in writing.node.inputs if value is not None}
    needed = OLD
    for node in writer.nodes[start:]:
        if objection(node, dtypes, OLD) is not None:
            reason = objection(node, dtypes, NEW)
            if reason is not None:
                raise writing.unsupported(f"{reason}; convert this part of the model to another type")
            needed = NEW
    return needed


def _info(value: Value) -> onnx.ValueInfoProto:
    """The type of an input or output; an extent that is neither a name nor a number is left open."""
    return helper.make_tensor_value_info(value.name, code_of(value.dtype), [_dim(extent) for extent in value.shape])


def _dim(extent: Expr) -> int | str | None:
    if isinstance(extent, Const):
        return int(extent.value)
    return extent.given if isinstance(extent, Extent) else None


def save(
    graph: Graph,
    path: Path,
    largest: int = MAX_FILE_BYTES,
    inputs: Iterable[AnyPath] = (),
    operators: Iterable[OnnxOperator] = (),
    kept: Kept | None = None,
) -> None:
    """Write ``graph`` to the file ``path``; weights beside it, at ``path`` with ``.data``, if it took over ``largest``.

    ``kept``: nodes of the model that the graph is the rest of, which are written, too.

    Raises ``UnsupportedModel`` as ``export`` does, ``BadInput`` if a file can't be written or is one of ``inputs``.
    """
    rest = export(graph, operators)
    model = rest if kept is None else kept.restored(rest)
    sources = (*inputs,)
    check_output(path, sources)
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) + _ROOM > largest:
        data = f"{path.name}.data"
        with output(path.with_name(data), sources) as file:
            file.writelines(_moved_weights(model, data))
    with output(path, sources) as file:
        file.write(model.SerializeToString())


def _moved_weights(model: onnx.ModelProto, location: str) -> list[bytes]:
    """The content of the file ``location``, to which large initializers of ``model`` are moved."""
    parts: list[bytes] = []
    offset = 0
    for tensor in model.graph.initializer:
        size = len(tensor.raw_data)
        if size < _PAGE:  # axes and shapes stay where readers look for them
            continue
        gap = -offset % _PAGE
        parts += [bytes(gap), tensor.raw_data]
        place = {"location": location, "offset": offset + gap, "length": size}
        tensor.external_data.extend(onnx.StringStringEntryProto(key=key, value=str(v)) for key, v in place.items())
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.ClearField("raw_data")
        offset += gap + size
    return parts

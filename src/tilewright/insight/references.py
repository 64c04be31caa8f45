"""Reference values of a model, by name: in float64 by the te evaluator, or by ONNX Runtime without optimizations."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import onnx

from tilewright.base.dtypes import DType, f64
from tilewright.base.errors import BadInput, BadProgram, Unsupported
from tilewright.graph import Array, Graph, Node, Value, evaluate_node, make_node
from tilewright.ops import Attribute
from tilewright.symbolic.expr import Var


@dataclass(frozen=True, slots=True)
class Reference:
    """Values by name, and what was not done as asked, and why."""

    values: Mapping[str, Array]
    notes: tuple[str, ...] = ()


def in_float64(graph: Graph, feeds: Mapping[str, Array], wanted: Iterable[str], dims: Mapping[str, int]) -> Reference:
    """The ``wanted`` values of ``graph``, with float64 in place of all floating-point types.

    A node that has no meaning in float64 is computed in its own type, and noted. ``dims``: run-time extents by name.
    """
    kept = frozenset(wanted)
    extents: dict[Var, int] = {extent: dims[extent.given] for extent in graph.extents if extent.given in dims}
    arrays = {_widened(v): _wide(feeds[v.name]) for v in graph.inputs}
    last = {value: node for node in graph.nodes for value in node.inputs if value is not None}
    narrow: list[str] = []
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None and value in graph.constants and _widened(value) not in arrays:
                arrays[_widened(value)] = _wide(graph.constants[value])
        wide = _wide_node(node)
        if wide is not None:
            results = evaluate_node(wide, arrays, extents)
        else:
            own = {v: arrays[_widened(v)].astype(v.dtype.numpy) for v in node.inputs if v is not None}
            results = [_wide(result) for result in evaluate_node(node, own, extents)]
            narrow.append(node.source or node.op.name)
        arrays.update(zip(map(_widened, node.outputs), results, strict=True))
        for value in {v for v in node.inputs if v is not None and last[v] is node and v.name not in kept}:
            del arrays[_widened(value)]
    notes = (f"computed in their own type, not in float64: {', '.join(dict.fromkeys(narrow))}",) if narrow else ()
    return Reference({value.name: array for value, array in arrays.items() if value.name in kept}, notes)


def _widened(value: Value) -> Value:
    return Value(value.name, f64, value.shape) if value.dtype.is_float else value


def _wide(array: Array) -> Array:
    kind = array.dtype.kind
    return array if kind in "iub" else array.astype(np.float64)


def _wide_node(node: Node) -> Node | None:
    """``node`` over float64; None if its operator or attributes do not allow that."""
    inputs = [None if v is None else _widened(v) for v in node.inputs]
    attributes: dict[str, Attribute] = {name: _wide_attribute(value) for name, value in node.attributes}
    try:
        wide = make_node(node.op, inputs, [v.name for v in node.outputs], attributes, node.source)
    except (BadProgram, Unsupported):
        return None
    same = all(a.dtype == _widened(b).dtype for a, b in zip(wide.outputs, node.outputs, strict=True))
    return wide if same else None


def _wide_attribute(value: Attribute) -> Attribute:
    return f64 if isinstance(value, DType) and value.is_float else value


class _Session(Protocol):
    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array], /) -> Sequence[Array]: ...


class _Levels(Protocol):
    ORT_DISABLE_ALL: object


class _SessionOptions(Protocol):
    graph_optimization_level: object
    log_severity_level: int


class _OnnxRuntime(Protocol):
    """The part of onnxruntime that is used here; it has no type annotations of its own."""

    GraphOptimizationLevel: _Levels

    def SessionOptions(self) -> _SessionOptions: ...
    def InferenceSession(self, model: bytes, options: _SessionOptions, *, providers: Sequence[str]) -> _Session: ...


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array], wanted: Iterable[str]) -> Reference:
    """The ``wanted`` values of ``model`` by ONNX Runtime, node by node, without its optimizations.

    Raises ``Unsupported`` if it is not installed, ``BadInput`` if it refuses the model.
    """
    try:
        runtime = cast(_OnnxRuntime, importlib.import_module("onnxruntime"))
    except ImportError as error:
        raise Unsupported("onnxruntime is not installed: pip install onnxruntime, or against='reference'") from error
    made = {name for node in model.graph.node for name in node.output}
    outputs = [info.name for info in model.graph.output]
    names = [name for name in dict.fromkeys((*wanted, *outputs)) if name in made or name in outputs]
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in outputs)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    try:
        session = runtime.InferenceSession(opened.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = session.run(names, feeds)
    except Exception as error:  # its exceptions have no common base that is public
        raise BadInput(f"onnxruntime does not run the model: {error}") from error
    return Reference(dict(zip(names, results, strict=True)))

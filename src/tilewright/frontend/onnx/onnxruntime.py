"""What ONNX Runtime, an optional package, computes for a model: values to hold others against."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, cast

import onnx

from tilewright.base.errors import BadInput, Unsupported
from tilewright.graph import Array


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


def values_of(model: onnx.ModelProto, feeds: Mapping[str, Array], wanted: Iterable[str]) -> Mapping[str, Array]:
    """The ``wanted`` values of ``model``, and its outputs, by ONNX Runtime, node by node, without its optimizations.

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
    return dict(zip(names, results, strict=True))

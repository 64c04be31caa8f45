"""Other engines on the same model, each with the settings that serve it best."""

import importlib
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol, cast

from tilewright.base.errors import BadInput, Unsupported
from tilewright.graph import Array


class Engine(Enum):
    """What Tilewright can be compared with."""

    ONNXRUNTIME = "onnxruntime"


class Session(Protocol):
    """A loaded model, by ONNX Runtime's spelling."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array], /) -> Sequence[Array]:
        """All outputs, in the order of the model."""
        ...


def sessions(engine: Engine, model: Path, threads: int) -> dict[str, Session]:
    """The engine's candidates by name; the fastest counts. Raises ``Unsupported`` if it is not installed."""
    match engine:
        case Engine.ONNXRUNTIME:
            return _onnxruntime(model, threads)


class _Level(Protocol):
    ORT_ENABLE_ALL: object


class _Mode(Protocol):
    ORT_SEQUENTIAL: object


class _SessionOptions(Protocol):
    graph_optimization_level: object
    execution_mode: object
    intra_op_num_threads: int
    inter_op_num_threads: int
    log_severity_level: int


class _OnnxRuntime(Protocol):
    """The part of onnxruntime that is used here; it has no type annotations of its own."""

    GraphOptimizationLevel: _Level
    ExecutionMode: _Mode

    def SessionOptions(self) -> _SessionOptions: ...
    def InferenceSession(
        self, path: str, options: _SessionOptions, *, providers: Sequence[str], disabled_optimizers: Sequence[str]
    ) -> Session: ...


def _onnxruntime(model: Path, threads: int) -> dict[str, Session]:
    """All optimizations, one operator at a time; with and without a fusion that slows transformers down on CPUs."""
    try:
        runtime = cast(_OnnxRuntime, importlib.import_module("onnxruntime"))
    except ImportError as error:
        raise Unsupported("onnxruntime is not installed: pip install 'tilewright[demo]'") from error
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only

    def load(disabled: Sequence[str]) -> Session:
        providers = ["CPUExecutionProvider"]
        try:
            return runtime.InferenceSession(str(model), options, providers=providers, disabled_optimizers=disabled)
        except Exception as error:
            raise BadInput(f"onnxruntime does not load {model}: {error}") from error

    return {"onnxruntime": load([]), "onnxruntime, less fused": load(["SkipLayerNormFusion"])}

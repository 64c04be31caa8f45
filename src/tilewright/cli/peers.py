"""Other engines on the same model, each with the settings that serve it best."""

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from tilewright.base.errors import BadInput, Unsupported
from tilewright.frontend.onnx.onnxruntime import PROVIDERS, installed, options_for
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


def _onnxruntime(model: Path, threads: int) -> dict[str, Session]:
    """All optimizations, one operator at a time; with and without a fusion that slows transformers down on CPUs."""
    runtime = installed(Unsupported)
    options = options_for(runtime, threads)
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL

    def load(disabled: Sequence[str]) -> Session:
        try:
            return runtime.InferenceSession(str(model), options, providers=PROVIDERS, disabled_optimizers=disabled)
        except Exception as error:
            raise BadInput(f"onnxruntime does not load {model}: {error}") from error

    return {"onnxruntime": load([]), "onnxruntime, less fused": load(["SkipLayerNormFusion"])}

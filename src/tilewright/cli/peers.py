"""Other runtimes on the same model, each with its fastest settings."""

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from tilewright.graph import Array


class Engine(Enum):
    """The engines to compare with."""

    ONNXRUNTIME = "onnxruntime"


class Session(Protocol):
    """A loaded model, with the interface of ONNX Runtime's sessions."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array], /) -> Sequence[Array]:
        """All outputs, in the order of the model."""
        ...


def sessions(engine: Engine, model: Path, threads: int) -> dict[str, Session]:
    """The engine's configurations by name; the fastest counts. Raises ``Unsupported`` without the engine."""
    match engine:
        case Engine.ONNXRUNTIME:
            return _onnxruntime(model, threads)


def _onnxruntime(model: Path, threads: int) -> dict[str, Session]:
    """All optimizations, one operator at a time; with and without a fusion that makes transformers slower on CPUs."""
    from tilewright.frontend.onnx.onnxruntime import refusals, session

    with refusals(f"load {model}"):
        slower = ["SkipLayerNormFusion"]
        return {
            "onnxruntime": session(str(model), threads=threads),
            "onnxruntime, less fused": session(str(model), threads=threads, without=slower),
        }

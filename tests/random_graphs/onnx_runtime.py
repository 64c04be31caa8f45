"""ONNX Runtime, without optimization, on one thread."""

from collections.abc import Mapping, Sequence

import onnx
import onnxruntime

from tests.random_graphs.case import Array, Case

_FATAL = 4


def load(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session. Raises ONNX Runtime's errors for what it can't run."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = _FATAL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(case: Case) -> Sequence[Array]:
    """All outputs. Raises ONNX Runtime's errors."""
    feeds: Mapping[str, Array] = case.inputs
    return load(case.model()).run(None, dict(feeds))

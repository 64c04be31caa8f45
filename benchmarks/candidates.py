"""How each peer runs an ONNX file on given feeds.

A factory takes `model` (path of the ONNX file), `feeds` (path of an npz file with the inputs by name) and `threads`; it
returns a callable that runs the model once and returns its outputs. Each peer has the settings that its own
documentation recommends for latency, and the same number of threads as the others.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

Function = Callable[[], Sequence[np.ndarray]]


def onnxruntime(model: str, feeds: str, threads: int) -> Function:
    """ONNX Runtime's CPU provider: all graph optimizations, sequential execution, spinning as it is by default."""
    return _onnxruntime(model, feeds, threads, disabled=[])


def onnxruntime_tuned(model: str, feeds: str, threads: int) -> Function:
    """As `onnxruntime`, without its fusion of residual and layer norm.

    On CPU the fused operator is slower than the two it replaces: a transformer encoder takes about 10 % longer with it.
    """
    return _onnxruntime(model, feeds, threads, disabled=["SkipLayerNormFusion"])


def _onnxruntime(model: str, feeds: str, threads: int, disabled: list[str]) -> Function:
    import onnxruntime as ort  # optional, and each worker loads one peer only

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
    inputs = load_feeds(feeds)
    return lambda: session.run(None, inputs)


def tilewright(model: str, feeds: str, threads: int) -> Function:
    """Tilewright, as a user calls it."""
    import tilewright as tw  # each worker loads one peer only

    compiled = tw.compile(Path(model), threads=threads)
    inputs = load_feeds(feeds)
    return lambda: compiled.run(None, inputs)


def load_feeds(path: str) -> dict[str, np.ndarray]:
    """All arrays of an npz file."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}

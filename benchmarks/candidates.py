"""How each peer runs an ONNX file on given feeds.

A factory takes `model` (path of the ONNX file), `feeds` (path of an npz file with the inputs by name) and `threads`; it
returns a `Session`. Each peer has the settings that its own documentation recommends for latency, computes in float32
unless its name says otherwise, and has the same number of threads as the others. The two ways of PyTorch run a module
rather than the file: their factories take `source` too, the name ("module:function") of a function that gives the
module for the path of the file.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

Function = Callable[[], Sequence[np.ndarray]]
Feeds = Mapping[str, np.ndarray]
Infer = Callable[[Feeds], Sequence[np.ndarray]]


@dataclass(frozen=True, slots=True)
class Session:
    """A model that is ready to run; calling it is one run on the feeds that are timed."""

    infer: Infer
    feeds: Feeds

    def __call__(self) -> Sequence[np.ndarray]:
        """All outputs, in the model's order."""
        return self.infer(self.feeds)


def onnxruntime(model: str, feeds: str, threads: int) -> Session:
    """ONNX Runtime's CPU provider: all graph optimizations, sequential execution, spinning as it is by default."""
    return _onnxruntime(model, feeds, threads)


def onnxruntime_tuned(model: str, feeds: str, threads: int) -> Session:
    """As `onnxruntime`, without its fusion of residual and layer norm.

    On CPU the fused operator is slower than the two it replaces: a transformer encoder takes about 10 % longer with it.
    """
    return _onnxruntime(model, feeds, threads, disabled=["SkipLayerNormFusion"])


def onnxruntime_exact(model: str, feeds: str, threads: int) -> Session:
    """As `onnxruntime`, with exact sums of bytes: without VNNI, sums of two products saturate at 16 bits by default."""
    return _onnxruntime(model, feeds, threads, entries={"session.x64quantprecision": "1"})


def _onnxruntime(
    model: str, feeds: str, threads: int, disabled: Sequence[str] = (), entries: Mapping[str, str] | None = None
) -> Session:
    import onnxruntime as ort  # optional, and each worker loads one peer only

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    for name, value in (entries or {}).items():
        options.add_session_config_entry(name, value)
    disabled = list(disabled)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
    return Session(lambda inputs: session.run(None, inputs), load_feeds(feeds))


def openvino(model: str, feeds: str, threads: int) -> Session:
    """OpenVINO's CPU plugin for latency: one stream, and float32, as its default is bfloat16 where the CPU has it."""
    return _openvino(model, feeds, threads, "f32")


def openvino_bf16(model: str, feeds: str, threads: int) -> Session:
    """As `openvino`, in bfloat16, which is its default where the CPU has dot products for it."""
    return _openvino(model, feeds, threads, "bf16")


def _openvino(model: str, feeds: str, threads: int, precision: str) -> Session:
    import openvino as ov

    hint = getattr(ov.Type, precision)
    wanted = {"INFERENCE_PRECISION_HINT": hint, "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads}
    compiled = ov.Core().compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", **wanted})
    got = {name: compiled.get_property(name) for name in wanted}
    if got != wanted:
        raise RuntimeError(f"OpenVINO was asked for {wanted}, but took {got}")
    request = compiled.create_infer_request()
    outputs = range(len(compiled.outputs))

    def infer(inputs: Feeds) -> list[np.ndarray]:
        request.infer(inputs, share_inputs=True)
        return [request.get_output_tensor(index).data for index in outputs]

    return Session(infer, load_feeds(feeds))


def torch_eager(model: str, feeds: str, source: str, threads: int) -> Session:
    """PyTorch, operator by operator, in inference mode."""
    import torch

    module = _module(model, source, threads)

    def infer(inputs: Feeds) -> list[np.ndarray]:
        with torch.inference_mode():
            return _arrays(module(*map(torch.from_numpy, inputs.values())))

    return Session(infer, load_feeds(feeds))


def torch_compile(model: str, feeds: str, source: str, threads: int) -> Session:
    """PyTorch's own compiler with constant weights. Raises RuntimeError if it did not compile all of the model."""
    return _torch_compile(model, feeds, source, threads, max_autotune=False)


def torch_max_autotune(model: str, feeds: str, source: str, threads: int) -> Session:
    """As `torch_compile`, with a search for the best kernels."""
    return _torch_compile(model, feeds, source, threads, max_autotune=True)


def _torch_compile(model: str, feeds: str, source: str, threads: int, max_autotune: bool) -> Session:
    import torch
    import torch._dynamo.config
    import torch._dynamo.utils
    import torch._inductor.config

    module = _module(model, source, threads)
    torch._inductor.config.freezing = True
    torch._inductor.config.max_autotune = max_autotune
    torch._dynamo.config.allow_rnn = True  # an LSTM would be a graph break
    function = torch.compile(module, fullgraph=True, dynamic=False)  # a graph break is an error

    def infer(inputs: Feeds) -> list[np.ndarray]:
        with torch.no_grad():  # inference mode keeps inductor from freezing
            return _arrays(function(*map(torch.from_numpy, inputs.values())))

    session = Session(infer, load_feeds(feeds))
    session()
    counters = torch._dynamo.utils.counters
    if counters["stats"]["unique_graphs"] != 1 or counters["graph_break"]:
        raise RuntimeError(f"torch.compile did not compile one whole graph: {dict(counters)}")
    return session


def _module(model: str, source: str, threads: int) -> "torch.nn.Module":
    import torch

    torch.set_num_threads(threads)
    name, function = source.split(":")
    return getattr(importlib.import_module(name), function)(Path(model)).eval()


def _arrays(result: "torch.Tensor | tuple[torch.Tensor, ...]") -> list[np.ndarray]:
    return [tensor.numpy() for tensor in (result if isinstance(result, tuple) else (result,))]


def tilewright(model: str, feeds: str, threads: int, target: str = "host") -> Session:
    """Tilewright, as a user calls it who has tuned nothing."""
    return _tilewright(model, feeds, threads, target)


def tilewright_strict(model: str, feeds: str, threads: int, target: str = "host") -> Session:
    """As `tilewright`, without algorithms of larger errors, such as Winograd's."""
    return _tilewright(model, feeds, threads, target, math="strict")


def tilewright_bf16(model: str, feeds: str, threads: int, target: str = "host") -> Session:
    """As `tilewright`, with values and weights in bfloat16."""
    return _tilewright(model, feeds, threads, target, precision="bf16")


def tilewright_tuned(model: str, feeds: str, threads: int, target: str, records: str) -> Session:
    """As `tilewright`, with what `tilewright tune` found."""
    return _tilewright(model, feeds, threads, target, records=Path(records))


def _tilewright(
    model: str,
    feeds: str,
    threads: int,
    target: str,
    math: str = "default",
    precision: str = "fp32",
    records: Path | None = None,
) -> Session:
    import tilewright as tw  # each worker loads one peer only
    from tilewright.base.settings import Settings

    settings = replace(Settings.from_environment(), records=records)
    policies = {"math": math, "precision": precision}
    compiled = tw.compile(Path(model), threads=threads, **policies, target=target, settings=settings)
    return Session(lambda inputs: compiled.run(None, inputs), load_feeds(feeds))


def load_feeds(path: str) -> dict[str, np.ndarray]:
    """All arrays of an npz file."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}

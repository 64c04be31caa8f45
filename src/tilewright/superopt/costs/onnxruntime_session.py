"""ONNX Runtime, an optional package: a model as something that can be run again and again on the same inputs."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import onnx

from tilewright.base.errors import BadInput
from tilewright.graph import Array
from tilewright.measure.turns import Run


class _Binding(Protocol):
    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None: ...
    def bind_output(self, name: str) -> None: ...


class _Session(Protocol):
    def io_binding(self) -> _Binding: ...
    def run_with_iobinding(self, iobinding: _Binding) -> None: ...


class _SessionOptions(Protocol):
    intra_op_num_threads: int
    inter_op_num_threads: int
    log_severity_level: int

    def add_session_config_entry(self, key: str, value: str) -> None: ...


class _OnnxRuntime(Protocol):
    """The part of onnxruntime that is used here; it has no type annotations of its own."""

    def SessionOptions(self) -> _SessionOptions: ...
    def InferenceSession(self, model: bytes, options: _SessionOptions, *, providers: Sequence[str]) -> _Session: ...


def prepared(model: onnx.ModelProto, feeds: Mapping[str, Array], threads: int) -> Run:
    """``model``, optimized as ONNX Runtime does by default, ready to run on ``feeds``.

    Threads do not wait for work between runs, so that several models can take turns. Raises ``BadInput`` if
    onnxruntime is not installed, or refuses the model.
    """
    runtime = _runtime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for info in model.graph.output:
            binding.bind_output(info.name)
        session.run_with_iobinding(binding)
    except Exception as error:  # its exceptions have no common base that is public
        raise BadInput(f"onnxruntime does not run {model.graph.name}: {error}") from error
    return lambda: session.run_with_iobinding(binding)


def _runtime() -> _OnnxRuntime:
    try:
        return cast(_OnnxRuntime, importlib.import_module("onnxruntime"))
    except ImportError as error:
        raise BadInput("onnxruntime is not installed: pip install 'tilewright[demo]'") from error

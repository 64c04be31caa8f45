"""ONNX Runtime, an optional package: what it computes for a model, and models as something that runs."""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, cast

import onnx

from tilewright.base.errors import BadInput, TilewrightError, Unsupported
from tilewright.graph import Array


class Binding(Protocol):
    """Where inputs and outputs of a model lie."""

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None: ...
    def bind_output(self, name: str) -> None: ...


class Session(Protocol):
    """A loaded model. ``run``: all outputs, in the order of the model, if none are named."""

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Array], /) -> Sequence[Array]: ...
    def io_binding(self) -> Binding: ...
    def run_with_iobinding(self, iobinding: Binding) -> None: ...


class Options(Protocol):
    """How a model is loaded."""

    graph_optimization_level: object
    execution_mode: object
    intra_op_num_threads: int
    inter_op_num_threads: int
    log_severity_level: int

    def add_session_config_entry(self, key: str, value: str) -> None: ...


class _Levels(Protocol):
    ORT_DISABLE_ALL: object
    ORT_ENABLE_ALL: object


class _Modes(Protocol):
    ORT_SEQUENTIAL: object


class OnnxRuntime(Protocol):
    """The part of onnxruntime that is used here; it has no type annotations of its own."""

    GraphOptimizationLevel: _Levels
    ExecutionMode: _Modes

    def SessionOptions(self) -> Options: ...
    def InferenceSession(
        self,
        model: bytes | str,
        options: Options,
        *,
        providers: Sequence[str],
        disabled_optimizers: Sequence[str] = (),
    ) -> Session: ...


PROVIDERS = ("CPUExecutionProvider",)


def installed(error: type[TilewrightError], hint: str = "pip install 'tilewright[demo]'") -> OnnxRuntime:
    """The package. Raises ``error`` with a ``hint`` if it is not installed."""
    try:
        return cast(OnnxRuntime, importlib.import_module("onnxruntime"))
    except ImportError as missing:
        raise error(f"onnxruntime is not installed: {hint}") from missing


def options_for(runtime: OnnxRuntime, threads: int) -> Options:
    """So many threads, one operator at a time; nothing is logged but errors."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return options


def values_of(model: onnx.ModelProto, feeds: Mapping[str, Array], wanted: Iterable[str]) -> Mapping[str, Array]:
    """The ``wanted`` values of ``model``, and its outputs, by ONNX Runtime, node by node, without its optimizations.

    Raises ``Unsupported`` if it is not installed, ``BadInput`` if it refuses the model.
    """
    runtime = installed(Unsupported, "pip install onnxruntime, or against='reference'")
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
        session = runtime.InferenceSession(opened.SerializeToString(), options, providers=PROVIDERS)
        results = session.run(names, feeds)
    except Exception as error:  # its exceptions have no common base that is public
        raise BadInput(f"onnxruntime does not run the model: {error}") from error
    return dict(zip(names, results, strict=True))


def prepared(model: onnx.ModelProto, feeds: Mapping[str, Array], threads: int) -> Callable[[], object]:
    """``model``, optimized as ONNX Runtime does by default, ready to run on ``feeds``.

    Threads do not wait for work between runs, so that several models can take turns. Raises ``BadInput`` if
    onnxruntime is not installed, or refuses the model.
    """
    runtime = installed(BadInput)
    options = options_for(runtime, threads)
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        session = runtime.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS)
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for info in model.graph.output:
            binding.bind_output(info.name)
        session.run_with_iobinding(binding)
    except Exception as error:
        raise BadInput(f"onnxruntime does not run {model.graph.name}: {error}") from error
    return lambda: session.run_with_iobinding(binding)

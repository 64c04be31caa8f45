"""Runs models by ONNX Runtime, an optional package, on the CPU: for reference values and times.

Its exceptions have no public base class, so all exceptions of loading and running are caught.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import onnx

from tilewright.base.errors import BadInput, Unsupported
from tilewright.frontend.onnx.read.narrow import NARROW, OF_NUMPY
from tilewright.graph import Array

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, OrtValue


def session(
    model: str | bytes,
    *,
    threads: int = 0,
    is_optimized: bool = True,
    without: Sequence[str] = (),
    waits_busily: bool = True,
    instead: str = "",
) -> "InferenceSession":
    """A loaded model, given as bytes or as a path, that runs one operator at a time; ``threads=0``: its default.

    ``without``: names of optimizations to disable. ``waits_busily``: threads spin between runs. Raises ``Unsupported``
    if the package is not installed, with the remedy ``instead``.
    """
    try:
        import onnxruntime as runtime
    except ImportError as error:
        raise Unsupported(f"onnxruntime is not installed: pip install 'tilewright[demo]'{instead}") from error
    options, levels = runtime.SessionOptions(), runtime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if is_optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # log errors only
    if not waits_busily:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    providers = ["CPUExecutionProvider"]
    return runtime.InferenceSession(model, options, providers=providers, disabled_optimizers=without)


@contextmanager
def refusals(what: str) -> Generator[None]:
    """Turns its exceptions into ``BadInput``: it failed to do ``what``."""
    try:
        yield
    except Unsupported:
        raise
    except Exception as error:
        raise BadInput(f"onnxruntime does not {what}: {error}") from error


def values_of(model: onnx.ModelProto, feeds: Mapping[str, Array], wanted: Iterable[str]) -> Mapping[str, Array]:
    """The ``wanted`` values of ``model``, and its outputs, node by node, without its optimizations.

    Raises ``Unsupported`` if it is not installed, ``BadInput`` if it refuses the model.
    """
    made = {name for node in model.graph.node for name in node.output}
    outputs = [info.name for info in model.graph.output]
    names = [name for name in dict.fromkeys((*wanted, *outputs)) if name in made or name in outputs]
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    opened.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in outputs)
    with refusals("run the model"):
        loaded = session(opened.SerializeToString(), is_optimized=False, instead=", or against='reference'")
        found = loaded.run(names, {name: _given(array) for name, array in feeds.items()})
        codes = {info.name: info.type.tensor_type.elem_type for info in model.graph.output}
        pairs = zip(names, found, strict=True)
        return {name: _of_type(array, codes.get(name, onnx.TensorProto.UNDEFINED)) for name, array in pairs}


def _given(array: Array) -> "Array | OrtValue":
    """An input; bytes that are floats of 8 bits have no type in NumPy by which it knows them."""
    narrow = OF_NUMPY.get(array.dtype)
    if narrow is None or narrow.dtype.is_int:
        return array
    from onnxruntime import OrtValue

    return OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint8), narrow.code)


def _of_type(array: Array, code: int) -> Array:
    """An output of the type with ONNX's number ``code``; of floats of 8 bits it gives bytes."""
    narrow = NARROW.get(code)
    return array if narrow is None or narrow.dtype.is_int else array.view(narrow.dtype.numpy)


def prepared(model: onnx.ModelProto, feeds: Mapping[str, Array], threads: int) -> Callable[[], object]:
    """``model``, with default optimizations, as a function that runs it on ``feeds``.

    Threads do not wait for work between runs, so that several models can take turns. Raises as ``values_of`` does.
    """
    with refusals(f"run {model.graph.name}"):
        loaded = session(model.SerializeToString(), threads=threads, waits_busily=False)
        binding = loaded.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for info in model.graph.output:
            binding.bind_output(info.name)
        loaded.run_with_iobinding(binding)
    return lambda: loaded.run_with_iobinding(binding)


def outputs_of(model: onnx.ModelProto, feeds: Mapping[str, Array], threads: int) -> list[Array]:
    """The outputs of ``model``, with default optimizations. Raises as ``values_of`` does."""
    with refusals(f"run {model.graph.name}"):
        loaded = session(model.SerializeToString(), threads=threads, waits_busily=False)
        return [np.asarray(found) for found in loaded.run(None, dict(feeds))]

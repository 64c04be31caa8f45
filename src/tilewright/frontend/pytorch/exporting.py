"""Exports a program of PyTorch as ONNX, in memory: ``torch.export`` traces it, ``torch.onnx`` converts the trace.

The constants of the result are views of the program's tensors (a tensor that is not contiguous is copied).
"""

import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from typing import Protocol, TypeVar, cast

import torch
from torch.export import Dim, ExportedProgram

from tilewright.base.errors import BadInput, TilewrightError, UnsupportedModel
from tilewright.frontend.api import Examples
from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.read.noted_sizes import dimension_names, note
from tilewright.frontend.onnx.with_arrays import OnnxWithArrays
from tilewright.frontend.pytorch import refusals
from tilewright.frontend.pytorch.assumptions import conditions
from tilewright.frontend.pytorch.decompositions import decomposed

Made = TypeVar("Made")


def exported(program: object, examples: Examples | None, operators: tuple[OnnxOperator, ...]) -> OnnxWithArrays:
    """The ONNX model of ``program``, a module or an exported program.

    Raises ``BadInput`` for a program that is not for inference, or not on the CPU, and if onnxscript is missing;
    ``UnsupportedModel`` if PyTorch can't export it.
    """
    _require_onnxscript()
    if isinstance(program, ExportedProgram):
        if examples is not None:
            raise BadInput(
                "an ExportedProgram has its inputs and open dimensions: leave example_inputs= and "
                "dynamic_shapes= out (shapes= names dimensions)"
            )
        return _converted(program, None, operators)
    module = cast(torch.nn.Module, program)
    if examples is None or examples.inputs is None:
        raise BadInput(
            f"this {type(module).__name__}, a module of PyTorch, needs example_inputs=(x, ...), tensors "
            "of the shapes that it takes"
        )
    return _converted(_traced(module, examples), examples.dynamic_shapes, operators)


def _traced(module: torch.nn.Module, examples: Examples) -> ExportedProgram:
    """The operators that ``module`` computes its example by."""
    refusals.refuse_training(module)
    args, kwargs = _arguments(_fresh(examples.inputs))
    refusals.refuse_devices((*module.named_parameters(), *module.named_buffers(), *_named(args, kwargs)))
    shapes = _with_hints(examples.dynamic_shapes)
    with nullcontext() if shapes is None else _recurrences_of_any_length():
        return _guarded(
            lambda: _program_of(module, args, kwargs, shapes),
            lambda error: refusals.of_tracing(module, error),
        )


def _program_of(
    module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object], shapes: object
) -> ExportedProgram:
    export = partial(torch.export.export, module, args, kwargs, dynamic_shapes=shapes, strict=False)
    if shapes is None:
        return export()
    with _sizes_like_others(), _each_shape_once():
        return export()


def _sizes_like_others() -> AbstractContextManager[None]:
    """Keeps PyTorch from telling sizes of 0 and 1 from others, as ``torch.onnx.export`` does: it assumes less of sizes.

    Otherwise a view asks SymPy for quotients of quotients: on windows of windows it works for minutes, and of what was
    assumed of them it has no solution.
    """
    config = cast(_Config, import_module("torch.fx.experimental._config"))
    return config.patch(backed_size_oblivious=True)


def _each_shape_once() -> AbstractContextManager[None]:
    """Keeps PyTorch from caching shapes of results: with open sizes it proves each of them again for the cache."""
    config = cast(_Config, import_module("torch._dynamo.config"))
    return config.patch(fake_tensor_cache_enabled=False)


class _Config(Protocol):
    """A module of PyTorch's settings."""

    def patch(self, **settings: bool) -> AbstractContextManager[None]: ...


class _Patches(Protocol):
    """``torch.export._patches``, as far as a version of torch has it."""

    def register_lstm_while_loop_decomposition(self) -> AbstractContextManager[None]: ...
    def register_gru_while_loop_decomposition(self) -> AbstractContextManager[None]: ...


@contextmanager
def _recurrences_of_any_length() -> Generator[None]:
    """Keeps ``torch.export`` from unrolling LSTM and GRU over the example, as ``torch.onnx.export`` does."""
    with ExitStack() as stack:
        try:
            patches = cast(_Patches, import_module("torch.export._patches"))
            stack.enter_context(patches.register_lstm_while_loop_decomposition())
            stack.enter_context(patches.register_gru_while_loop_decomposition())
        except (ImportError, AttributeError):  # then torch refuses recurrences over open dimensions
            stack.close()
        yield


def _converted(program: ExportedProgram, dynamic_shapes: object, operators: tuple[OnnxOperator, ...]) -> OnnxWithArrays:
    """The ONNX model of the traced ``program``. ``dynamic_shapes`` has the names of its dimensions."""
    refusals.refuse_devices((*program.named_parameters(), *program.named_buffers()))
    refusals.refuse_constants(program)
    with _sizes_like_others():
        made = _guarded(
            lambda: torch.onnx.export(decomposed(program), dynamo=True, verbose=False, dynamic_shapes=dynamic_shapes),
            lambda error: refusals.of_conversion(program, error),
        )
    refusals.refuse_effects(made.exported_program)
    initializers = made.model.graph.initializers
    constants = {name: one.const_value.numpy() for name, one in initializers.items() if one.const_value is not None}
    initializers.clear()
    proto = made.model_proto
    note(proto, conditions(made.exported_program, dimension_names(proto)))
    return OnnxWithArrays.of(proto, constants, operators)


def _guarded(make: Callable[[], Made], refusal: Callable[[Exception], UnsupportedModel]) -> Made:
    """What ``make`` returns, without PyTorch's warnings, which are about its insides; its exceptions by ``refusal``."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return make()
    except (TilewrightError, MemoryError):
        raise
    except Exception as error:  # the program itself ran, and may raise anything
        raise refusal(error) from error


def _arguments(inputs: object) -> tuple[tuple[object, ...], dict[str, object]]:
    """The positional arguments and those by name."""
    if isinstance(inputs, Mapping):
        return (), dict(cast("Mapping[str, object]", inputs))
    return (tuple(cast("Sequence[object]", inputs)), {}) if isinstance(inputs, tuple | list) else ((inputs,), {})


def _fresh(inputs: object) -> object:
    """``inputs`` with tensors of their own, as ``torch.export`` marks tensors; elements are not copied."""
    match inputs:
        case torch.Tensor():
            return inputs.detach()
        case Mapping():
            return {key: _fresh(inside) for key, inside in cast("Mapping[object, object]", inputs).items()}
        case tuple() | list():
            return _mapped(_fresh, cast("Sequence[object]", inputs))
        case _:
            return inputs


def _mapped(change: Callable[[object], object], items: Sequence[object]) -> Sequence[object]:
    """A tuple or list with changed items."""
    return tuple(map(change, items)) if isinstance(items, tuple) else [change(item) for item in items]


def _named(args: Sequence[object], kwargs: Mapping[str, object]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors among arguments, for errors."""
    pairs = (*((f"example input {position}", one) for position, one in enumerate(args)), *kwargs.items())
    return ((name, one) for name, one in pairs if isinstance(one, torch.Tensor))


def _with_hints(shapes: object) -> object:
    """``dynamic_shapes`` with names of dimensions as ``torch.export`` takes them; the converter takes them as names."""
    match shapes:
        case str():
            return Dim.DYNAMIC
        case Mapping():
            return {key: _with_hints(inside) for key, inside in cast("Mapping[object, object]", shapes).items()}
        case tuple() | list():
            return _mapped(_with_hints, cast("Sequence[object]", shapes))
        case _:
            return shapes


def _require_onnxscript() -> None:
    try:
        import_module("onnxscript")
    except ImportError as error:
        raise BadInput("onnxscript is not installed: pip install 'tilewright[torch]'") from error

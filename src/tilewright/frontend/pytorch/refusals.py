"""Why a program of PyTorch can't be compiled, with the line of the user's program."""

import re
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, OutputKind

from tilewright.base.errors import BadInput, UnsupportedModel
from tilewright.base.names import bounded, readable, shown
from tilewright.frontend.onnx.read.user_lines import line_of, shown_line

_MOST_CHARACTERS = 1200
"""Of what PyTorch says, which may be pages."""
_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]), "<")
"""Where files are that are not the user's, and code without a file. Other packages count as the user's."""
_STANDARD = sysconfig.get_path("stdlib")
_NO_FORM = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)', overload='(\w+)'\)>")
_UPDATING = "aten._native_batch_norm_legit_functional.default"
_OF_FAST_PATH = {f"aten.{name}.default" for name in ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")}
_FAST_PATH = "call torch.backends.mha.set_fastpath_enabled(False) before, so that PyTorch takes other operators"
_TRANSLATED = re.compile(r"Error when translating node %(\w+)")


def refuse_training(module: torch.nn.Module) -> None:
    """Raise ``BadInput`` if ``module``, or a part of it, is in training mode."""
    if module.training:
        raise BadInput(
            f"this {type(module).__name__} is in training mode: call .eval() first, as models are compiled "
            "for inference"
        )
    part = next((name for name, one in module.named_modules() if one.training), None)
    if part is not None:
        raise BadInput(
            f"the part {readable(part)} of this {type(module).__name__} is in training mode: call .eval() "
            "first, as models are compiled for inference"
        )


def refuse_devices(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raise ``BadInput`` if one of the named ``tensors`` is not in host memory."""
    for name, tensor in tensors:
        if tensor.device.type != "cpu":
            raise BadInput(
                f"{readable(name)} is on the device {tensor.device}; models are compiled for the CPU: move "
                "the module and its examples there by .cpu()"
            )


def refuse_constants(program: ExportedProgram) -> None:
    """Raise ``UnsupportedModel`` if ``program`` returns numbers or texts, which PyTorch's exporter can't write."""
    for place, spec in enumerate(program.graph_signature.output_specs):
        constant = spec.arg.value if isinstance(spec.arg, ConstantArgument) else None
        if constant is not None:
            raise UnsupportedModel(
                f"output {place} of the program is {shown(constant)}, not a tensor: return tensors only (torch.compile "
                "takes any structure)"
            )


def refuse_effects(program: ExportedProgram) -> None:
    """Raise ``UnsupportedModel`` if ``program``, which is functional, does more than return outputs.

    PyTorch's exporter drops such effects. It writes batch normalization that updates statistics as if it used them.
    """
    is_updating = _line_of_node(program, lambda node: str(node.target) == _UPDATING)
    if is_updating is not None:
        raise UnsupportedModel(f"batch normalization is in training mode{is_updating}: call .eval() first")
    stacks = {node.name: node.meta.get("stack_trace") for node in program.graph.nodes}
    for spec in program.graph_signature.output_specs:
        if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.TOKEN):
            continue
        where = line_of(str(stacks.get(spec.arg.name) or ""))
        what = f"the program writes to {readable(spec.target or 'its state')}" + (f" ({where})" if where else "")
        raise UnsupportedModel(
            f"{what}; a compiled model keeps no state: call .eval() first if it is in training mode, or return the new "
            "value as an output"
        )


def of_tracing(module: torch.nn.Module, error: Exception) -> UnsupportedModel:
    """The refusal for what ``module`` or ``torch.export`` raised."""
    where = _line_of_error(error)
    return UnsupportedModel(
        f"{type(module).__name__} can't be traced by torch.export{f', at {where}' if where else ''}: "
        f"{type(error).__name__}: {_beginning(error)}"
    )


def of_conversion(program: ExportedProgram, error: Exception) -> UnsupportedModel:
    """The refusal for what ``torch.onnx`` raised while it converted ``program``."""
    causes = list(_causes(error))
    texts = [str(cause) for cause in causes]
    missing = next((found for text in texts if (found := _NO_FORM.search(text))), None)
    translated = next((found for text in texts if (found := _TRANSLATED.search(text))), None)
    if missing is not None:
        name = ".".join(missing.groups())
        where = _line_of_node(program, lambda node: str(node.target) == name) or ""
        hint = _FAST_PATH if name in _OF_FAST_PATH else "express it by other operators of torch"
        return UnsupportedModel(f"PyTorch's exporter has no ONNX form of the operator {name}{where}; {hint}")
    where = (translated and _line_of_node(program, lambda node: node.name == translated[1])) or ""
    last = causes[-1]
    return UnsupportedModel(
        f"PyTorch's exporter can't write the program as ONNX{where}: {type(last).__name__}: {_beginning(last)}"
    )


def _line_of_node(program: ExportedProgram, is_meant: Callable[[torch.fx.Node], bool]) -> str | None:
    """``, at net.py:12, ...``; empty if no line is known, None if there is no such node."""
    node = next(filter(is_meant, program.graph.nodes), None)
    line = "" if node is None else line_of(str(node.meta.get("stack_trace") or ""))
    return None if node is None else f", at {line}" if line else ""


def _line_of_error(error: BaseException) -> str:
    """The innermost line of the user's program that was running when the first cause of ``error`` was raised."""
    for cause in reversed(list(_causes(error))):
        frames = traceback.extract_tb(cause.__traceback__)
        own = [frame for frame in frames if _is_own(frame.filename)]
        if own:
            return shown_line(own[-1].filename, str(own[-1].lineno), own[-1].name, own[-1].line or "")
    return ""


def _is_own(file: str) -> bool:
    """Whether a file belongs to the user's program."""
    is_standard = file.startswith(_STANDARD) and not re.search("(?:site|dist)-packages", file)
    return not is_standard and not file.startswith(_LIBRARIES)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """``error``, and what caused it, the first cause last."""
    seen: BaseException | None = error
    for _ in range(32):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__


def _beginning(error: BaseException) -> str:
    """What an exception says, without PyTorch's advice how to debug PyTorch."""
    text = " ".join(str(error).split())
    return bounded(text.partition(" For more information, run with TORCH_LOGS")[0], _MOST_CHARACTERS)

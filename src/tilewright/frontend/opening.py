"""Selects the front end for a model: given ones, installed ones, and finally ONNX and PyTorch."""

from collections.abc import Iterable, Sequence

from tilewright.base.errors import BadInput, TilewrightError
from tilewright.base.names import shown
from tilewright.base.plugins import installed
from tilewright.frontend.api import Examples, FrontEnd, Source
from tilewright.frontend.onnx.front_end import Onnx
from tilewright.frontend.onnx.read.foreign import OnnxOperator, installed_operators
from tilewright.frontend.pytorch.front_end import PyTorch, TorchProgram

GROUP = "tilewright.frontends"
"""Group of entry points, in which installed packages name their front ends."""


def opened(
    given: object,
    front_ends: Sequence[FrontEnd] = (),
    operators: Sequence[OnnxOperator] = (),
    function: str = "compile",
    examples: Examples | None = None,
) -> Source:
    """The model, opened by the first front end that accepts it; ``function``: the caller's name in errors.

    ``front_ends`` and ``operators`` take precedence over installed ones. ``examples``: inputs of a module of PyTorch.

    Raises ``BadInput``, which lists the accepted inputs, if no front end accepts it, or if it takes no examples.
    """
    every = (*operators, *installed_operators())
    known = (*front_ends, *installed(GROUP, FrontEnd).values(), Onnx(every), PyTorch(every, examples))
    accepted = " or ".join(dict.fromkeys(front_end.accepted for front_end in known))
    try:
        source = _first(known, given)
    except TilewrightError:
        raise
    except Exception as error:
        why = f"looking at it raised {type(error).__name__}"
        raise BadInput(f"{function}: model={shown(given)} ({why}): give {accepted}") from error
    if source is None:
        raise BadInput(f"{function}: model={shown(given)}: give {accepted}")
    if examples is not None and not isinstance(source, TorchProgram):
        raise BadInput(f"{function}: example_inputs= and dynamic_shapes= are for modules of PyTorch: leave them out")
    return source


def _first(known: Iterable[FrontEnd], given: object) -> Source | None:
    return next((source for front_end in known if (source := front_end.open(given)) is not None), None)

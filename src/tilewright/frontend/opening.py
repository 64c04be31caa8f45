"""Selects the front end for a model: given ones, installed ones, and finally ONNX."""

from collections.abc import Sequence

from tilewright.base.errors import BadInput, TilewrightError
from tilewright.base.names import shown
from tilewright.base.plugins import installed
from tilewright.frontend.api import FrontEnd, Source
from tilewright.frontend.onnx.front_end import Onnx
from tilewright.frontend.onnx.read.foreign import OnnxOperator, installed_operators

GROUP = "tilewright.frontends"
"""Group of entry points, in which installed packages name their front ends."""


def opened(
    given: object,
    front_ends: Sequence[FrontEnd] = (),
    operators: Sequence[OnnxOperator] = (),
    function: str = "compile",
) -> Source:
    """The model, opened by the first front end that accepts it; ``function``: the caller's name in errors.

    ``front_ends`` and ``operators`` take precedence over installed ones.

    Raises ``BadInput``, which lists the accepted inputs, if no front end accepts it.
    """
    onnx = Onnx((*operators, *installed_operators()))
    known = (*front_ends, *installed(GROUP, FrontEnd).values(), onnx)
    accepted = " or ".join(dict.fromkeys(front_end.accepted for front_end in known))
    try:
        for front_end in known:
            source = front_end.open(given)
            if source is not None:
                return source
    except TilewrightError:
        raise
    except Exception as error:
        why = f"looking at it raised {type(error).__name__}"
        raise BadInput(f"{function}: model={shown(given)} ({why}): give {accepted}") from error
    raise BadInput(f"{function}: model={shown(given)}: give {accepted}")

"""Which front end opens what a user gives as a model: those given, those installed, and ONNX at last."""

from collections.abc import Sequence

from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.base.plugins import installed
from tilewright.frontend.api import FrontEnd, Source
from tilewright.frontend.onnx.front_end import Onnx
from tilewright.frontend.onnx.read.foreign import OnnxOperator, installed_operators

GROUP = "tilewright.frontends"
"""Of entry points: a package that is installed names its front ends there."""


def opened(
    given: object,
    front_ends: Sequence[FrontEnd] = (),
    operators: Sequence[OnnxOperator] = (),
    function: str = "compile",
) -> Source:
    """The model, opened by the first front end that accepts it; ``function``: what errors call who was given it.

    ``front_ends`` are asked first, and so are ``operators`` of ONNX models before those that are installed.

    Raises ``BadInput`` that says what is accepted, if no front end does.
    """
    onnx = Onnx((*operators, *installed_operators()))
    known = (*front_ends, *installed(GROUP, FrontEnd).values(), onnx)
    accepted = " or ".join(dict.fromkeys(front_end.accepted for front_end in known))
    try:
        for front_end in known:
            source = front_end.open(given)
            if source is not None:
                return source
    except Exception as error:
        why = f"looking at it raised {type(error).__name__}"
        raise BadInput(f"{function}: model={shown(given)} ({why}): give {accepted}") from error
    raise BadInput(f"{function}: model={shown(given)}: give {accepted}")

"""Which front end opens what a user gives as a model."""

from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.frontend.api import FrontEnd, Source
from tilewright.frontend.onnx.front_end import ONNX


def opened(given: object, function: str = "compile") -> Source:
    """The model, opened by the front end that accepts it; ``function``: what errors call who was given it.

    Raises ``BadInput`` that says what is accepted, if no front end does.
    """
    known: tuple[FrontEnd, ...] = (ONNX,)
    accepted = " or ".join(front_end.accepted for front_end in known)
    try:
        for front_end in known:
            source = front_end.open(given)
            if source is not None:
                return source
    except Exception as error:
        why = f"looking at it raised {type(error).__name__}"
        raise BadInput(f"{function}: model={shown(given)} ({why}): give {accepted}") from error
    raise BadInput(f"{function}: model={shown(given)}: give {accepted}")

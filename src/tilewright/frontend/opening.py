"""Which front end opens what a user gives as a model: those given, those installed, and ONNX at last."""

import logging
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points

from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.frontend.api import FrontEnd, Source
from tilewright.frontend.onnx.front_end import ONNX

GROUP = "tilewright.frontends"
"""Of entry points: a package that is installed names its front ends there."""


def opened(given: object, front_ends: Sequence[FrontEnd] = (), function: str = "compile") -> Source:
    """The model, opened by the first front end that accepts it; ``function``: what errors call who was given it.

    ``front_ends`` are asked first. Raises ``BadInput`` that says what is accepted, if no front end does.
    """
    known = (*front_ends, *installed(), ONNX)
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


@cache
def installed() -> tuple[FrontEnd, ...]:
    """The front ends of other packages, by name. One that can't be loaded is left out, and the log says why."""
    found: list[FrontEnd] = []
    logger = logging.getLogger("tilewright")
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            front_end: object = entry.load()
        except Exception:  # whatever importing somebody's package raises: other models do not need it
            logger.exception("the front end %s = %s is left out: it can't be loaded", entry.name, entry.value)
            continue
        if isinstance(front_end, FrontEnd):
            found.append(front_end)
        else:
            logger.warning("the front end %s = %s is left out: it has no open and accepted", entry.name, entry.value)
    return tuple(found)

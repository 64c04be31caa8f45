"""The child process of ``isolation``: ``python -m tilewright.isolated``. It handles one request."""

import argparse
import logging
import os
import resource
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import cast

from tilewright.api import compile as compile_model
from tilewright.base import fields
from tilewright.base.errors import TilewrightError, Unsupported
from tilewright.base.events import Advanced, Event
from tilewright.base.memory import out_of_memory
from tilewright.isolation import MAX_MESSAGE, MAX_TEXT, settings_of
from tilewright.measure.limits import limit_memory
from tilewright.measure.messages import receive_blocking, send_blocking
from tilewright.measure.processes import die_with
from tilewright.staged import StagedModel


def main(arguments: Sequence[str] | None = None) -> int:
    """Handle the parent's request."""
    parser = argparse.ArgumentParser(description="Compiles a model for another process; not for people.")
    for name in ("socket", "parent"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args(arguments)
    die_with(given.parent)
    os.set_inheritable(given.socket, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=given.socket) as end:
        request = receive_blocking(end, MAX_MESSAGE)
        if request is not None:
            send_blocking(end, _answered(request, end))
    return 0


class _Warnings(logging.Handler):
    """Sends warnings to the parent."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(logging.WARNING)
        self._end = end

    def emit(self, record: logging.LogRecord) -> None:
        send_blocking(self._end, {"warned": record.getMessage().removeprefix("warning: ")[:MAX_TEXT]})


def _answered(request: Mapping[str, object], end: socket.socket) -> dict[str, object]:
    def listen(event: Event) -> None:
        if isinstance(event, Advanced):
            send_blocking(end, {"advanced": [event.step, event.done, event.total, event.subject[:MAX_TEXT]]})

    logging.getLogger("tilewright").addHandler(_Warnings(end))
    try:
        limit_memory(fields.whole(request["memory"]))
        model = compile_model(
            fields.text(request["model"]),
            shapes=cast("Mapping[str, Sequence[int | str]]", request["shapes"]),
            bounds=cast("Mapping[str, int]", request["bounds"]),
            dynamic="symbolic",
            math=fields.text(request["math"]),
            precision=fields.text(request["precision"]),
            memory_limit=cast("int | None", request["memory_limit"]),
            superopt=fields.text(request["superopt"]),
            checks=fields.text(request["checks"]),
            target=fields.text(request["target"]),
            threads=cast("int | None", request["threads"]),
            settings=settings_of(request["settings"]),
            listener=listen,
        )
        if isinstance(model, StagedModel) and request["staged"] is not True:
            raise Unsupported("a model in stages is made of several: compile it without isolate=")
        model.save(fields.text(request["output"]), signed=False)
    except TilewrightError as error:
        notes = ["\n".join(error.__notes__)[:MAX_TEXT]] if hasattr(error, "__notes__") else []
        return {"failed": [type(error).__name__, str(error)[:MAX_TEXT], *notes]}
    except MemoryError as error:
        return {"failed": ["OutOfMemory", str(out_of_memory("the model was compiled", error))]}
    return {"done": {"cached": model.is_cached}}


if __name__ == "__main__":
    raise SystemExit(main())

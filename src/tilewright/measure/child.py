"""The process in which candidates are built and run: ``python -m tilewright.measure.child``, started by a supervisor.

It leads its own session, has limits, and answers on one socket. The supervisor enforces deadlines by killing it. It
shares neither memory (there was no fork) nor modules with the user's program.
"""

import argparse
import gc
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from tilewright.measure.build import Start, start
from tilewright.measure.candidate import Bench, Measuring
from tilewright.measure.limits import Limits, limit_files, limit_memory, limit_processor
from tilewright.measure.messages import MAX_REQUEST, Ready, Said, receive_blocking, said_message, send_blocking
from tilewright.measure.processes import become_subreaper, die_with
from tilewright.measure.requests import Request
from tilewright.measure.verdicts import Phase

_COLLECT_AFTER = 50_000
"""Garbage-collection threshold: builds make many objects, and few cycles."""


def main(arguments: Sequence[str] | None = None, start: Start = start) -> int:
    """Serve until the supervisor closes the socket."""
    return serve_as(lambda limits, folder: Bench(limits, folder, start), arguments)


def serve_as(make: Callable[[Limits, Path | None], Measuring], arguments: Sequence[str] | None = None) -> int:
    """The same, with what measures."""
    parser = argparse.ArgumentParser(description="Measures candidates for a supervisor; not for people.")
    for name in ("socket", "parent", "memory", "files"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--folder", required=True)
    given = parser.parse_args(arguments)
    die_with(given.parent)
    become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_files(given.files)
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
    with socket.socket(fileno=given.socket) as end:
        folder = Path(given.folder) if given.folder else None
        limits = Limits(memory_bytes=given.memory)
        serve(end, make(limits, folder), limits)
    return 0


def serve(end: socket.socket, bench: Measuring, limits: Limits) -> None:
    """Answer requests in sequence."""

    def say(said: Said) -> None:
        send_blocking(end, said_message(said))

    limit_memory(limits.memory_bytes)
    say(Ready())
    while (message := receive_blocking(end, MAX_REQUEST)) is not None:
        request = Request.read(message)
        limit_processor(sum(limits.seconds(phase, request.run_seconds) for phase in Phase) * (1 + request.job.threads))
        bench.measure(request, say)


if __name__ == "__main__":
    raise SystemExit(main())

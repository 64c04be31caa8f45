"""The process in which candidates are built and run: ``python -m tilewright.measure.child``, started by a supervisor.

It leads a session of its own, has limits, and answers on one socket. It knows nothing of deadlines: the supervisor
kills it. Nothing of the user's program is here, neither its memory (there was no fork) nor its modules.
"""

import argparse
import signal
import socket
from collections.abc import Sequence

from tilewright.measure.candidate import Bench, Build
from tilewright.measure.limits import Limits, limit_files, limit_memory, limit_processor
from tilewright.measure.messages import (
    MAX_REQUEST,
    Ready,
    Request,
    Said,
    receive_blocking,
    said_message,
    send_blocking,
)
from tilewright.measure.processes import become_subreaper, die_with
from tilewright.measure.verdicts import Phase
from tilewright.measure.workload import executable


def main(arguments: Sequence[str] | None = None, build: Build = executable) -> int:
    """Serve until the supervisor closes the socket."""
    parser = argparse.ArgumentParser(description="Measures candidates for a supervisor; not for people.")
    for name in ("socket", "parent", "memory", "files"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args(arguments)
    die_with(given.parent)
    become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_files(given.files)
    with socket.socket(fileno=given.socket) as end:
        serve(end, Limits(memory_bytes=given.memory), build)
    return 0


def serve(end: socket.socket, limits: Limits, build: Build) -> None:
    """Answer requests, one after the other."""

    def say(said: Said) -> None:
        send_blocking(end, said_message(said))

    bench = Bench(limits, build)
    limit_memory(limits.memory_bytes)
    say(Ready())
    while (message := receive_blocking(end, MAX_REQUEST)) is not None:
        request = Request.read(message)
        limit_processor(sum(limits.seconds(phase, request.run_seconds) for phase in Phase) * (1 + request.job.threads))
        bench.measure(request, say)


if __name__ == "__main__":
    raise SystemExit(main())

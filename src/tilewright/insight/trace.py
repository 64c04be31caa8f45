"""Traces of runs in the Trace Event Format, which Perfetto (ui.perfetto.dev) and ``chrome://tracing`` show.

A run is a row of its kernels, and a row for each thread with the parts of kernels that it computed. A part is what one
thread did of one call of a kernel, from its first chunk to its last.

Source: "Trace Event Format", the Chromium project's document of the format's complete (``X``) and metadata (``M``)
events; times are in microseconds.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from tilewright.base.errors import Unsupported
from tilewright.runtime.executable import Executable
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.timeline import Chunk, Timeline

Event = dict[str, object]
_KERNELS = 0
"""The row of whole kernels; that of worker ``n`` is ``n + 1``."""


def trace(
    executable: Executable, feeds: Mapping[str, object], nodes: Sequence[Sequence[str]] = (), runs: int = 3
) -> dict[str, object]:
    """The object to write as JSON: ``runs`` runs, after one that is not listed. ``nodes``: of the model, by call.

    Raises ``Unsupported`` for a back end without a clock in its code, ``BadFeed`` if the feeds do not fit.
    """
    if not isinstance(executable, NativeExecutable):
        raise Unsupported("only runs of native code are traced: leave the back end out")
    executable.run(feeds)
    lines = [executable.timeline(feeds) for _ in range(runs)]
    calls = executable.manifest.calls
    start = lines[0].begin
    events = [event for line in lines for event in _events(line, calls, nodes, start)]
    rows = sorted({int(str(event["tid"])) for event in events})
    return {"traceEvents": [*_names(rows), *events], "displayTimeUnit": "ms"}


def _names(rows: Sequence[int]) -> Iterator[Event]:
    process = os.getpid()
    yield _metadata("process_name", process, 0, "Tilewright")
    for row in rows:
        name = {_KERNELS: "kernels", 1: "thread 0 (the caller)"}.get(row, f"thread {row - 1}")
        yield _metadata("thread_name", process, row, name)


def _metadata(kind: str, process: int, row: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": row, "args": {"name": name}}


def _events(line: Timeline, calls: Sequence[str], nodes: Sequence[Sequence[str]], start: int) -> Iterator[Event]:
    """The events of one run; ``start``: the time that is 0 in the trace."""
    begins = (line.begin, *line.ends[:-1])
    for number, (name, begin, end) in enumerate(zip(calls, begins, line.ends, strict=True)):
        more: dict[str, object] = {"call": number}
        if number < len(nodes):
            more["nodes"] = list(nodes[number])
        yield _event(name, _KERNELS, begin - start, end - begin, more)
    for (number, worker), chunks in _parts(line.chunks, begins).items():
        begin, end = chunks[0].begin, max(chunk.end for chunk in chunks)
        busy = sum(chunk.end - chunk.begin for chunk in chunks)
        facts: dict[str, object] = {"call": number, "chunks": len(chunks), "busy_us": busy / 1e3}
        yield _event(calls[number], worker + 1, begin - start, end - begin, facts)


def _event(name: str, row: int, begin: int, duration: int, facts: dict[str, object]) -> Event:
    times = {"ts": begin / 1e3, "dur": duration / 1e3}
    return {"ph": "X", "name": name, "cat": "kernel", "pid": os.getpid(), "tid": row, **times, "args": facts}


def _parts(chunks: Sequence[Chunk], begins: Sequence[int]) -> dict[tuple[int, int], list[Chunk]]:
    """Chunks by the number of their call and their worker, each in order."""
    found: dict[tuple[int, int], list[Chunk]] = {}
    for chunk in chunks:
        call = max(bisect_right(begins, chunk.begin) - 1, 0)
        found.setdefault((call, chunk.worker), []).append(chunk)
    return found

"""Many seeds in a child process, which may crash or hang: what it was at is charged with that.

The child writes the seed and the stage before it starts with either, and one line for each verdict.
"""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tests.random_graphs.verdict import Kind, Verdict

PATIENCE = 600.0
"""Seconds without a word after which a child hangs: a busy machine may take a minute for a graph."""

ROOT = Path(__file__).parents[2]


CHILD = (sys.executable, "-m", "tests.random_graphs", "--child")


def run(
    seeds: Iterable[int], command: Sequence[str] = CHILD, patience: float = PATIENCE
) -> Iterator[tuple[int, Verdict]]:
    """The verdict of each seed."""
    left = list(seeds)
    while left:
        for seed, verdict in _child(left, command, patience):
            left.remove(seed)
            yield seed, verdict


def _child(seeds: list[int], command: Sequence[str], patience: float) -> Iterator[tuple[int, Verdict]]:
    """The verdicts of one child: of all its seeds, or up to the one that ended it."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(
        [*command, *map(str, seeds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_pump, args=(child.stdout, lines), daemon=True).start()
        errors: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_pump, args=(child.stderr, errors), daemon=True).start()
        at, stage, left = seeds[0], "starting", set(seeds)
        while True:
            try:
                line = lines.get(timeout=patience)
            except queue.Empty:
                child.kill()
                yield at, Verdict(Kind.HANG, stage)
                return
            if line is None:
                break
            word, seed, text = line.rstrip("\n").split(" ", 2)
            at = int(seed)
            if word == "at":
                stage = text
                continue
            kind, _, rest = text.partition(": ")
            left.discard(at)
            yield at, Verdict(Kind(kind), rest)
        if left:
            text = f"{stage}: exit {child.wait()}; {_tail(errors)}"
            yield at if at in left else min(left), Verdict(Kind.CRASH, text)


def _pump(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _tail(lines: queue.Queue[str | None]) -> str:
    """The last of what the child said before it died."""
    said: list[str] = []
    while (line := lines.get()) is not None:
        said.append(line.strip())
    return " | ".join(said[-8:])

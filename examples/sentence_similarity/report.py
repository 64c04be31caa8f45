"""Two sessions on the same feeds: how far apart they are, how long they take, and the tables that say so.

A session is anything with ONNX Runtime's `run(None, feeds)`.
"""

import statistics
import time
from collections.abc import Sequence
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from .sentences import SENTENCES, Feeds

TOLERANCE = 1e-4
PAIRS = 4
ROUNDS = 8
SLOT_SECONDS = 0.2
REST_SECONDS = 0.1  # thread pools that spin after a run fall asleep, and leave the cores to the other side


class Session(Protocol):
    """A compiled model, by ONNX Runtime's spelling."""

    def run(self, output_names: Sequence[str] | None, feeds: Feeds) -> Sequence[NDArray[np.float32]]:
        """All outputs, in the order of the graph."""
        ...


def compare(ours: Session, peer: Session, feeds: Feeds, threads: int, console: Console) -> bool:
    """Print similarities, the difference of the two sessions and their latencies; whether they agree.

    `feeds` are those of SENTENCES.
    """
    (embeddings,), (expected,) = ours.run(None, feeds), peer.run(None, feeds)
    similarities = similarity(embeddings)
    for number, sentence in enumerate(SENTENCES, start=1):
        console.print(f"  {number}  {sentence}", highlight=False, soft_wrap=True)
    console.print(similarity_table(similarities))
    pairs = most_similar(similarities, PAIRS)
    listed = ", ".join(f"{left + 1} and {right + 1} ({similarities[left, right]:.2f})" for left, right in pairs)
    console.print(f"Most similar pairs: {listed}", highlight=False)
    difference = largest_difference(embeddings, expected)
    verdict = "[green]they agree[/]" if difference <= TOLERANCE else f"[red]more than {TOLERANCE:.0e}[/]"
    console.print(f"Largest difference from ONNX Runtime: {difference:.1e}, {verdict}")
    seconds = interleaved_medians([ours, peer], feeds)
    console.print(latency_table(["Tilewright", "ONNX Runtime"], seconds, threads))
    return difference <= TOLERANCE


def largest_difference(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    """max|left - right|; infinite when one of them isn't finite or the shapes differ."""
    if left.shape != right.shape or not (np.isfinite(left).all() and np.isfinite(right).all()):
        return float("inf")
    return float(np.abs(left.astype(np.float64) - right).max())


def similarity(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosine similarities, [n, n], of rows of length one."""
    return embeddings @ embeddings.T


def most_similar(similarities: NDArray[np.float32], count: int) -> list[tuple[int, int]]:
    """The `count` pairs of different rows with the largest similarity, best first."""
    pairs = combinations(range(len(similarities)), 2)
    return sorted(pairs, key=lambda pair: -similarities[pair])[:count]


def interleaved_medians(sessions: Sequence[Session], feeds: Feeds) -> list[float]:
    """Median seconds of a run of each session; they take turns, and the first run of each turn is discarded."""
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(ROUNDS):
        for session, of_session in zip(sessions, times, strict=True):
            time.sleep(REST_SECONDS)
            of_session += _slot(session, feeds)
    return [statistics.median(of_session) for of_session in times]


def _slot(session: Session, feeds: Feeds) -> list[float]:
    session.run(None, feeds)
    times: list[float] = []
    while sum(times) < SLOT_SECONDS:
        begin = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - begin)
    return times


def similarity_table(similarities: NDArray[np.float32]) -> Table:
    """The matrix, sentences by their numbers."""
    table = Table(title="Cosine similarity")
    for heading in ("", *(str(number + 1) for number in range(len(similarities)))):
        table.add_column(heading, justify="right")
    for number, row in enumerate(similarities, start=1):
        table.add_row(str(number), *(_cell(float(value)) for value in row))
    return table


def _cell(value: float) -> str:
    style = "dim" if value > 0.999 else "bold green" if value > 0.4 else "yellow" if value > 0.15 else "default"
    return f"[{style}]{value:.2f}[/]"


def latency_table(names: Sequence[str], seconds: Sequence[float], threads: int) -> Table:
    """Median latencies side by side; the ratio is to the last row."""
    table = Table(title=f"Median latency, run in turns; threads: {threads}")
    for heading in ("", "milliseconds", "relative"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, value in zip(names, seconds, strict=True):
        table.add_row(name, f"{value * 1e3:.2f}", f"{value / seconds[-1]:.2f}")
    return table

"""``tilewright bench``: speed and results compared with another engine, with equal inputs and threads.

Both run in this process, in turns. The report has the median and the quartiles of all runs, the ratio to the fastest
candidate of the peer (median over rounds, and its range; below 1, Tilewright is faster), and the largest difference of
the outputs. The peer runs with all its optimizations.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tilewright.base.errors import BadInput
from tilewright.cli.feeds import make_feeds
from tilewright.cli.fleet_options import add_device
from tilewright.cli.options import (
    add_choice,
    add_model_arguments,
    duration,
    file_path,
    files,
    is_artifact,
    positive,
    tolerance,
)
from tilewright.cli.output import emit
from tilewright.cli.peers import Engine, Session, sessions
from tilewright.cli.places import Local, simulated_or_placed
from tilewright.cli.status import Status
from tilewright.graph import Array
from tilewright.measure.turns import Plan, Timing, measure, ratio, spread

OURS = "tilewright"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``options``, and those of the comparison."""
    add_model_arguments(parser)
    add_device(parser)
    parser.add_argument(
        "--peer-model", type=file_path, metavar="FILE.onnx", help="the ONNX model for the peer, if MODEL is an artifact"
    )
    add_choice(parser, "--vs", next(iter(Engine)), "the peer")
    parser.add_argument("--rounds", type=positive, default=Plan().rounds, help="rounds (default: %(default)s)")
    parser.add_argument(
        "--slot", type=duration, default=Plan().slot, metavar="SECONDS", help="length of a turn (default: %(default)s)"
    )
    parser.add_argument(
        "--tolerance",
        type=tolerance,
        default=1e-4,
        help="largest difference that counts as equal, relative to the largest element (default: %(default)s)",
    )


def execute(options: argparse.Namespace, console: Console) -> int:
    """Compile, compare, report."""
    source: Path = options.peer_model or options.model
    if is_artifact(source):
        raise BadInput(f"{source} is an artifact: give the model for {options.vs} by --peer-model")
    peers = sessions(Engine(options.vs), source, options.threads)
    plan = Plan(max(1, options.rounds), options.slot)
    with simulated_or_placed(options) as place:
        feeds = make_feeds(place.model.inputs, files(options.inputs), options.random_seed)
        results = place.run(feeds)
        difference = max(largest_difference(results, peer.run(None, feeds)) for peer in peers.values())
        if isinstance(place, Local):
            threads, timings = options.threads, measure(_candidates(place.model, peers, feeds), plan)
            fastest = min(peers, key=lambda name: timings[name].median)
        else:  # the peer is not there
            threads, timings = place.threads, {OURS: place.times(feeds, plan)}
            fastest = OURS
        device, simulated = place.device(), place.simulated
    agree = difference <= options.tolerance
    report = {
        "model": str(options.model),
        "threads": threads,
        "device": device,
        "milliseconds": {name: _milliseconds(timing) for name, timing in timings.items()},
        "ratio": None if device else ratio(timings[OURS], timings[fastest]),
        "ratio_spread": None if device else spread(timings[OURS], timings[fastest]),
        "fastest_peer": None if device else fastest,
        "difference": difference,
        "agree": agree,
    }
    if options.json:
        emit(report)
    else:
        console.print(_table(timings, fastest, threads))
        if simulated:
            console.print(f"milliseconds are millions of simulated cycles: {simulated}", highlight=False)
        verdict = "they agree" if agree else f"more than {options.tolerance:g}"
        console.print(f"Largest relative difference: {difference:.1e}, {verdict}")
    return Status.DONE if agree else Status.DIFFERENT


def _milliseconds(timing: Timing) -> dict[str, object]:
    quartiles = [seconds * 1e3 for seconds in timing.quartiles]
    return {
        "median": timing.median * 1e3,
        "least": timing.least * 1e3,
        "quartiles": quartiles,
        "runs": timing.runs,
    }


def _candidates(ours: Session, peers: Mapping[str, Session], feeds: Mapping[str, Array]) -> dict[str, "_Run"]:
    return {name: _Run(session, feeds) for name, session in {OURS: ours, **peers}.items()}


class _Run:
    """Runs the session once."""

    def __init__(self, session: Session, feeds: Mapping[str, Array]) -> None:
        self._session = session
        self._feeds = feeds

    def __call__(self) -> Sequence[Array]:
        return self._session.run(None, self._feeds)


def largest_difference(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """max|a - b| / max|b| over all outputs, 0 where both are 0; infinite if shapes or non-finite elements differ."""
    if len(ours) != len(theirs):
        return float("inf")
    return max((_difference(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)


def _difference(a: Array, b: Array) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(x[finite]).all():
        return float("inf")
    error = float(np.abs(x[finite] - y[finite]).max(initial=0.0))
    scale = float(np.abs(y[finite]).max(initial=0.0))
    return error / scale if scale else float("inf") if error else 0.0


def _table(timings: Mapping[str, Timing], fastest: str, threads: int) -> Table:
    table = Table(title=f"Median latency, run in turns; threads: {threads}")
    for heading in ("", "milliseconds", "quartiles", f"relative to {fastest}", "range"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, timing in timings.items():
        quartiles = " ".join(f"{seconds * 1e3:.3f}" for seconds in timing.quartiles)
        least, most = spread(timing, timings[fastest])
        relative = f"{ratio(timing, timings[fastest]):.2f}"
        table.add_row(name, f"{timing.median * 1e3:.3f}", quartiles, relative, f"{least:.2f} {most:.2f}")
    return table

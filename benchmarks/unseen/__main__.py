"""Programs that no template names: `python -m benchmarks.unseen [--only NAME,...] [--threads 1] [--minutes 2]`.

Each program is searched, then the analytic choice, what was found, and PyTorch with and without its compiler (if it is
installed) run in turns, each in a process of its own, and are compared with NumPy in float64. Results go to a JSON
file after each program; last, tables are printed. Measure on a quiet machine.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tilewright import te
from tilewright.base.errors import TilewrightError

from ..contest import Outcome, Terms, run_in_turns, write_feeds
from ..harness import Plan
from ..options import ROUNDS, names
from ..processes import Spec
from ..results import Results, Row, load, save
from ..tables import failures, heading, latency_table
from ..zoo.samples import Sample
from .candidates import analytic, by_class, searched
from .programs import PROGRAMS, Outputs, Program

RESULTS = Path("benchmarks/results/unseen.json")
FACTORIES = "benchmarks.unseen.candidates"
ANALYTIC, SEARCHED, BY_CLASS = "tilewright", "tilewright_searched", "tilewright_by_class"
PYTORCH = ("torch_eager", "torch_compile")
MOST_ERROR = 1e-4
"""Of an output's largest element: what is farther off computes something else."""
Ways = dict[str, Callable[[Outputs], te.TeSchedule]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; results are saved after each program."""
    options = _options(arguments)
    slot = options.seconds / ROUNDS
    terms = Terms(Plan(ROUNDS, slot, warm_up=slot / 4), tuple(peers()), lock=options.lock)
    ways: Ways = {ANALYTIC: analytic}
    if options.by_class:
        ways[BY_CLASS] = by_class
    if options.search:
        ways[SEARCHED] = partial(searched, minutes=options.minutes, threads=options.threads)
    results = load(options.json)
    for name in options.only:
        print(f"{name}, threads: {options.threads}", flush=True)
        results = results.with_rows(run_program(PROGRAMS[name], ways, options.threads, terms))
        save(results, options.json)
    print(report(results))


def peers() -> Iterator[str]:
    """PyTorch's ways to run a function, if it is installed."""
    if find_spec("torch") is not None:
        yield from PYTORCH


def run_program(program: Program, ways: Ways, threads: int, terms: Terms) -> list[Row]:
    """A row for each way to schedule the program, and for each of `terms.peers`."""
    outputs = program.outputs()
    feeds = program.feeds(outputs)
    exact = program.reference(**{name: array.astype(np.float64) for name, array in feeds.items()})
    sample = Sample(feeds, {f"output_{index}": np.asarray(array, np.float64) for index, array in enumerate(exact)})
    with TemporaryDirectory() as name:
        folder = Path(name)
        (given,) = write_feeds([sample], folder)
        kernels, refused = _saved(outputs, ways, threads, folder)
        specs = [_spec(name, "artifact", threads, path=str(path), feeds=str(given)) for name, path in kernels.items()]
        specs += [_spec(peer, peer, threads, program=program.name, feeds=str(given)) for peer in terms.peers]
        outcome = run_in_turns(specs, [sample], [given], terms)
    reasons = {**outcome.failures, **refused}
    return [_row(program.name, threads, peer, outcome, reasons) for peer in (*ways, *terms.peers)]


def _spec(name: str, factory: str, threads: int, **arguments: str) -> Spec:
    return Spec(name, f"{FACTORIES}:{factory}", arguments, threads)


def _saved(outputs: Outputs, ways: Ways, threads: int, folder: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """The artifacts of the kernels, in `folder`, and why there is none, by name."""
    kernels: dict[str, Path] = {}
    refused: dict[str, str] = {}
    for name, way in ways.items():
        path = folder / f"{name}.tw"
        try:
            te.build(way(outputs), threads=threads).save(path, signed=False)
        except TilewrightError as error:
            refused[name] = f"{type(error).__name__}: {error}"
        else:
            kernels[name] = path
    return kernels, refused


def _row(program: str, threads: int, peer: str, outcome: Outcome, reasons: dict[str, str]) -> Row:
    if peer in reasons:
        return Row(program, threads, peer, reasons[peer])
    of_peer, error = outcome.samples[peer], outcome.errors[peer]
    reason = "" if error.element <= MOST_ERROR else f"its result is off by {error.element:.1e} of the largest element"
    return Row(program, threads, peer, reason, tuple(of_peer.slot_medians), of_peer.median, error=error)


def report(results: Results) -> str:
    """A table for each number of threads, and what failed. Ratios are those to the analytic choice."""
    parts = [heading(results)]
    for threads in sorted({row.threads for row in results.rows}):
        rows = [row for row in results.rows if row.threads == threads]
        cases, ran = (list(dict.fromkeys(names)) for names in ([r.case for r in rows], [r.peer for r in rows]))
        ours = SEARCHED if SEARCHED in ran else ANALYTIC
        parts += [f"Threads: {threads}. Median milliseconds (ratio to the analytic choice, below 1 is faster):"]
        parts += [latency_table(results, threads, cases, ran, ANALYTIC, [ours])]
    failed = failures(results)
    return "\n\n".join([*parts, "What failed:", failed] if failed else parts)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unseen", description="Programs that no template names.")
    parser.add_argument("--only", type=names, default=list(PROGRAMS), help=f"default {','.join(PROGRAMS)}")
    parser.add_argument("--threads", type=int, default=1, help="default %(default)s")
    parser.add_argument("--minutes", type=float, default=2.0, help="of search per program, default %(default)s")
    parser.add_argument("--by-class", action="store_true", help="also the analytic choice without sketches")
    parser.add_argument("--no-search", dest="search", action="store_false", help="the analytic choice alone")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of timing per peer and program, default %(default)s"
    )
    parser.add_argument("--json", type=Path, default=RESULTS, help="results, default %(default)s")
    parser.add_argument("--lock", type=Path, help="hold an exclusive lock on this file while timing")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.only if name not in PROGRAMS]
    if unknown:
        parser.error(f"--only: there is no {', '.join(unknown)}; the programs are {', '.join(PROGRAMS)}")
    return chosen


if __name__ == "__main__":
    main()

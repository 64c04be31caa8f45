"""Measures the tables of the ablation: `python -m benchmarks.ablation.record`. Wants a quiet machine, for hours.

What was measured is in `--records` at once: a run that was stopped goes on where it was. The fastest candidates of a
layer are measured again, carefully, as the replay asks who finds them.
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from tilewright.loops.parser import parse_program
from tilewright.measure.job import Job, Timing
from tilewright.measure.pool import Pool
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Verdict
from tilewright.space.space import Digits
from tilewright.target.target import Target
from tilewright.tune.measurer import Measurer
from tilewright.tune.search.ledger import consecutive

from ..options import names
from .box import Box
from .features import Floats, Seen, seen, stacked
from .layers import LAYERS, space_of
from .table import FOLDER, Table

QUICK = Timing(repeats=3, least_seconds=0.002)
CAREFUL = Timing(repeats=7, least_seconds=0.004)
FASTEST = 100
"""Candidates that are measured again."""


def chosen(box: Box, most: int, seed: int = 0) -> Digits:
    """At most `most` of the candidates that a box allows, the analytic choice first."""
    everything = consecutive(0, int(np.prod(box.radices)), box.radices)
    allowed = everything[box.allowed(everything)]
    own = (allowed == box.analytic()).all(axis=1)
    others = np.random.default_rng(seed).permutation(allowed[~own])[: most - 1]
    return np.concatenate([allowed[own], others])


@cache
def _box(layer: str, most: int) -> Box:
    """A box holds schedules, and is not sent to other processes: each makes its own."""
    return Box.of(space_of(LAYERS[layer], Target.host()), most)


def _scheduled(layer: str, most: int, digits: Digits) -> tuple[str, str]:
    scheduled = _box(layer, most).schedule(digits)
    return scheduled.trace.to_json(), str(scheduled.program)


def _seen(program: str) -> Seen:
    return seen(parse_program(program))


def microseconds(jobs: Sequence[Job], measurer: Measurer) -> Floats:
    """The times of candidates, infinity for those that fail. Raises `MeasureError` if none can be measured."""

    def times(chosen: Sequence[Job]) -> Floats:
        outcomes = measurer.measure(chosen)
        return np.array([min(o.times_us) if o.verdict is Verdict.OK else np.inf for o in outcomes])

    found = times(jobs)
    fastest = np.argsort(found)[:FASTEST]
    found[fastest] = times([replace(jobs[place], timing=CAREFUL, seed=1) for place in fastest.tolist()])
    return found


def table_of(layer: str, options: argparse.Namespace, measurer: Measurer) -> Table:
    """The table of one layer."""
    box = _box(layer, options.box)
    digits = chosen(box, options.candidates)
    program, target = str(box.space.naive), str(box.space.target)
    with ProcessPoolExecutor() as processes:
        made = list(processes.map(partial(_scheduled, layer, options.box), digits, chunksize=64))
        times = microseconds([Job(program, t, target, timing=QUICK, scheduled=text) for t, text in made], measurer)
        found = list(processes.map(_seen, (text for _, text in made), chunksize=64))
    contexts = stacked([one.contexts for one in found])
    return Table(box.radices, digits, times, contexts, np.array([one.curves for one in found]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure layers, and write a file for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation.record", description="Measures the tables.")
    parser.add_argument("--layers", type=names, default=list(LAYERS), help=f"default {','.join(LAYERS)}")
    parser.add_argument("--box", type=int, default=14000, help="candidates in a box at most, default 14000")
    parser.add_argument("--candidates", type=int, default=4100, help="that are measured of a box, default 4100")
    parser.add_argument("--records", type=Path, default=Path("ablation.db"), help="database, default %(default)s")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where tables are written, default %(default)s")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    with (
        Records.open(options.records) as records,
        records.session({"benchmark": "ablation"}) as session,
        Pool(builders=2) as pool,
    ):
        for name in options.layers:
            start = time.perf_counter()
            table = table_of(name, options, Measurer(pool, records, session))
            table.save(options.folder / f"{name}.npz")
            right = table.microseconds[np.isfinite(table.microseconds)]
            print(
                f"{name}: {len(right)} of {len(table.digits)} candidates right, {right.min():.1f} us at best, "
                f"median {np.median(right):.1f} us, analytic choice {table.microseconds[0]:.1f} us; "
                f"{time.perf_counter() - start:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()

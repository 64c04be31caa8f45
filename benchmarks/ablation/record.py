"""Measures the tables of the ablation: `python -m benchmarks.ablation.record`. Wants a quiet machine, for hours.

What was measured is in `--records` at once: a run that was stopped goes on where it was. The fastest candidates of a
layer are measured again, carefully, as the replay asks who finds them.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.base.target import Target
from tilewright.measure.job import Job, Timing
from tilewright.measure.pool import Pool
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Verdict
from tilewright.tune.measurer import Measurer
from tilewright.tune.search.ledger import consecutive
from tilewright.tune.space import Digits

from ..options import names
from .box import Box
from .features import Seen, seen, stacked
from .layers import LAYERS, space_of
from .table import FOLDER, Table

QUICK = Timing(repeats=3, least_seconds=0.002)
CAREFUL = Timing(repeats=7, least_seconds=0.004)
FASTEST = 100
"""Candidates that are measured again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A candidate that is to be measured."""

    digits: Digits
    trace: str
    seen: Seen


def entries(box: Box) -> Iterator[Entry]:
    """The different valid candidates of a box."""
    met: set[str] = set()
    everything = consecutive(0, int(np.prod(box.radices)), box.radices)
    for digits in everything[box.allowed(everything)]:
        scheduled = box.schedule(digits)
        if (text := str(scheduled.program)) not in met:
            met.add(text)
            yield Entry(digits, scheduled.trace.to_json(), seen(scheduled.program))


def measured(name: str, most: int, target: Target, measurer: Measurer) -> Table:
    """The table of one layer."""
    box = Box.of(space_of(LAYERS[name], target), most)
    listed = list(entries(box))
    program = str(box.space.naive)

    def times(chosen: Sequence[int], timing: Timing, seed: int) -> np.ndarray:
        jobs = [Job(program, listed[place].trace, str(target), seed=seed, timing=timing) for place in chosen]
        outcomes = measurer.measure(jobs)
        return np.array([min(o.times_us) if o.verdict is Verdict.OK else np.inf for o in outcomes])

    microseconds = times(range(len(listed)), QUICK, seed=0)
    fastest = np.argsort(microseconds)[:FASTEST]
    microseconds[fastest] = times(fastest.tolist(), CAREFUL, seed=1)
    digits = np.array([entry.digits for entry in listed])
    contexts = stacked([entry.seen.contexts for entry in listed])
    return Table(box.radices, digits, microseconds, contexts, np.array([entry.seen.curves for entry in listed]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure layers, and write a file for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation.record", description="Measures the tables.")
    parser.add_argument("--layers", type=names, default=list(LAYERS), help=f"default {','.join(LAYERS)}")
    parser.add_argument("--candidates", type=int, default=6000, help="at most in a box, default 6000")
    parser.add_argument("--records", type=Path, default=Path("ablation.db"), help="database, default %(default)s")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where tables are written, default %(default)s")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    target = Target.host()
    with (
        Records.open(options.records) as records,
        records.session({"benchmark": "ablation"}) as session,
        Pool(builders=2) as pool,
    ):
        for name in options.layers:
            start = time.perf_counter()
            table = measured(name, options.candidates, target, Measurer(pool, records, session))
            table.save(options.folder / f"{name}.npz")
            print(
                f"{name}: {len(table.digits)} candidates, {table.microseconds.min():.1f} us at best, "
                f"median {np.median(table.microseconds):.1f} us, {time.perf_counter() - start:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()

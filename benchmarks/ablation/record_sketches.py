"""Measures the tables of sketches: `python -m benchmarks.ablation.record_sketches --minutes 10`. Wants a quiet machine.

The candidates of each program's box (`sketch_box.py`) are measured in random order, each program for as long as the
others, until time is over: a table that holds a part of its box is a table. The same command goes on with what is not
in the tables.
At the end the fastest are measured again, carefully, as the replay asks who finds them: half a minute more.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.measure.job import Job, Timing
from tilewright.measure.pool import Pool
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.space.space import Digits, Floats
from tilewright.target.target import Target
from tilewright.tune.measurer import Bench
from tilewright.tune.search.ledger import keys_of

from ..options import names
from .programs import PROGRAMS, naive
from .record import CAREFUL
from .sketch_box import SketchBox
from .sketch_table import SketchTable, described
from .table import FOLDER

QUICK = Timing(repeats=3, least_seconds=0.001, hopeless=2.0)
FASTEST = 24
"""Candidates of a table that are measured again."""
TURN = 64
"""Candidates of a program that are measured before it is another's turn."""


def path_of(folder: Path, name: str) -> Path:
    """The file of a program's table."""
    return folder / f"sketches-{name}.npz"


@dataclass(slots=True)
class Recording:
    """A table in the making. `left`: candidates of the box that it does not have, in the order of their turns."""

    box: SketchBox
    table: SketchTable
    left: Digits

    @staticmethod
    def of(name: str, most: int, path: Path) -> "Recording":
        """Go on with `path`, if there is one. Raises `SystemExit` if it is of other sketches than today's."""
        box = SketchBox.of(naive(PROGRAMS[name]()), replace(Target.host(), cores=1), most)
        table = SketchTable.load(path) if path.exists() else SketchTable.empty(box.union)
        if described(table.union) != described(box.union):
            raise SystemExit(f"{path} is of other sketches, another box or another processor; remove it to begin anew")
        everything = np.random.default_rng(0).permutation(box.everything())
        known = set(keys_of(table.digits))
        is_left = np.array([key not in known for key in keys_of(everything)], np.bool_)
        return Recording(box, table, everything[is_left])

    def go_on(self, bench: Bench, count: int) -> None:
        """Measure the next candidates."""
        batch, self.left = self.left[:count], self.left[count:]
        self.table = self.table.plus(batch, self._microseconds(batch, bench, QUICK, seed=0))

    def repeat_fastest(self, bench: Bench, count: int) -> None:
        """Measure the fastest again, with other data, unless that was done."""
        fastest = np.argsort(self.table.microseconds, kind="stable")[:count]
        again = fastest[~self.table.is_careful[fastest]]
        self.table.microseconds[again] = self._microseconds(self.table.digits[again], bench, CAREFUL, seed=1)
        self.table.is_careful[again] = True

    def _microseconds(self, batch: Digits, bench: Bench, timing: Timing, seed: int) -> Floats:
        """Infinity for what fails, or has no schedule. Equal schedules are measured once."""
        ids: dict[int, str] = {}
        found: dict[str, float] = {}

        def jobs() -> Iterator[Job]:
            for place, digits in enumerate(batch):
                try:
                    scheduled = self.box.schedule(digits)
                except ScheduleError:
                    continue
                trace, program = scheduled.trace.to_json(), self.box.whole.naive
                text, target = str(scheduled.program), str(self.box.whole.target)
                job = Job(str(program), trace, target, seed=seed, timing=timing, scheduled=text)
                ids[place] = job.id
                if list(ids.values()).count(job.id) == 1:
                    yield job

        for job, outcome in bench.measure_all(jobs()):
            found[job.id] = _time(outcome)
        return np.array([found[ids[place]] if place in ids else np.inf for place in range(len(batch))])


def _time(outcome: Outcome) -> float:
    return min(outcome.times_us) if outcome.verdict is Verdict.OK else np.inf


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure until time is over; tables are written after each turn."""
    options = _options(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    paths = {name: path_of(options.folder, name) for name in options.programs}
    recordings = {name: Recording.of(name, options.most, path) for name, path in paths.items()}
    end = time.monotonic() + 60 * options.minutes
    with Pool(builders=Target.host().cores) as pool:
        seconds = dict.fromkeys(recordings, 0.0)
        while time.monotonic() < end and (still := [name for name, one in recordings.items() if len(one.left)]):
            name, begin = min(still, key=lambda name: seconds[name]), time.monotonic()
            recordings[name].go_on(pool, options.turn)
            recordings[name].table.save(paths[name])
            seconds[name] += time.monotonic() - begin
        for name, one in recordings.items():
            one.repeat_fastest(pool, FASTEST)
            one.table.save(paths[name])
            print(f"{name}: {_said(one)}", flush=True)


def _said(one: Recording) -> str:
    times = one.table.microseconds
    right = times[np.isfinite(times)]
    known = f"{len(times)} of {len(times) + len(one.left)} candidates measured, {len(right)} right"
    return f"{known}; {right.min():.1f} us at best, median {np.median(right):.1f} us" if len(right) else known


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation.record_sketches", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of measuring, default %(default)s")
    parser.add_argument("--programs", type=names, default=list(PROGRAMS), help=f"default {','.join(PROGRAMS)}")
    parser.add_argument("--most", type=int, default=2400, help="candidates in a box at most, default %(default)s")
    parser.add_argument("--turn", type=int, default=TURN, help="candidates of a program at a time, default %(default)s")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where tables are, default %(default)s")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()

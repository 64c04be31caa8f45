"""``tilewright tune``: search for faster schedules of a model's kernels, by measuring them on this machine.

What is found is kept in a database, where ``compile`` finds it; what was measured before, by whatever search, is not
measured again. At the end the whole model is timed without and with what was found, in turns, and if it is no faster
with it, nobody uses that.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tilewright.base.errors import BadInput, TilewrightError
from tilewright.cli.feeds import make_feeds
from tilewright.cli.options import add_compile_arguments, compiled, settings_of
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.cli.status import Status
from tilewright.cli.timing import Plan, measure, ratio
from tilewright.runtime.sizing import default_threads

if TYPE_CHECKING:
    from tilewright.model import CompiledModel
    from tilewright.tune.measurer import Measurer
    from tilewright.tune.model_tuner import Gain, Kernel, ModelTuner, Progress

_SHOWN = 12
"""Kernels in the live table: those that take most of the time."""
_SECONDS_BETWEEN_LINES = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``options``; and how long to search."""
    add_compile_arguments(parser)
    parser.add_argument("--minutes", type=float, default=10.0, help="of searching, at most (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the search (default: 0)")
    parser.add_argument("--quiet", action="store_true", help="do not show how far it is")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Compile, search, confirm, compare."""
    from tilewright.measure.pool import Pool
    from tilewright.measure.records import Records
    from tilewright.tune.measurer import Measurer

    path = _records(options)
    errors = Console(stderr=True, quiet=options.quiet or options.json)
    with reporting(f"compiling {options.model}", errors) as listener:
        before = compiled(options, listener, replace(settings_of(options), records=None))
    with Records.open(path) as records, records.session(_config(options)) as session, Pool(default_threads()) as pool:
        measurer = Measurer(pool, records, session)
        try:
            tuner, gains = _search(before, options, measurer, errors)
        except KeyboardInterrupt:
            errors.print(f"interrupted; {path} has all that was measured, and the same command goes on from there")
            raise
        report = _compared(before, tuner, gains, options)
    if options.json:
        emit({**report, "records": str(path), "measured": measurer.measured})
    else:
        _show(report, gains, path, console)
    return Status.DONE


def _records(options: argparse.Namespace) -> Path:
    path = settings_of(options).records
    if path is None:
        raise BadInput("there is no place for what is measured: give --records FILE.db, or set TILEWRIGHT_RECORDS")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{path.parent} can't be made: {error}") from error
    return path


def _config(options: argparse.Namespace) -> Mapping[str, object]:
    return {"verb": "tune", "model": str(options.model), "minutes": options.minutes, "seed": options.seed}


def _search(
    before: "CompiledModel", options: argparse.Namespace, measurer: "Measurer", console: Console
) -> "tuple[ModelTuner, list[Gain]]":
    """Search as long as there is time, then confirm."""
    from tilewright.tune.kernel_tuner import Setup
    from tilewright.tune.model_tuner import ModelTuner

    programs = [(kernel.naive, len(kernel.groups)) for kernel in before.compiled.kernels]
    setup = Setup(seed=options.seed, threads=before.executable.threads)
    tuner = ModelTuner(programs, before.options.target, measurer, setup)
    if not tuner.kernels:
        raise BadInput(f"{options.model} has no kernel with fixed extents and something to choose; give --shape")
    with _Display(console, 60 * options.minutes) as display:
        for progress in tuner.run(display.is_time_left):
            display.show(progress)
    for kernel in tuner.kernels:
        if kernel.tuner.is_over and kernel.tuner.best_seconds is None:
            details = "; ".join(kernel.tuner.history.details)
            console.print(f"{kernel.name}: nothing that was tried is right: {details}", markup=False)
    return tuner, tuner.confirm()


def _compared(
    before: "CompiledModel", tuner: "ModelTuner", gains: "Sequence[Gain]", options: argparse.Namespace
) -> dict[str, object]:
    """The whole model without and with what was found. What does not make it faster is withdrawn."""
    found = any(gain.winners for gain in gains)
    after = compiled(options) if found else before
    feeds = make_feeds(before.inputs, {}, 0)
    runs: dict[str, Callable[[], object]] = {
        "before": lambda: before.run(None, feeds),
        "after": lambda: after.run(None, feeds),
    }
    timings = measure(runs, Plan())
    relative = ratio(timings["after"], timings["before"]) if found else 1.0
    is_kept = found and relative < 1.0
    if found and not is_kept:
        tuner.withdraw(gains, "the whole model is no faster with it")
    return {
        "model": str(options.model),
        "threads": before.executable.threads,
        "milliseconds": {name: timing.median * 1e3 for name, timing in timings.items()},
        "ratio": relative,
        "kept": is_kept,
        "kernels": [{name: value for name, value in asdict(gain).items() if name != "winners"} for gain in gains],
    }


class _Display:
    """How far the search is: a table on a terminal, else a line now and then; and the clock."""

    def __init__(self, console: Console, seconds: float) -> None:
        self._console = console
        self._begin = self._last = time.monotonic()
        self._end = self._begin + seconds
        self._live = Live(console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> "_Display":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def is_time_left(self) -> bool:
        """Whether another round may begin."""
        return time.monotonic() < self._end

    def show(self, progress: "Progress") -> None:
        """After a round."""
        now = time.monotonic()
        rate, left = progress.measured / (now - self._begin), max(0.0, self._end - now)
        title = f"{progress.measured} measured, {rate:.0f} per second; {left:.0f} s left"
        if self._live is not None:
            self._live.update(_live_table(title, progress.kernels))
        elif now - self._last > _SECONDS_BETWEEN_LINES:
            self._last = now
            self._console.print(f"{progress.kernel}: {title}", highlight=False, markup=False)


def _live_table(title: str, kernels: "Sequence[Kernel]") -> Table:
    table = Table(title=title)
    for heading in ("kernel", "calls", "tried", "best, us", "gain so far"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    known = sorted((kernel for kernel in kernels if kernel.times), key=lambda kernel: -kernel.weight * kernel.times[-1])
    for kernel in known[:_SHOWN]:
        gain = kernel.times[0] / kernel.times[-1]
        tried = str(len(kernel.tuner.history.throughputs))
        table.add_row(kernel.name, str(kernel.weight), tried, f"{kernel.times[-1] * 1e6:.1f}", f"{gain:.2f}")
    return table


def _show(report: Mapping[str, object], gains: "Sequence[Gain]", path: Path, console: Console) -> None:
    table = Table(title="Kernels, microseconds: the analytic model's choice, and what was found")
    for heading in ("kernel", "calls", "tried", "before", "after", "gain"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    for gain in sorted(gains, key=lambda gain: gain.weight * (gain.after_us - gain.before_us)):
        times = (f"{gain.before_us:.1f}", f"{gain.after_us:.1f}", f"{gain.before_us / gain.after_us:.2f}")
        table.add_row(gain.name, str(gain.weight), str(gain.tried), *times)
    console.print(table)
    milliseconds = report["milliseconds"]
    if not isinstance(milliseconds, Mapping):
        raise TilewrightError("a report has times")
    times = f"{milliseconds['before']:.3f} ms before, {milliseconds['after']:.3f} ms after"
    verdict = f"what was found is in {path}, and compile uses it" if report["kept"] else "the model's choices stay"
    console.print(f"the whole model: {times}; {verdict}", highlight=False, markup=False, soft_wrap=True)

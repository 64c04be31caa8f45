"""``tilewright tune``: search for faster schedules of a model's kernels, by measuring them on this machine.

What is found is kept in a database, where ``compile`` finds it; what was measured before, by whatever search, is not
measured again. At the end the whole model is timed without and with what was found, in turns. Only if it is faster with
it, ``compile`` may use that; a search that was killed before has changed nothing for anybody.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tilewright.base.errors import BadInput
from tilewright.cli.feeds import make_feeds
from tilewright.cli.options import add_compile_arguments, compiled, settings_of
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.cli.status import Status
from tilewright.cli.timing import Plan, Timing, measure, ratio
from tilewright.runtime.sizing import default_threads

if TYPE_CHECKING:
    from tilewright.measure.records import Records
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
            tuner, gains = _search(before, options, records, measurer, errors)
        except KeyboardInterrupt:
            errors.print(f"interrupted; {path} has all that was measured, and the same command goes on from there")
            raise
        comparison = _compared(before, tuner, gains, records, options)
    if options.json:
        emit(_report(comparison, before, gains, options, path, measurer))
    else:
        _show(comparison, gains, path, console)
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
    before: "CompiledModel",
    options: argparse.Namespace,
    records: "Records",
    measurer: "Measurer",
    console: Console,
) -> "tuple[ModelTuner, list[Gain]]":
    """Search as long as there is time, then confirm."""
    from tilewright.tune.kernel_tuner import Setup
    from tilewright.tune.model_tuner import Computed, ModelTuner

    computed = [Computed(k.naive, len(k.groups), k.constants) for k in before.compiled.kernels]
    setup = Setup(seed=options.seed, threads=before.executable.threads)
    tuner = ModelTuner(computed, before.options.target, measurer, setup, records)
    if not tuner.kernels:
        raise BadInput(f"{options.model} has no kernel with fixed extents and something to choose; give --shape")
    with _Display(console, 60 * options.minutes) as display:
        for progress in tuner.run(display.is_time_left):
            display.show(progress)
    for kernel in tuner.kernels:
        if causes := kernel.tuner.history.causes():
            console.print(f"{kernel.name}: {causes}", highlight=False, markup=False)
    return tuner, tuner.confirm()


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The whole model without and with what was found."""

    before: Timing
    after: Timing
    ratio: float
    is_kept: bool


def _compared(
    before: "CompiledModel",
    tuner: "ModelTuner",
    gains: "Sequence[Gain]",
    records: "Records",
    options: argparse.Namespace,
) -> _Comparison:
    """What makes the model faster is accepted, anything else withdrawn."""
    found = any(gain.winners for gain in gains)
    after = _with_found(tuner, gains, records, options) if found else before
    feeds = make_feeds(before.inputs, {}, 0)
    runs: dict[str, Callable[[], object]] = {
        "before": lambda: before.run(None, feeds),
        "after": lambda: after.run(None, feeds),
    }
    timings = measure(runs, Plan())
    relative = ratio(timings["after"], timings["before"]) if found else 1.0
    is_kept = found and relative < 1.0
    if is_kept:
        tuner.accept(gains)
    else:
        tuner.withdraw(gains, "the whole model is no faster with it")
    return _Comparison(timings["before"], timings["after"], relative, is_kept)


def _with_found(
    tuner: "ModelTuner", gains: "Sequence[Gain]", records: "Records", options: argparse.Namespace
) -> "CompiledModel":
    """The model as it will be if what was found is accepted: compiled with records of its own."""
    from tilewright.measure.records import Records

    with TemporaryDirectory(prefix="tilewright-tuned-") as folder:
        path = Path(folder) / "draft.db"
        with Records.open(path) as draft, draft.session(_config(options)) as session:
            for record in tuner.used(gains, records):
                draft.add(session, record.job, record.outcome)
        return compiled(options, settings=replace(settings_of(options), records=path))


def _report(
    comparison: _Comparison,
    before: "CompiledModel",
    gains: "Sequence[Gain]",
    options: argparse.Namespace,
    path: Path,
    measurer: "Measurer",
) -> dict[str, object]:
    return {
        "model": str(options.model),
        "threads": before.executable.threads,
        "milliseconds": {"before": comparison.before.median * 1e3, "after": comparison.after.median * 1e3},
        "ratio": comparison.ratio,
        "kept": comparison.is_kept,
        "kernels": [{name: value for name, value in asdict(gain).items() if name != "winners"} for gain in gains],
        "records": str(path),
        "measured": measurer.measured,
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
        analytic = kernel.tuner.analytic_seconds
        gain = "" if analytic is None else f"{analytic / kernel.times[-1]:.2f}"
        tried = str(len(kernel.tuner.history.throughputs))
        table.add_row(kernel.name, str(kernel.weight), tried, f"{kernel.times[-1] * 1e6:.1f}", gain)
    return table


def _show(comparison: _Comparison, gains: "Sequence[Gain]", path: Path, console: Console) -> None:
    table = Table(title="Kernels, microseconds: the analytic model's choice, and what was found")
    for heading in ("kernel", "calls", "tried", "before", "after", "gain"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    for gain in sorted(gains, key=lambda gain: gain.weight * (gain.after_us - gain.before_us)):
        times = (f"{gain.before_us:.1f}", f"{gain.after_us:.1f}", f"{gain.before_us / gain.after_us:.2f}")
        table.add_row(gain.name, str(gain.weight), str(gain.tried), *times)
    console.print(table)
    times = f"{comparison.before.median * 1e3:.3f} ms before, {comparison.after.median * 1e3:.3f} ms after"
    verdict = f"what was found is in {path}, and compile uses it" if comparison.is_kept else "the model's choices stay"
    console.print(f"the whole model: {times}; {verdict}", highlight=False, markup=False, soft_wrap=True)

"""``tilewright tune``: search for faster schedules of a model's kernels by measuring them on this machine.

Results are stored in a database, which ``compile`` reads; a schedule that was measured before, by any search, is not
measured again. At the end, the model is timed with and without the results, in turns. ``compile`` uses them only if the
model is faster with them; a search that is interrupted has no effect.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tilewright.base.errors import BadInput
from tilewright.base.search import Model, Search, Spaces
from tilewright.base.settings import Settings
from tilewright.cli.feeds import make_feeds
from tilewright.cli.options import add_compile_arguments, compiled, refuse_for, seed, settings_of, some_time
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console
from tilewright.measure.turns import Plan, Timing, measure, ratio
from tilewright.runtime.sizing import default_threads

if TYPE_CHECKING:
    from tilewright.measure.records import Records
    from tilewright.measure.row import Record
    from tilewright.model import CompiledModel
    from tilewright.tune.measurer import Measurer
    from tilewright.tune.model_tuner import Computed, Gain, Kernel, ModelTuner, Progress
    from tilewright.tune.strategy import Models, Searches
    from tilewright.tune.ways import WayTuner

_SHOWN = 12
"""Kernels in the live table: those that take most of the time."""
_SECONDS_BETWEEN_LINES = 10.0
_COMPARING = Plan(rounds=24, slot=0.1, rest=0.02, budget=30.0)
"""Many short rounds: few of them contain a change of the machine's clock speed between the two models."""
_MOST = 0.75
"""The fraction of rounds that a model must win to count as faster."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``options``, and those of the search."""
    add_compile_arguments(parser)
    parser.add_argument("--minutes", type=some_time, default=10.0, help="time limit (default: %(default)s)")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the search (default: 0)")
    searches, models = (", ".join(choice.value for choice in kind) for kind in (Search, Model))
    said = f"{searches}, or one that is installed (default: annealing for templates, else evolution)"
    parser.add_argument("--search", metavar="NAME", help=said)
    said = f"what is searched: {', '.join(kind.value for kind in Spaces)} (default: %(default)s)"
    parser.add_argument("--space", choices=[kind.value for kind in Spaces], default=Spaces.TEMPLATES.value, help=said)
    said = f"that the search asks: {models}, or one that is installed (default: %(default)s)"
    parser.add_argument("--cost-model", default=Model.TREES.value, metavar="NAME", help=said)
    said = "do not use the records of similar kernels: the search depends only on the seed"
    parser.add_argument("--no-transfer", action="store_true", help=said)
    parser.add_argument("--quiet", action="store_true", help="do not show progress")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Compile, search, confirm, compare."""
    from tilewright.measure.pool import Pool
    from tilewright.measure.records import Records
    from tilewright.tune.measurer import Measurer

    refuse_for(options, "candidates are measured on CPUs", ("backend",))
    from tilewright.tune.strategy import model_named, search_for, spaces_named

    path = _records(options)
    spaces = spaces_named(options.space)
    who = search_for(options.search, spaces), model_named(options.cost_model)
    errors = plain_console(stderr=True, quiet=options.quiet or options.json)
    with reporting(f"compiling {options.model}", errors) as listener:
        before = compiled(options, listener, replace(Settings.from_environment(), records=None))
    config = {**_config(options), "kernels": _named(before)}
    gc.freeze()  # the model stays alive; exempt it from garbage collection while candidates are scheduled
    with Records.open(path) as records, records.session(config) as session, Pool(default_threads()) as pool:
        measurer = Measurer(pool, records, session)
        try:
            search = _search(before, options, who, records, measurer, errors)
        except KeyboardInterrupt:
            told = f"interrupted; {path} has all that was measured, and the same command goes on from there"
            errors.print(told, soft_wrap=True)
            raise
        comparison = _compared(before, search, records, options)
        _settle(comparison, search, measurer)
    if options.json:
        emit(_report(comparison, before, search, options, path, measurer))
    else:
        _show(comparison, search, path, console)
    return Status.DONE


def _records(options: argparse.Namespace) -> Path:
    from tilewright.measure.records import Records

    path = Settings.from_environment().records if options.records is None else options.records.absolute()
    if path is None:
        raise BadInput("there is no place for what is measured: give --records FILE.db, or set TILEWRIGHT_RECORDS")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{path.parent} can't be made: {error}") from error
    with Records.open(path):  # refuse what can't be written before compiling
        return path


def _config(options: argparse.Namespace) -> Mapping[str, object]:
    return {
        "verb": "tune",
        "model": str(options.model),
        "minutes": options.minutes,
        "seed": options.seed,
        "search": options.search,
        "space": options.space,
        "cost_model": options.cost_model,
    }


def _named(model: "CompiledModel") -> dict[str, object]:
    """The model's names of kernels and their nodes, by the kernels' keys in records."""
    from tilewright.insight.places import sources
    from tilewright.loops.identity import identity
    from tilewright.tune.recorded import named

    return {
        identity(named(kernel.naive)): {
            "name": kernel.program.name,
            "nodes": list(dict.fromkeys(source for group in kernel.groups for source in sources(group))),
        }
        for kernel in model.compiled.kernels
    }


@dataclass(frozen=True, slots=True)
class _Search:
    """Results of the search: algorithms for nodes (None to keep those chosen), and schedules of kernels."""

    ways: "WayTuner | None"
    tuner: "ModelTuner"
    gains: "Sequence[Gain]"


def _search(
    before: "CompiledModel",
    options: argparse.Namespace,
    who: "tuple[Searches, Models]",
    records: "Records",
    measurer: "Measurer",
    console: Console,
) -> _Search:
    """Compare algorithms of nodes, then search for schedules of the resulting kernels until time is over; confirm.

    ``who``: the searcher and the cost model.
    """
    from tilewright.tune.kernel_tuner import Setup
    from tilewright.tune.model_tuner import ModelTuner, between_bytes
    from tilewright.tune.ways import WayTuner

    target, threads = before.options.target, before.executable.threads
    between = between_bytes(_computed(before), target)
    ways = WayTuner(before.compiled.choices, threads, between)
    begin, seconds = time.monotonic(), 60 * options.minutes
    base = before
    if ways.jobs:
        with _Display(console, seconds / 2) as display:
            for done in ways.measure(measurer, display.is_time_left):
                display.say(f"{done} of {len(ways.jobs)} kernels measured, of all ways to compute nodes")
        base = _with_ways(before, ways, records, options)
        seconds -= time.monotonic() - begin
    setup = Setup(
        seed=options.seed,
        threads=threads,
        search=who[0],
        model=who[1],
        spaces=Spaces(options.space),
        transfer=not options.no_transfer,
    )
    tuner = ModelTuner(_computed(base), target, measurer, setup, records)
    if not ways.jobs and not tuner.kernels:
        raise BadInput(f"{options.model} has no kernel with fixed extents and something to choose; give --shape")
    with _Display(console, seconds) as display:
        for progress in tuner.run(display.is_time_left):
            display.show(progress)
    for kernel in tuner.kernels:
        if causes := kernel.tuner.history.causes():
            console.print(f"{kernel.name}: {causes}", highlight=False, markup=False)
    return _Search(None if base is before else ways, tuner, tuner.confirm())


def _computed(model: "CompiledModel") -> "list[Computed]":
    from tilewright.tune.model_tuner import Computed

    return [Computed(kernel.naive, len(kernel.groups), kernel.constants) for kernel in model.compiled.kernels]


def _with_ways(
    before: "CompiledModel", ways: "WayTuner", records: "Records", options: argparse.Namespace
) -> "CompiledModel":
    """The model with measured algorithms and layouts if it is faster with them; else the model as it was."""
    found = tuple(ways.used(records))
    after = _with_records(found, options) if found else before
    if after.compiled.choices.decisions == before.compiled.choices.decisions:
        return before
    return after if _in_turns(before, after).is_kept else before


@dataclass(frozen=True, slots=True)
class Comparison:
    """Times of the whole model with and without the results, measured in turns; ``is_found``: the two differ."""

    before: Timing
    after: Timing
    is_found: bool = True

    @property
    def ratio(self) -> float:
        """The ratio of the two times, per round."""
        return ratio(self.after, self.before) if self.is_found else 1.0

    @property
    def is_kept(self) -> bool:
        """Whether it is faster with the results in three rounds of four.

        By chance, this happens once in a hundred times in 24 rounds, and more often with a model so slow that fewer
        rounds fit into the budget.

        Medians over all runs are not used: if the machine changes its clock speed every few seconds, one median may
        come from slow seconds and the other from fast ones.
        """
        rounds = list(zip(self.after.medians, self.before.medians, strict=True))
        return self.is_found and sum(after < before for after, before in rounds) >= _MOST * len(rounds)


def _compared(before: "CompiledModel", search: _Search, records: "Records", options: argparse.Namespace) -> Comparison:
    """The model as it was, and as it will be if the results are accepted."""
    is_found = search.ways is not None or any(gain.winner is not None for gain in search.gains)
    after = before
    if is_found:
        of_ways = () if search.ways is None else search.ways.used(records)
        after = _with_records((*of_ways, *search.tuner.used(search.gains, records)), options)
    return replace(_in_turns(before, after), is_found=is_found)


def _in_turns(before: "CompiledModel", after: "CompiledModel") -> Comparison:
    timings = measure(_runs(before, after), _COMPARING)
    return Comparison(timings["before"], timings["after"])


def _runs(before: "CompiledModel", after: "CompiledModel") -> dict[str, Callable[[], object]]:
    feeds = make_feeds(before.inputs, {}, 0)
    return {"before": lambda: before.run(None, feeds), "after": lambda: after.run(None, feeds)}


def _settle(comparison: Comparison, search: _Search, measurer: "Measurer") -> None:
    """Accept what makes the model faster and withdraw the rest; algorithms that were not chosen stay held."""
    if not comparison.is_kept:
        search.tuner.withdraw(search.gains)
        return
    search.tuner.accept(search.gains)
    if search.ways is not None:
        search.ways.accept(measurer)


def _with_records(found: "Iterable[Record]", options: argparse.Namespace) -> "CompiledModel":
    """The model compiled with these records and no others."""
    from tilewright.measure.records import Records

    with TemporaryDirectory(prefix="tilewright-tuned-") as folder:
        path = Path(folder) / "draft.db"
        with Records.open(path) as draft, draft.session(_config(options)) as session:
            for record in found:
                draft.add(session, record.job, record.outcome, record.state)
        return compiled(options, settings=replace(settings_of(options), records=path))


def _report(
    comparison: Comparison,
    before: "CompiledModel",
    search: _Search,
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
        "ways": search.ways is not None,
        "kernels": [{name: value for name, value in asdict(gain).items() if name != "winner"} for gain in search.gains],
        "records": str(path),
        "measured": measurer.measured,
    }


class _Display:
    """Progress of the search and its clock: a table on a terminal, else a line every few seconds."""

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

    def say(self, text: str) -> None:
        """Print one line every few seconds."""
        now = time.monotonic()
        if self._live is not None:
            self._live.update(text)
        elif now - self._last > _SECONDS_BETWEEN_LINES:
            self._last = now
            self._console.print(text, highlight=False, markup=False)

    def show(self, progress: "Progress") -> None:
        """Show the state after a round."""
        now = time.monotonic()
        rate, left = progress.measured / (now - self._begin), max(0.0, self._end - now)
        title = f"{progress.measured} measured, {rate:.0f} per second; {left:.0f} s left"
        if self._live is not None:
            self._live.update(_live_table(title, progress.kernels))
        else:
            self.say(f"{progress.kernel}: {title}")


def _live_table(title: str, kernels: "Sequence[Kernel]") -> Table:
    table = Table(title=title)
    for heading in ("kernel", "calls", "tried", "best, us", "gain so far"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    known = [(kernel, seconds) for kernel in kernels if (seconds := kernel.tuner.best_seconds) is not None]
    for kernel, seconds in sorted(known, key=lambda pair: -pair[0].weight * pair[1])[:_SHOWN]:
        analytic = kernel.tuner.analytic_seconds
        gain = "" if analytic is None else f"{analytic / seconds:.2f}"
        tried = str(len(kernel.tuner.history.throughputs))
        table.add_row(kernel.name, str(kernel.weight), tried, f"{seconds * 1e6:.1f}", gain)
    return table


def _show(comparison: Comparison, search: _Search, path: Path, console: Console) -> None:
    table = Table(title="Kernels, microseconds: the analytic choice, and what was found")
    for heading in ("kernel", "calls", "tried", "before", "after", "gain"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    for gain in sorted(search.gains, key=lambda gain: gain.weight * (gain.after_us - gain.before_us)):
        times = (f"{gain.before_us:.1f}", f"{gain.after_us:.1f}", f"{gain.before_us / gain.after_us:.2f}")
        table.add_row(gain.name, str(gain.weight), str(gain.tried), *times)
    console.print(table)
    if search.ways is not None:
        console.print("some nodes are computed in other ways than the analytic choice; see explain", highlight=False)
    times = f"{comparison.before.median * 1e3:.3f} ms before, {comparison.after.median * 1e3:.3f} ms after"
    times += f" ({comparison.ratio:.3f} times as long, in turns)"
    verdict = f"what was found is in {path}, and compile uses it" if comparison.is_kept else "the analytic choices stay"
    console.print(f"the whole model: {times}; {verdict}", highlight=False, markup=False, soft_wrap=True)

"""``tilewright tune``: search for faster schedules of models' kernels by measuring them, here or on a device.

Results are stored in a database, which ``compile`` reads; a schedule that was measured before, by any search, is not
measured again. At the end, each model is timed with and without the results, in turns. ``compile`` uses them only if
the model is faster with them; a search that is interrupted has no effect.
"""

import argparse
import gc
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tilewright.base.errors import BadInput
from tilewright.base.events import Listener
from tilewright.base.names import shown
from tilewright.base.search import Goal, Model, Scheduling, Search, Spaces
from tilewright.base.settings import Settings
from tilewright.cli.fleet_options import (
    SIMULATED,
    add_device,
    fleet_of,
    for_simulation,
    on_device,
    refuse_without_device,
)
from tilewright.cli.options import (
    add_choice,
    add_compile_arguments,
    compiled,
    pairs,
    positive,
    refuse_for,
    seed,
    some_time,
)
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console

if TYPE_CHECKING:
    from tilewright.model import CompiledModel
    from tilewright.networks.network import Untuned
    from tilewright.networks.place import Place
    from tilewright.networks.plan import Plan
    from tilewright.networks.tuning import KernelResult, NetworkResult, Tuned
    from tilewright.tune.model_tuner import Kernel, Progress

_ACCELERATOR = "vta"
"""The back end that is the accelerator."""
_SHOWN = 12
"""Kernels in the live table: those that take most of the time."""
_SECONDS_BETWEEN_LINES = 10.0
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``options``, and those of the search."""
    add_compile_arguments(parser, several=True)
    add_device(parser)
    said = "time limit, for all models together (default: %(default)s)"
    parser.add_argument("--minutes", type=some_time, default=10.0, help=said)
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
    add_choice(parser, "--objective", Goal.SUM, "what is minimized over the models")
    said = "time that is required of a model, with --objective requirements"
    parser.add_argument(
        "--requirement", dest="requirements", action="append", default=[], metavar="MODEL=5ms", help=said
    )
    add_choice(parser, "--scheduler", Scheduling.GRADIENT, "which kernel is searched next")
    said = "stop the search of a kernel after N rounds without a gain (default: never)"
    parser.add_argument("--patience", type=positive, metavar="N", help=said)
    parser.add_argument("--quiet", action="store_true", help="do not show progress")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Compile, search, confirm, compare."""
    if options.accelerator is not None or options.backend.partition(",")[0] == _ACCELERATOR:
        from tilewright.cli.tune_units import execute as tune_units

        return tune_units(options, console)
    refuse_for(options, "candidates are measured on CPUs", ("backend", "library"))
    _refuse_twice(options.models)
    refuse_without_device(options)
    if options.device is None:
        return _tune(options, console)
    if options.device == SIMULATED:
        simulated = for_simulation(options)
        from tilewright.networks.simulated import Simulated

        return _tune(simulated, console, Simulated())
    with fleet_of(options) as fleet:
        from tilewright.networks.device import OnDevice

        place = OnDevice(fleet, options.device, options.priority)
        return _tune(on_device(options, fleet), console, place)


def _tune(options: argparse.Namespace, console: Console, place: "Place | None" = None) -> int:
    from tilewright.networks.place import HERE
    from tilewright.networks.tuning import prepared, tune_networks

    plan = _plan(options)
    path = prepared(_records(options))
    errors = plain_console(stderr=True, quiet=options.quiet or options.json)
    given = zip(options.models, _shapes(options), strict=True)
    networks = [_compiled(model, shapes, options, errors) for model, shapes in given]
    gc.freeze()  # the models stay alive; exempt them from garbage collection while candidates are scheduled
    try:
        with _Display(errors) as display:
            tuned = tune_networks(networks, plan, path, _config(options), display, place or HERE)
    except KeyboardInterrupt:
        told = f"interrupted; {path} has all that was measured, and the same command goes on from there"
        errors.print(told, soft_wrap=True)
        raise
    if options.json:
        emit(_report(tuned, options, path))
    else:
        _show(tuned, path, console)
    return Status.DONE


def _records(options: argparse.Namespace) -> Path:
    path = Settings.from_environment().records if options.records is None else options.records.absolute()
    if path is None:
        raise BadInput("there is no place for what is measured: give --records FILE.db, or set TILEWRIGHT_RECORDS")
    return path


def _refuse_twice(models: Sequence[Path]) -> None:
    for place, model in enumerate(models):
        if model in models[:place]:
            raise BadInput(f"{model} is given twice: name each model once")


def _plan(options: argparse.Namespace) -> "Plan":
    """What is asked for. Raises ``BadInput`` for what does not go together, and for names that nobody has."""
    from tilewright.networks.plan import Plan
    from tilewright.tune.strategy import model_named, search_for, spaces_named

    spaces = spaces_named(options.space)
    return Plan(
        minutes=options.minutes,
        search=search_for(options.search, spaces),
        model=model_named(options.cost_model),
        spaces=spaces,
        seed=options.seed,
        transfer=not options.no_transfer,
        goal=Goal(options.objective),
        requirements=_requirements(options),
        scheduling=Scheduling(options.scheduler),
        patience=options.patience,
    )


def _requirements(options: argparse.Namespace) -> tuple[float, ...]:
    """Seconds of each model, in order; none if none are given. Raises ``BadInput`` if some models have none."""
    given = pairs("--requirement", options.requirements, _seconds)
    models = list(map(str, options.models))
    if unknown := [name for name in given if name not in models]:
        raise BadInput(f"--requirement names {shown(unknown[0])}; the models are {', '.join(models)}")
    if given and (missing := [model for model in models if model not in given]):
        raise BadInput(f"no time is required of {missing[0]}: give --requirement {missing[0]}=5ms")
    return tuple(given[model] for model in models if given)


def _seconds(text: str) -> float:
    """``5ms``, ``0.5s`` or ``800us``. Raises ``BadInput``."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(us|ms|s)", text)
    if found is None or not float(found[1]):
        raise BadInput(f"--requirement ...={shown(text)}: write a time above 0, such as 5ms, 800us or 0.5s")
    return float(found[1]) * _UNITS[found[2]]


def _compiled(model: Path, shapes: list[str], options: argparse.Namespace, errors: Console) -> "Untuned":
    from tilewright.networks.network import Network, Untuned

    own = argparse.Namespace(**{**vars(options), "model": model, "shapes": shapes})

    def compile_it(settings: Settings, listener: Listener) -> "CompiledModel":
        return compiled(own, listener, settings)

    with reporting(f"compiling {model}", errors) as listener:
        return Untuned.of(Network(str(model), compile_it), listener)


def _shapes(options: argparse.Namespace) -> list[list[str]]:
    """Of each model: of several, each gets those of its inputs. Raises ``BadInput`` for an input that no model has."""
    if len(options.models) == 1 or not options.shapes:
        return [options.shapes for _ in options.models]
    from tilewright.frontend.opening import opened

    inputs = [{value.name for value in opened(model).inputs({})} for model in options.models]
    named = {text: text.rpartition("=")[0] for text in options.shapes}
    for text, name in named.items():
        if not any(name in of_model for of_model in inputs):
            raise BadInput(f"--shape {text}: no model has an input {shown(name)}")
    return [[text for text, name in named.items() if name in of_model] for of_model in inputs]


def _config(options: argparse.Namespace) -> dict[str, object]:
    """What records tell of a session."""
    names = ("device", "minutes", "seed", "search", "space", "cost_model", "objective", "scheduler", "patience")
    models = list(map(str, options.models))
    return {"verb": "tune", "models": models, **{name: getattr(options, name) for name in names}}


def _report(tuned: "Tuned", options: argparse.Namespace, path: Path) -> dict[str, object]:
    beside = {"threads": tuned.threads, "records": str(path), "measured": tuned.measured, "simulated": tuned.simulated}
    if len(tuned.networks) == 1:
        return {**_of_network(tuned.networks[0]), **beside}
    networks = [_of_network(network) for network in tuned.networks]
    return {"networks": networks, "objective": options.objective, "scheduler": options.scheduler, **beside}


def _of_network(network: "NetworkResult") -> dict[str, object]:
    comparison = network.comparison
    return {
        "model": network.name,
        "milliseconds": {"before": comparison.before.median * 1e3, "after": comparison.after.median * 1e3},
        "ratio": comparison.ratio,
        "kept": network.is_kept,
        "ways": network.ways,
        "kernels": [_of_kernel(kernel) for kernel in network.kernels],
    }


def _of_kernel(kernel: "KernelResult") -> dict[str, object]:
    told = asdict(kernel)
    told["used"] = told.pop("is_used")
    return told


class _Display:
    """Progress of the search: a table on a terminal, else a line every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin = self._last = time.monotonic()
        self._live = Live(console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> "_Display":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print one line every few seconds."""
        now = time.monotonic()
        if self._live is not None:
            self._live.update(text)
        elif now - self._last > _SECONDS_BETWEEN_LINES:
            self._last = now
            self._console.print(text, highlight=False, markup=False)

    def show(self, progress: "Progress", seconds_left: float) -> None:
        """Show the state after a round."""
        rate = progress.measured / (time.monotonic() - self._begin)
        title = f"{progress.measured} measured, {rate:.0f} per second; {max(0.0, seconds_left):.0f} s left"
        if self._live is not None:
            self._live.update(_live_table(title, progress.kernels))
        else:
            self.say(f"{progress.kernel}: {title}")

    def warn(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False)


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


@dataclass(frozen=True, slots=True)
class _Units:
    """What times are of kernels, and of models."""

    kernels: str
    models: str


_TIME_UNITS = _Units("microseconds", "ms")
_SIMULATED_UNITS = _Units("thousands of simulated cycles", "million simulated cycles")


def _show(tuned: "Tuned", path: Path, console: Console) -> None:
    units = _SIMULATED_UNITS if tuned.simulated else _TIME_UNITS
    if tuned.simulated:
        console.print(f"Cycles are simulated: {tuned.simulated}", highlight=False)
    for network in tuned.networks:
        title = f"Kernels, {units.kernels}: the analytic choice, and what was found"
        console.print(_table(title if len(tuned.networks) == 1 else f"{network.name}: {title.lower()}", network))
        for line in _told(network, path, units, is_alone=len(tuned.networks) == 1):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def _table(title: str, network: "NetworkResult") -> Table:
    table = Table(title=title)
    for heading in ("kernel", "calls", "tried", "before", "after", "gain"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    for kernel in sorted(network.kernels, key=lambda kernel: kernel.weight * (kernel.after_us - kernel.before_us)):
        times = (f"{kernel.before_us:.1f}", f"{kernel.after_us:.1f}", f"{kernel.before_us / kernel.after_us:.2f}")
        table.add_row(kernel.name, str(kernel.weight), str(kernel.tried), *times)
    return table


def _told(network: "NetworkResult", path: Path, units: _Units, *, is_alone: bool) -> Iterable[str]:
    """What became of a network."""
    comparison = network.comparison
    if network.ways:
        yield "some nodes are computed in other ways than the analytic choice; see explain"
    before, after = (f"{timing.median * 1e3:.3f} {units.models}" for timing in (comparison.before, comparison.after))
    times = f"{before} before, {after} after"
    times += f" ({comparison.ratio:.3f} times as long, in turns)"
    shared = sum(kernel.is_used for kernel in network.kernels)
    if network.is_kept:
        verdict = f"what was found is in {path}, and compile uses it"
    elif shared:
        verdict = f"the analytic choices stay, but in {shared} of these kernels, by which other models are faster"
    else:
        verdict = "the analytic choices stay"
    yield f"{'the whole model' if is_alone else network.name}: {times}; {verdict}"

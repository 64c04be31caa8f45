"""``tilewright tune --accelerator``: the layers of a quantized model, by the cycles of the accelerator's simulator."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tilewright.base.errors import BadInput
from tilewright.base.settings import Settings
from tilewright.cli.options import refuse_for, shapes
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console

if TYPE_CHECKING:
    from tilewright.offload.tuned import Plan, TunedUnit

_ELSEWHERE = ("device", "requirements", "patience", "bounds", "isolate")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Tune each form of the units of one model; show cycles before and after."""
    from tilewright.frontend.opening import opened
    from tilewright.offload.accelerator import Accelerator
    from tilewright.offload.tuned import tune_units

    refuse_for(options, "cycles of the accelerator are simulated here, for one model", _ELSEWHERE)
    if len(options.models) > 1:
        raise BadInput(f"--accelerator tunes one model at a time, not {len(options.models)}")
    (model,) = options.models
    words = options.backend if options.accelerator is None else options.accelerator
    accelerator, path = Accelerator.named(words), _records(options)
    graph = opened(model).load(shapes(options.shapes), {}, Settings.from_environment().model_bytes)
    errors = plain_console(stderr=True, quiet=options.quiet or options.json)
    with reporting(f"tuning {model}", errors):
        found = list(tune_units(graph, accelerator, _plan(options), path))
    if options.json:
        told = {"model": str(model), "accelerator": words, "records": str(path)}
        emit({**told, "units": [asdict(unit) for unit in found]})
        return Status.DONE
    console.print(_table(found))
    console.print(f"{path} has the schedules: --accelerator {words},{path} uses them", highlight=False, soft_wrap=True)
    return Status.DONE


def _records(options: argparse.Namespace) -> Path:
    """A file of its own: records of processors are others."""
    from tilewright.offload.accelerator import RECORDS

    if options.records is None or options.records.suffix != RECORDS:
        raise BadInput(f"--accelerator keeps what it finds in a file of its own: give --records FILE{RECORDS}")
    path: Path = options.records
    return path


def _plan(options: argparse.Namespace) -> "Plan":
    from tilewright.offload.tuned import Plan
    from tilewright.tune.strategy import model_named, search_for, spaces_named

    spaces = spaces_named(options.space)
    search = search_for(options.search, spaces)
    return Plan(options.minutes, spaces, search, model_named(options.cost_model), options.seed)


def _table(found: "Sequence[TunedUnit]") -> Table:
    table = Table()
    table.add_column("unit")
    for heading in ("calls", "tried", "untuned", "cycles", "gain"):
        table.add_column(heading, justify="right")
    for unit in found:
        before = "" if unit.analytic is None else f"{unit.analytic:,}"
        gain = "" if unit.analytic is None else f"{unit.analytic / unit.cycles:.2f}"
        table.add_row(unit.place, str(unit.calls), str(unit.tried), before, f"{unit.cycles:,}", gain)
    total, untuned = (sum(unit.calls * n for unit, n in zip(found, own, strict=True)) for own in _cycles(found))
    table.add_row(
        "all", str(sum(unit.calls for unit in found)), "", f"{untuned:,}", f"{total:,}", f"{untuned / total:.2f}"
    )
    return table


def _cycles(found: "Sequence[TunedUnit]") -> tuple[list[int], list[int]]:
    """The fewest cycles, and those of the untuned choice, of each form."""
    return [unit.cycles for unit in found], [unit.analytic or unit.cycles for unit in found]

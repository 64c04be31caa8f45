"""``tilewright profile``: the time of each kernel, compared with the machine's peak."""

import argparse
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from tilewright.base.errors import BadInput
from tilewright.base.outputs import check_output, output
from tilewright.cli.feeds import make_feeds
from tilewright.cli.fleet_options import add_device
from tilewright.cli.options import add_model_arguments, duration, files
from tilewright.cli.output import emit
from tilewright.cli.places import placed
from tilewright.cli.progress import reporting
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``options``, and what to show."""
    add_model_arguments(parser)
    add_device(parser)
    parser.add_argument("--by-kernel", action="store_true", help="one row per kernel, the longest time first")
    parser.add_argument("--steps", action="store_true", help="show the steps of each kernel's schedule")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write the times of some runs, by thread, for chrome://tracing"
    )
    parser.add_argument(
        "--seconds", type=duration, default=1.0, metavar="S", help="how long to measure (default: %(default)s)"
    )
    parser.add_argument("--no-roofs", action="store_true", help="do not measure this machine's peaks")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Compile or load, measure, report."""
    from tilewright.insight.trace import trace

    if options.trace is not None:
        if options.device is not None:
            raise BadInput("--trace shows threads of this machine: leave it or --device out")
        check_output(options.trace, [options.model])
    opened = ExitStack()
    with reporting(f"loading {options.model}", plain_console(stderr=True, quiet=options.json)) as listener:
        place = opened.enter_context(placed(options, listener))
    with opened:
        model = place.model
        feeds = make_feeds(model.inputs, files(options.inputs), options.random_seed)
        found = place.profile(feeds, options.seconds, roofs=not options.no_roofs)
    if options.trace is not None:
        _write(trace(model.executable, feeds, [row.nodes for row in found.kernels]), options.trace, options.model)
    if options.by_kernel:
        found = found.by_kernel()
    if options.json:
        emit({"model": str(options.model), "device": place.device(), **found.to_json()})
    else:
        found.show(options.steps, console)
        if place.simulated:
            said = "microseconds are thousands of simulated cycles; those around kernels wait for caches, too"
            console.print(f"{said}: {place.simulated}", highlight=False, soft_wrap=True)
    return Status.DONE


def _write(made: Mapping[str, object], path: Path, model: Path) -> None:
    with output(path, [model]) as file:
        file.write(json.dumps(made).encode())

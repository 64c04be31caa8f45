"""``tilewright profile``: the time of each kernel, compared with the machine's peak."""

import argparse

from rich.console import Console

from tilewright.cli.feeds import make_feeds
from tilewright.cli.options import add_model_arguments, duration, files, loaded
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``options``, and what to show."""
    add_model_arguments(parser)
    parser.add_argument("--by-kernel", action="store_true", help="one row per kernel, the longest time first")
    parser.add_argument("--trace", action="store_true", help="show the steps of each kernel's schedule")
    parser.add_argument(
        "--seconds", type=duration, default=1.0, metavar="S", help="how long to measure (default: %(default)s)"
    )
    parser.add_argument("--no-roofs", action="store_true", help="do not measure this machine's peaks")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Compile or load, measure, report."""
    from tilewright.api import CompiledModel
    from tilewright.insight.profile import profile

    with reporting(f"loading {options.model}", plain_console(stderr=True, quiet=options.json)) as listener:
        model = loaded(options, listener)
    feeds = make_feeds(model.inputs, files(options.inputs), options.random_seed)
    if isinstance(model, CompiledModel):
        found = model.profile(feeds, seconds=options.seconds, roofs=not options.no_roofs)
    else:  # an artifact has code but no loops to count the work of
        found = profile(model.executable, feeds, seconds=options.seconds)
    if options.by_kernel:
        found = found.by_kernel()
    if options.json:
        emit({"model": str(options.model), **found.to_json()})
    else:
        found.show(options.trace, console)
    return Status.DONE

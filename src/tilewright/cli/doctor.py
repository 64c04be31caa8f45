"""``tilewright doctor``: measured facts of this machine and installation, with warnings and remedies."""

import argparse

from rich.console import Console

from tilewright.base.settings import Settings
from tilewright.cli.output import emit
from tilewright.cli.status import Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure, and the form of the output."""
    measured = parser.add_mutually_exclusive_group()
    measured.add_argument("--no-measure", action="store_true", help="do not measure peaks (about two seconds)")
    text = "also measure the cost model's machine parameters (under a minute), and save them for the compiler"
    measured.add_argument("--measure", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Examine, report."""
    from tilewright.insight.doctor import examine

    found = examine(Settings.from_environment(), measure=not options.no_measure, keep_figures=options.measure)
    if options.json:
        emit(found.to_json())
    else:
        found.show(console)
    return Status.DONE

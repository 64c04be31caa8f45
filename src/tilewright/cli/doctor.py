"""``tilewright doctor``: this machine and this installation, measured, with warnings and remedies."""

import argparse

from rich.console import Console

from tilewright.base.settings import Settings
from tilewright.cli.output import emit
from tilewright.cli.status import Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whether to measure, and the form of the output."""
    parser.add_argument("--no-measure", action="store_true", help="only read facts; measuring takes about two seconds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Examine, report."""
    from tilewright.insight.doctor import examine

    found = examine(Settings.from_environment(), measure=not options.no_measure)
    if options.json:
        emit(found.to_json())
    else:
        found.show(console)
    return Status.DONE

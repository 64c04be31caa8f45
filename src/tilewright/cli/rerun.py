"""``tilewright rerun``: run a bundle that ``repro`` packed; it compiles the model and executes nothing else."""

import argparse
from pathlib import Path

from rich.console import Console

from tilewright.cli.output import emit
from tilewright.cli.status import Status
from tilewright.insight.console import plain_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which bundle."""
    parser.add_argument("bundle", type=Path, metavar="FOLDER", help="a bundle, unpacked")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Run, report; the exit status says whether the results differ."""
    from tilewright.insight.rerun import rerun

    agrees = rerun(options.bundle, plain_console(quiet=True) if options.json else console)
    if options.json:
        emit({"bundle": str(options.bundle), "agree": agrees})
    return Status.DONE if agrees else Status.DIFFERENT

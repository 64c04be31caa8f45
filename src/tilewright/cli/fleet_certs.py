"""``tilewright fleet certs``: certificates for the members of a fleet."""

import argparse
from pathlib import Path

from rich.console import Console

from tilewright.cli.options import positive
from tilewright.cli.output import emit
from tilewright.cli.status import Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where, and for whom."""
    said = "private folder of the fleet's authority; it is made if it is missing"
    parser.add_argument("folder", type=Path, metavar="FOLDER", help=said)
    parser.add_argument("names", nargs="+", metavar="NAME", help="a scheduler, device or user: FOLDER/NAME is for it")
    parser.add_argument("--days", type=positive, default=365, help="how long they are valid (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Make them."""
    from tilewright.fleet.certificates import make_certificates

    made = make_certificates(options.folder, options.names, options.days)
    if options.json:
        emit({"action": "certs", "authority": str(options.folder), "certificates": list(map(str, made))})
    else:
        for folder in made:
            console.print(
                f"{folder}: copy it to where it is used, and give it by --tls", soft_wrap=True, highlight=False
            )
    return Status.DONE

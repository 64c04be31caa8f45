"""``tilewright fleet serve``: the scheduler of a fleet, until it is interrupted."""

import argparse
import asyncio

from rich.console import Console

from tilewright.cli.fleet_options import access_of, add_address, silence
from tilewright.cli.options import some_time
from tilewright.cli.status import Status

MOST_LEASE = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to listen, and how long a lease lasts."""
    add_address(parser, "--listen")
    said = "longest lease of a device (default: %(default)s)"
    parser.add_argument("--most-seconds", type=some_time, default=MOST_LEASE, metavar="SECONDS", help=said)


def execute(options: argparse.Namespace, console: Console) -> int:
    """Serve."""
    from tilewright.fleet.scheduler import serve

    silence()

    def ready(address: str) -> None:
        console.print(f"serving at {address}", highlight=False, soft_wrap=True)

    asyncio.run(serve(access_of(options), options.most_seconds, ready))
    return Status.DONE

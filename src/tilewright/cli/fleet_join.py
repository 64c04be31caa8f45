"""``tilewright fleet join``: this machine as a device of a fleet, until it is interrupted."""

import argparse
import asyncio
import platform
from pathlib import Path
from tempfile import gettempdir

from rich.console import Console

from tilewright.base.errors import BadInput
from tilewright.base.files import own_folder, reason
from tilewright.base.settings import Settings
from tilewright.cli.fleet_options import access_of, add_address, silence
from tilewright.cli.options import size
from tilewright.cli.status import Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which fleet, and what the device is called."""
    add_address(parser)
    parser.add_argument("--name", default=platform.node(), help="its name (default: that of this machine, %(default)s)")
    said = "name that it shares with all devices of its kind (default: that of the processor)"
    parser.add_argument("--key", metavar="KEY", help=said)
    said = "address of this machine at which the scheduler reaches it (default: that of its network)"
    parser.add_argument("--host", metavar="HOST", help=said)
    said = "private folder for what it is sent (default: beside the cache of compiled code)"
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help=said)
    said = "memory that a measured kernel may use (default: 4GiB)"
    parser.add_argument("--kernel-memory", type=size, metavar="SIZE", help=said)


def execute(options: argparse.Namespace, console: Console) -> int:
    """Join, and stay."""
    from tilewright.fleet.device import Device
    from tilewright.fleet.inventory import Inventory
    from tilewright.fleet.join import join
    from tilewright.measure.limits import Limits

    silence()
    limits = Limits() if options.kernel_memory is None else Limits(memory_bytes=options.kernel_memory)
    inventory = Inventory.of_this_machine(options.name, options.key)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    device = Device(_folder(options.folder), limits)
    asyncio.run(join(access_of(options), inventory, device, say, options.host))
    return Status.DONE


def _folder(given: Path | None) -> Path:
    """Raises ``BadInput`` if others could write to it: code is run from it."""
    cache = Settings.from_environment().cache_dir
    usual = Path(gettempdir(), "tilewright-fleet") if cache is None else cache.with_name(f"{cache.name}-fleet")
    folder = (given or usual).absolute()
    try:
        fault = own_folder(folder)
    except OSError as error:
        fault = reason(error)
    if fault is not None:
        raise BadInput(f"--folder {folder}: {fault}")
    return folder

"""``tilewright fleet join``: this machine as a device of a fleet, until it is interrupted.

Or what this machine has: an emulator of a processor (``--emulate``), or a board without Python (``--agent``).
"""

import argparse
import asyncio
import platform
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from rich.console import Console

from tilewright.base.errors import BadInput
from tilewright.base.files import own_folder, reason
from tilewright.base.settings import Settings
from tilewright.cli.fleet_options import access_of, add_address, require_simulation, silence
from tilewright.cli.options import size
from tilewright.cli.status import Status
from tilewright.target.target import Target

if TYPE_CHECKING:
    from tilewright.fleet.inventory import Inventory
    from tilewright.fleet.ways import Way


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
    kind = parser.add_mutually_exclusive_group()
    said = "be an emulator of this AArch64 target, which tells simulated cycles in place of times"
    kind.add_argument("--emulate", metavar="TARGET", help=said)
    said = (
        "be the board that this command leads to, on which it starts what tilewright fleet agent made; needs --target"
    )
    kind.add_argument("--agent", metavar="COMMAND", help=said)
    parser.add_argument("--target", metavar="TARGET", help="of the board that --agent leads to")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Join, and stay."""
    from tilewright.fleet.device import Device
    from tilewright.fleet.join import join

    silence()
    inventory, way = _kind(options)
    if options.kernel_memory is not None:
        way = way.with_memory(options.kernel_memory)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    device = Device(_folder(options.folder), way)
    asyncio.run(join(access_of(options), inventory, device, say, options.host))
    return Status.DONE


def _kind(options: argparse.Namespace) -> "tuple[Inventory, Way]":
    """What it is, and how it does what it is asked for.

    Raises ``BadInput``, ``Unsupported`` for a target, ``MeasureError`` if the board does not do what it should.
    """
    from tilewright.fleet.inventory import Inventory
    from tilewright.fleet.ways import NATIVE, SIMULATED, by_agent

    if (options.target is None) is not (options.agent is None):
        raise BadInput("--agent leads to a board, and --target says what that is: give both, or neither")
    if options.emulate is not None:
        require_simulation()
        return Inventory.emulated(options.name, options.key, Target.parse(options.emulate)), SIMULATED
    if options.agent is None:
        return Inventory.of_this_machine(options.name, options.key), NATIVE
    from tilewright.measure.agent import Agent
    from tilewright.measure.agent_trial import check

    agent, target = Agent.parse(options.agent), Target.parse(options.target)
    inventory = Inventory.behind_agent(options.name, options.key, target)
    check(agent, target)
    return inventory, by_agent(agent)


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

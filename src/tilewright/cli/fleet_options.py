"""Arguments of verbs that use a fleet, and the fleet that they name."""

import argparse
import logging
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.errors import BadInput, Unsupported
from tilewright.simulation.cores import core_of
from tilewright.target.target import Target

if TYPE_CHECKING:
    from tilewright.fleet.access import Access
    from tilewright.fleet.fleet import Fleet

SIMULATED = "simulated"
"""In place of a device: cycles of the target are simulated here."""
LOCAL = "tcp://127.0.0.1:8790"
"""The address of a fleet by default."""


def add_address(parser: argparse.ArgumentParser, name: str = "--fleet") -> None:
    """Declare the address of a fleet, and certificates."""
    said = "address of the fleet's scheduler: tls://HOST:PORT, or tcp:// on this machine (default: %(default)s)"
    parser.add_argument(name, dest="fleet", default=LOCAL, metavar="ADDRESS", help=said)
    said = "folder with a certificate that tilewright fleet certs made; needed for tls://"
    parser.add_argument("--tls", type=Path, metavar="FOLDER", help=said)
    said = "allow tcp:// to other machines: whoever reaches the scheduler can run any code on all devices"
    parser.add_argument("--insecure", action="store_true", help=said)


def add_device(parser: argparse.ArgumentParser) -> None:
    """Declare the device that a verb uses in place of this machine."""
    said = "run and measure on a device of a fleet, named by its name or key, in place of this machine"
    said += "; simulated: count cycles of an AArch64 --target in an emulator (bench, tune)"
    parser.add_argument("--device", metavar="KEY", help=said)
    add_address(parser)
    said = "of two requests for a device, that with the greater priority comes first (default: %(default)s)"
    parser.add_argument("--priority", type=int, default=0, metavar="N", help=said)
    said = "how long to wait for a free device (default: as long as it takes)"
    parser.add_argument("--wait", type=float, metavar="SECONDS", help=said)


def access_of(options: argparse.Namespace) -> "Access":
    """What ``add_address`` declares. Raises ``BadInput``."""
    from tilewright.fleet.access import Access, Address

    return Access(Address.parse(options.fleet), options.tls, options.insecure)


@contextmanager
def fleet_of(options: argparse.Namespace) -> "Generator[Fleet]":
    """A context manager: the fleet that the options name. Raises ``FleetError``, ``FleetAuthError``, ``BadInput``."""
    try:
        from tilewright.fleet.fleet import Fleet
    except ImportError as error:
        raise Unsupported(f'a fleet needs {error.name}: pip install "tilewright[fleet]"') from error
    silence()
    with Fleet.connect(access_of(options)) as fleet:
        yield fleet


def on_device(options: argparse.Namespace, fleet: "Fleet") -> argparse.Namespace:
    """The options with which models are compiled for the device: its target, and at most its processors.

    Raises ``BadInput`` if the devices of this name differ, or ``--target`` is that of another device.
    """
    target = str(fleet.target(options.device))
    if options.target not in ("host", target):
        raise BadInput(f"the target of {options.device} is {target}: leave --target out")
    threads = min(options.threads, fleet.cores(options.device))
    return argparse.Namespace(**{**vars(options), "target": target, "threads": threads})


def silence() -> None:
    """Let Dask's own messages be: what users should know is said in ours."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)


def refuse_without_device(options: argparse.Namespace) -> None:
    """Raises ``BadInput`` for options of a fleet where no device is asked for."""
    given = _fleet_options(options)
    if options.device is None and given:
        raise BadInput(f"--{given[0]} says how to reach a device: give --device KEY, too, or leave it out")


def for_simulation(options: argparse.Namespace) -> argparse.Namespace:
    """The options with which models are compiled whose cycles are simulated: one thread.

    Raises ``BadInput`` for options of a fleet, ``Unsupported`` for a target that can't be simulated, or without the
    packages that this needs.
    """
    if given := _fleet_options(options):
        raise BadInput(f"--{given[0]} says how to reach a device, and --device {SIMULATED} is none: leave it out")
    core_of(Target.parse(options.target))
    require_simulation()
    return argparse.Namespace(**{**vars(options), "threads": 1})


def require_simulation() -> None:
    """Raises ``Unsupported`` without the packages that simulated cycles need."""
    if missing := [name for name in ("unicorn", "capstone") if find_spec(name) is None]:
        raise Unsupported(f'simulated cycles need {missing[0]}: pip install "tilewright[simulation]"')


def _fleet_options(options: argparse.Namespace) -> list[str]:
    """Those that are given."""
    return [
        name
        for name, usual in (("fleet", LOCAL), ("tls", None), ("priority", 0), ("wait", None))
        if getattr(options, name) != usual
    ]

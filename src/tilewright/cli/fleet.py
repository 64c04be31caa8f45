"""``tilewright fleet``: devices elsewhere: the scheduler, the devices, their state, certificates."""

import argparse
from importlib.util import find_spec

from rich.console import Console

from tilewright.base.errors import Unsupported
from tilewright.cli import fleet_agent, fleet_certs, fleet_doctor, fleet_join, fleet_serve, fleet_status

_ACTIONS = {
    "serve": (fleet_serve, "run the scheduler, which leases devices"),
    "join": (fleet_join, "make this machine a device"),
    "status": (fleet_status, "show devices, and who waits for them"),
    "certs": (fleet_certs, "make certificates for the scheduler, devices and users"),
    "agent": (fleet_agent, "write the program for a board without Python"),
    "doctor": (fleet_doctor, "find what stands in the way"),
}
_NEEDED = ("cryptography", "distributed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", help=", ".join(_ACTIONS))
    for name, (module, meaning) in _ACTIONS.items():
        module.add_arguments(actions.add_parser(name, help=meaning, description=f"{meaning.capitalize()}."))


def execute(options: argparse.Namespace, console: Console) -> int:
    """Run the action."""
    missing = next((name for name in _NEEDED if find_spec(name) is None), None)
    if missing is not None:
        raise Unsupported(f'a fleet needs {missing}: pip install "tilewright[fleet]"')
    module, _ = _ACTIONS[options.action]
    return module.execute(options, console)

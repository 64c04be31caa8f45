"""``tilewright accelerator``: configurations of the accelerator: area, hardware, the best one for a network."""

import argparse

from rich.console import Console

from tilewright.cli import accelerator_area, accelerator_search, accelerator_synthesize

_ACTIONS = {
    "area": (accelerator_area, "estimate what a configuration takes of an FPGA, without tools"),
    "synthesize": (accelerator_synthesize, "synthesize a configuration by Yosys; place and route it by nextpnr"),
    "search": (accelerator_search, "search for the configuration with which a network takes least time"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", help=", ".join(_ACTIONS))
    for name, (module, meaning) in _ACTIONS.items():
        module.add_arguments(actions.add_parser(name, help=meaning, description=f"{meaning.capitalize()}."))


def execute(options: argparse.Namespace, console: Console) -> int:
    """Run the action."""
    module, _ = _ACTIONS[options.action]
    return module.execute(options, console)

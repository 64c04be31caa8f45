"""``tilewright accelerator synthesize``: a configuration as cells of an FPGA, placed and routed on a chip."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console

from tilewright.cli.accelerator_options import add_design, add_family, design_of, family_of
from tilewright.cli.output import emit
from tilewright.cli.status import Status

if TYPE_CHECKING:
    from tilewright.backend.vta.synthesis.routed import Routed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which configuration, of what it is made, and where it is placed."""
    add_design(parser, "config")
    add_family(parser)
    said = (
        "place and route it on a chip, and show the clock that it allows: ecp5 has 25k, 45k and 85k, ice40 up5k, hx8k"
    )
    parser.add_argument("--chip", metavar="NAME", help=said)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Run the tools, and show what they say."""
    from tilewright.backend.vta.synthesis.routed import routed
    from tilewright.backend.vta.synthesis.synthesized import synthesized

    design, family = design_of(options.config, options.bus), family_of(options.family)
    chip = None if options.chip is None else family.chip(options.chip)
    made = synthesized(design, family)
    placed = None if chip is None else routed(design, family, chip)
    if options.json:
        told = {"action": "synthesize", "config": design.config.name, "bus_bytes": design.bus_bytes}
        told |= {"family": family.name, **asdict(made.area), "levels": made.levels}
        emit({**told, "routed": None if placed is None else _told(placed)})
        return Status.DONE
    console.print(f"{design.config.name} on {family.name}: {made.area}", highlight=False)
    console.print(f"longest path: {made.levels} levels", highlight=False)
    if placed is not None:
        console.print(f"on {placed.chip.name}, between two pins: {placed.area}", highlight=False)
        console.print(f"longest path: {placed.nanoseconds:.1f} ns, so {placed.megahertz:.1f} MHz", highlight=False)
        console.print(f"from {placed.path[0]} to {placed.path[1]}", highlight=False, markup=False, soft_wrap=True)
    return Status.DONE


def _told(placed: "Routed") -> dict[str, object]:
    begin, end = placed.path
    own = {"chip": placed.chip.name, "megahertz": placed.megahertz, "begin": begin, "end": end}
    return {**own, **asdict(placed.area)}

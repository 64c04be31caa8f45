"""``tilewright accelerator area``: what a configuration takes of an FPGA, by the fitted model."""

import argparse
from dataclasses import asdict

from rich.console import Console

from tilewright.cli.accelerator_options import add_design, add_family, design_of, family_of
from tilewright.cli.output import emit
from tilewright.cli.status import Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which configuration, and of what it is made."""
    add_design(parser, "config")
    add_family(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace, console: Console) -> int:
    """Estimate, and show."""
    from tilewright.backend.vta.synthesis.estimate import estimated

    design, family = design_of(options.config, options.bus), family_of(options.family)
    area = estimated(design, family)
    if options.json:
        told = {"action": "area", "config": design.config.name, "bus_bytes": design.bus_bytes, "family": family.name}
        emit({**told, **asdict(area)})
    else:
        console.print(f"{design.config.name} on {family.name}: about {area}", highlight=False)
        fitting = [chip.name for chip in family.chips if area.fits(chip.area)]
        console.print(f"chips: {', '.join(fitting) if fitting else 'none has room'}", highlight=False)
    return Status.DONE

"""Arguments of actions on configurations of the accelerator."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.errors import BadInput
from tilewright.base.names import shown
from tilewright.cli.options import positive

if TYPE_CHECKING:
    from tilewright.backend.vta.config_file import Design
    from tilewright.backend.vta.synthesis.families import Family

ECP5 = "ecp5"


def add_design(parser: argparse.ArgumentParser, name: str, usual: str | None = None) -> None:
    """Declare a configuration; ``usual``: of an option, its default."""
    said = "a configuration: osdi, vta, large, tiny, or a file that accelerator search wrote"
    if usual is not None:
        said += f" (default: {usual})"
    parser.add_argument(name, metavar="CONFIG", default=usual, help=said)


def add_family(parser: argparse.ArgumentParser) -> None:
    """Declare the family of FPGAs, and the width of device memory."""
    parser.add_argument("--family", default=ECP5, metavar="NAME", help="family of FPGAs: ecp5 or ice40 (default: ecp5)")
    said = "bytes of device memory in a cycle (default: those of the configuration, 8 for presets)"
    parser.add_argument("--bus", type=positive, metavar="N", help=said)


def design_of(text: str, bus_bytes: int | None = None) -> "Design":
    """The configuration that a word or a file names. Raises ``BadInput``."""
    from tilewright.backend.vta.config import PRESETS, TINY
    from tilewright.backend.vta.config_file import SUFFIX, Design, read_config

    known = {**PRESETS, TINY.name: TINY}
    if text in known:
        found = Design(known[text])
    elif text.endswith(SUFFIX):
        found = read_config(Path(text))
    else:
        raise BadInput(f"{shown(text)} is no configuration: give one of {', '.join(known)}, or a file *{SUFFIX}")
    return found if bus_bytes is None else replace(found, bus_bytes=bus_bytes)


def family_of(name: str) -> "Family":
    """The family of a name. Raises ``BadInput``."""
    from tilewright.backend.vta.synthesis.families import FAMILIES

    if name not in FAMILIES:
        raise BadInput(f"--family {shown(name)}: choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]

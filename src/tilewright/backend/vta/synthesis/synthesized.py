"""Synthesis by Yosys: the cells of a configuration on a family of FPGAs, and their longest path, in levels."""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.backend.vta.config_file import Design
from tilewright.backend.vta.synthesis.area import Area
from tilewright.backend.vta.synthesis.families import Family
from tilewright.backend.vta.synthesis.levels import levels
from tilewright.backend.vta.synthesis.tools import required, run
from tilewright.base import fields
from tilewright.base.errors import Unsupported

TOP = "accelerator"
NETLIST = "netlist.json"
_COUNTS = "cells.json"


@dataclass(frozen=True, slots=True)
class Synthesized:
    """What Yosys made of a configuration."""

    design: Design
    family: Family
    area: Area
    levels: int
    """Look-up tables, adders and multipliers that the longest path between flip-flops or memories goes through."""


def synthesized(design: Design, family: Family) -> Synthesized:
    """The cells of the accelerator alone. Raises ``BadInput`` as ``rtl.verilog``, ``Unsupported`` without Yosys."""
    required("yosys")
    with TemporaryDirectory(prefix="tilewright-synthesis-") as folder:
        return synthesize(design, family, _verilog(design), Path(folder))


def _verilog(design: Design) -> str:
    try:
        from tilewright.backend.vta.rtl.verilog import verilog
    except ModuleNotFoundError as error:
        raise Unsupported("the accelerator as hardware needs Amaranth: pip install 'tilewright[synthesis]'") from error
    return verilog(design.config, design.timing)


def synthesize(design: Design, family: Family, text: str, folder: Path) -> Synthesized:
    """The cells of Verilog, of which ``NETLIST`` in ``folder`` is the netlist."""
    (folder / "accelerator.v").write_text(text)
    script = (
        "read_verilog accelerator.v",
        f"{family.synthesis} -top {TOP} -json {NETLIST}",
        f"tee -q -o {_COUNTS} stat -json",
    )
    run("yosys", ["-Q", "-T", "-p", "; ".join(script)], folder)
    depth = levels(folder / NETLIST, TOP, family.passing)
    return Synthesized(design, family, family.area(_cells(folder / _COUNTS)), depth)


def _cells(file: Path) -> dict[str, int]:
    """How many cells there are of each kind."""
    told = fields.mapping(json.loads(file.read_text()))
    return {
        kind: fields.whole(n) for kind, n in fields.mapping(fields.mapping(told["design"])["num_cells_by_type"]).items()
    }

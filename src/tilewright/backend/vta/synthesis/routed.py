"""Placing and routing by nextpnr: the clock that a small configuration allows on a chip."""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tilewright.backend.vta.config_file import Design
from tilewright.backend.vta.synthesis.area import Area
from tilewright.backend.vta.synthesis.families import Chip, Family
from tilewright.backend.vta.synthesis.synthesized import NETLIST, synthesize
from tilewright.backend.vta.synthesis.tools import required, run
from tilewright.base import fields
from tilewright.base.errors import Unsupported

_REPORT = "report.json"


@dataclass(frozen=True, slots=True)
class Routed:
    """A configuration that is placed and routed between two pins (``rtl/shell.py``)."""

    chip: Chip
    area: Area
    """Of the accelerator and its shell, as Yosys counts."""
    megahertz: float
    """The clock that its longest path allows."""
    path: tuple[str, str]
    """The flip-flops or memories at which the longest path begins and ends."""

    @property
    def nanoseconds(self) -> float:
        """Of the longest path."""
        return 1000.0 / self.megahertz


def routed(design: Design, family: Family, chip: Chip, seed: int = 1) -> Routed:
    """Place and route a configuration. Raises ``BadInput`` if it does not fit, ``Unsupported`` without the tools."""
    required("yosys")
    required(family.router)
    with TemporaryDirectory(prefix="tilewright-synthesis-") as name:
        folder = Path(name)
        made = synthesize(design, family, _verilog(design), folder)
        made.area.require_fit(chip.area, f"{design.config.name} on {family.name} {chip.name}")
        goal = str(design.config.clock_mhz)
        free = ["--timing-allow-fail", "--seed", str(seed), "--freq", goal, "--json", NETLIST, "--report", _REPORT]
        run(family.router, [*chip.options, *free], folder)
        return Routed(chip, made.area, *_timing(folder / _REPORT))


def _verilog(design: Design) -> str:
    try:
        from tilewright.backend.vta.rtl.verilog import shell_verilog
    except ModuleNotFoundError as error:
        raise Unsupported("the accelerator as hardware needs Amaranth: pip install 'tilewright[synthesis]'") from error
    return shell_verilog(design.config, design.timing)


def _timing(file: Path) -> tuple[float, tuple[str, str]]:
    """The clock, and the ends of the longest path that begins and ends at it."""
    told = fields.mapping(json.loads(file.read_text()))
    clocks = [fields.mapping(clock) for clock in fields.mapping(told["fmax"]).values()]
    megahertz = min(fields.number(clock["achieved"]) for clock in clocks)
    paths = [fields.mapping(path) for path in fields.items(told["critical_paths"])]
    longest = next(path for path in paths if path["from"] == path["to"])
    first, *_, last = [fields.mapping(step) for step in fields.items(longest["path"])]
    ends = fields.mapping(first["from"]), fields.mapping(last["to"])
    return megahertz, (fields.text(ends[0]["cell"]), fields.text(ends[1]["cell"]))

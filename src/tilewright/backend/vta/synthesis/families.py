"""Families of FPGAs: how Yosys makes cells for them, what these cells take, and the chips that nextpnr places them on.

A new family is a ``Family`` here; its memories' shapes and fitted numbers are in ``estimate``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.backend.vta.synthesis.area import Area
from tilewright.backend.vta.synthesis.levels import Passing
from tilewright.base.errors import BadInput


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip: the options of nextpnr that name it, and what it has, as nextpnr counts."""

    name: str
    options: tuple[str, ...]
    area: Area


@dataclass(frozen=True, slots=True)
class Family:
    """A family of chips, smallest first. ``cells``: what each cell of Yosys takes; others take nothing, as buffers."""

    name: str
    synthesis: str
    """The command of Yosys."""
    router: str
    """The program of nextpnr."""
    cells: Mapping[str, Area] = field(repr=False)
    passing: Passing = field(repr=False)
    chips: tuple[Chip, ...] = field(repr=False)

    def area(self, cells: Mapping[str, int]) -> Area:
        """What so many cells take."""
        return sum((self.cells[kind].times(count) for kind, count in cells.items() if kind in self.cells), Area())

    def chip(self, name: str) -> Chip:
        """The chip of a name. Raises ``BadInput``, which lists those that are known."""
        found = next((chip for chip in self.chips if chip.name == name), None)
        if found is None:
            raise BadInput(f"{name} is no chip of {self.name}: choose one of {', '.join(c.name for c in self.chips)}")
        return found


_ICE40_FLIP_FLOPS = ("", "E", "SR", "R", "SS", "S", "ESR", "ER", "ESS", "ES")
"""Suffixes of SB_DFF: enable, set and reset, synchronous (S) or not."""

ECP5 = Family(
    "ecp5",
    "synth_ecp5",
    "nextpnr-ecp5",
    {
        "LUT4": Area(luts=1),
        "CCU2C": Area(luts=2),  # two bits of a sum
        "TRELLIS_DPR16X4": Area(luts=6),  # a memory of 16 words of 4 bits, and the slice that writes it
        "TRELLIS_FF": Area(flip_flops=1),
        "MULT18X18D": Area(dsps=1),
        "ALU54B": Area(dsps=1),
        "DP16KD": Area(rams=1),
        "PDPW16KD": Area(rams=1),
    },
    Passing(
        frozenset({"LUT4", "CCU2C", "PFUMX", "L6MUX21", "MULT18X18D"}),
        frozenset({("CCU2C", "CIN"), ("PFUMX", ""), ("L6MUX21", "")}),
    ),
    (
        Chip("25k", ("--25k", "--package", "CABGA381"), Area(24_288, 24_288, 28, 56)),
        Chip("45k", ("--45k", "--package", "CABGA381"), Area(43_848, 43_848, 72, 108)),
        Chip("85k", ("--85k", "--package", "CABGA381"), Area(83_640, 83_640, 156, 208)),
    ),
)
"""Lattice ECP5 (LFE5U): multipliers of 18 x 18 bits, memories of 18 kbit."""

ICE40 = Family(
    "ice40",
    "synth_ice40 -dsp",
    "nextpnr-ice40",
    {
        "SB_LUT4": Area(luts=1),
        **{f"SB_DFF{kind}": Area(flip_flops=1) for kind in _ICE40_FLIP_FLOPS},
        "SB_MAC16": Area(dsps=1),
        "SB_RAM40_4K": Area(rams=1),
    },
    Passing(frozenset({"SB_LUT4", "SB_CARRY", "SB_MAC16"}), frozenset({("SB_CARRY", "CI")})),
    (
        Chip("up5k", ("--up5k", "--package", "sg48"), Area(5_280, 5_280, 8, 30)),
        Chip("hx8k", ("--hx8k", "--package", "ct256"), Area(7_680, 7_680, 0, 32)),
    ),
)
"""Lattice iCE40: memories of 4 kbit; multipliers of 16 x 16 bits in UltraPlus (up5k) only."""

FAMILIES = {family.name: family for family in (ECP5, ICE40)}

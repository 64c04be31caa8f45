"""The longest path of a netlist between flip-flops, in levels: cells that a signal goes through.

A step along a carry chain counts as none, nor does a multiplexer that joins look-up tables of one slice: these take
little time. How long the wires are, only placing and routing tells.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base import fields

Bit = object
"""A wire: its number, or a constant as text."""


@dataclass(frozen=True, slots=True)
class Passing:
    """How signals pass cells. ``through``: kinds of cells without a clock. ``fast``: (kind, input) that count as none,
    of which the input is empty if all of them are meant."""

    through: frozenset[str]
    fast: frozenset[tuple[str, str]]

    def weight(self, kind: str, port: str) -> int:
        """Levels from an input of a cell to its outputs."""
        return 0 if (kind, port) in self.fast or (kind, "") in self.fast else 1


@dataclass(slots=True)
class _Cell:
    kind: str
    inputs: list[tuple[str, Bit]] = field(default_factory=list[tuple[str, Bit]])


def levels(netlist: Path, top: str, passing: Passing) -> int:
    """The levels of the longest path of a netlist of Yosys."""
    modules = fields.mapping(fields.mapping(json.loads(netlist.read_text()))["modules"])
    drivers = _drivers(fields.mapping(fields.mapping(modules[top])["cells"]), passing)
    depths: dict[int, int] = {}
    for cell in {id(cell): cell for cell in drivers.values()}.values():
        _walk(cell, drivers, passing, depths)
    return max(depths.values(), default=0)


def _drivers(cells: Mapping[str, object], passing: Passing) -> dict[Bit, _Cell]:
    """The cell without a clock that drives each wire."""
    found: dict[Bit, _Cell] = {}
    for told in map(fields.mapping, cells.values()):
        cell = _Cell(fields.text(told["type"]))
        if cell.kind not in passing.through:
            continue
        directions = fields.mapping(told["port_directions"])
        for port, bits in fields.mapping(told["connections"]).items():
            for bit in fields.items(bits):
                if directions[port] == "input":
                    cell.inputs.append((port, bit))
                else:
                    found[bit] = cell
    return found


def _walk(start: _Cell, drivers: Mapping[Bit, _Cell], passing: Passing, depths: dict[int, int]) -> None:
    """Find the depth of a cell and of all before it: without recursion, as chains are long."""
    waiting = [start]
    while waiting:
        cell = waiting[-1]
        before = [(port, drivers[bit]) for port, bit in cell.inputs if bit in drivers]
        unknown = [other for _, other in before if id(other) not in depths]
        if unknown and id(cell) not in depths:
            waiting += unknown
            continue
        waiting.pop()
        depths[id(cell)] = max(
            (depths[id(other)] + passing.weight(cell.kind, port) for port, other in before),
            default=1,
        )

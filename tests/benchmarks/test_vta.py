"""The accelerator's roofline: points are below the roof, latency hiding helps, wrong results are noticed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.vta import CALLS, LAYERS, Point, exact, main, rows
from benchmarks.vta_left import WORK, Cause, causes
from tests.offload.models import Writer
from tilewright.backend.vta import OSDI, VTA, Timing
from tilewright.backend.vta.convolution import Convolution, chosen_tiling, convolution_program
from tilewright.backend.vta.cycles import simulate
from tilewright.backend.vta.functional import count
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.simulated import SimulatedDevice


@pytest.mark.parametrize("names", [["C10"], pytest.param(list(LAYERS), marks=pytest.mark.slow)], ids=["one", "all"])
def test_points_are_below_the_roof_and_hiding_helps(names: list[str]) -> None:
    timing = Timing()
    found = list(rows(names, VTA, timing))
    assert [name for name, *_ in found] == [*names, "all"]
    for name, one, two in found:
        assert one.gops(VTA) < one.roof(VTA, timing)
        assert two.gops(VTA) < two.roof(VTA, timing)
        assert one.share < two.share, name
    if len(names) > 1:
        assert found[-1][1].share < 0.75
        assert found[-1][2].share > 0.9


def test_roofs() -> None:
    """One micro-op for each two bytes is 256 operations per byte; 8 bytes in a cycle of 10 ns allow 204.8 GOPS."""
    point = Point(cycles=200, products=100, bytes=200)
    assert point.intensity(VTA) == 256
    assert point.gops(VTA) == 25.6
    assert point.gops(OSDI) == 51.2
    assert point.roof(VTA, Timing()) == 51.2
    assert point.roof(VTA, Timing(bus_bytes=1)) == pytest.approx(25.6)
    assert replace(point, bytes=2000).roof(VTA, Timing()) == pytest.approx(20.48)
    assert (point + point.times(2)) == Point(600, 300, 600)
    assert sum(CALLS.values()) == 19


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--layers", "C10", "--bus", "16"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "vta: 51.2 GOPS at 100 MHz, 16 bytes in a cycle"
    assert [line.split()[0] for line in printed[3:]] == ["C10", "all", "median"]


def test_all_cycles_of_compute_have_a_cause() -> None:
    """Each in which it works, and all others: together those of the program; the micro-ops are those that ran."""
    layer = Convolution(14, 14, 4, 8, 3, padding=1)
    program = convolution_program(layer, chosen_tiling(layer, VTA, Timing()), VTA)
    instructions = Runtime(SimulatedDevice(VTA)).linked(program)
    cycles, counters = simulate(instructions, VTA, Timing()), count(instructions, VTA)
    found = causes(instructions, cycles, Timing())
    assert found.total() == cycles.total
    assert [found[cause] for cause in WORK] == [layer.products, counters.reset, counters.alu]
    assert found[Cause.LAST_STORE] < 200
    assert cycles.total - sum(found[cause] for cause in WORK) < 1500


def test_what_is_left_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--layers", "C10", "--left"])
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[1:]] == ["C10", "median"]


@pytest.mark.slow
def test_verilog_is_written(tmp_path: Path) -> None:
    main(["--config", "osdi", "--rtl", str(tmp_path / "osdi.v")])
    assert "module accelerator(" in (tmp_path / "osdi.v").read_text()


def test_a_convolution_in_numpy() -> None:
    """By hand: ones under a 3 x 3 window of ones, with zeros around."""
    ones = np.ones((1, 16, 3, 3), np.int64)
    found = exact(Convolution(3, 3, 1, 1, 3, padding=1, shift=2), ones, ones[:, :, :3, :3])
    assert found[0, 0].tolist() == [[16, 24, 16], [24, 36, 24], [16, 24, 16]]


def test_layers_of_a_model_beside_the_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Writer()
    x = net.input(1, 16, 6, 6)
    onnx.save(net.model(x, net.addition(net.convolution(x, 16), x)), tmp_path / "net.onnx")
    main(["--model", str(tmp_path / "net.onnx")])
    printed = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in printed[2:]]
    assert [row[0] for row in rows] == ["Conv", "Add", "all", "as"]
    gemm, cycles = (sum(int(row[column]) for row in rows[:2]) for column in (2, 3))
    assert gemm == 36 * 9
    assert rows[2][3:5] == [str(gemm), str(cycles)]
    assert 36 * 9 < int(rows[3][3]) <= cycles

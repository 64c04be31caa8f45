"""The Verilog: the same text each time; and, where Verilator is installed, the same bits and cycles as in Amaranth."""

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.backend.vta.linked import random_arrays
from tests.backend.vta.random_programs import CONFIGS
from tests.backend.vta.rtl.synchronized import CODE, SIZE, new_core, random_case
from tilewright.backend.vta import VTA, Runtime, SimulatedDevice, Timing
from tilewright.backend.vta.config import Config
from tilewright.backend.vta.convolution import Convolution, Tiling, convolution_program
from tilewright.backend.vta.instructions import encode_program
from tilewright.backend.vta.rtl import RtlDevice, verilog

TIMING = Timing(queue_length=8, token_length=4, latency=9)


@pytest.mark.slow
def test_a_configuration_has_one_text() -> None:
    text = verilog(CONFIGS[0], TIMING)
    assert text == verilog(CONFIGS[0], TIMING)
    assert "module accelerator(" in text
    assert "input [7:0] fetch_response_data" not in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_verilator_computes_the_same_bits_in_the_same_cycles(config: Config, tmp_path: Path) -> None:
    harness = built(verilog(config, TIMING), tmp_path)
    for seed in range(10):
        before, after, program = random_case(Random(seed), new_core(config))
        device = RtlDevice(config, TIMING, SIZE)
        device.write(0, before)
        device.write(CODE, encode_program(program, config))
        (image := tmp_path / "memory").write_bytes(device.read(0, SIZE))
        device.start(CODE, len(program))
        cycles = device.wait().cycles
        assert cycles is not None
        arguments = [image, CODE, len(program), TIMING.latency, 100_000]
        taken = run_harness(harness, arguments)
        found = image.read_bytes()
        assert found == device.read(0, SIZE)
        assert found[:CODE] == after[:CODE]
        assert taken == cycles.total


class Observed(SimulatedDevice):
    """Keeps what a run starts with."""

    image: bytes = b""
    started: tuple[int, int] = 0, 0

    def start(self, address: int, count: int) -> None:
        self.image, self.started = self.core.memory.data.tobytes(), (address, count)
        super().start(address, count)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")
def test_a_layer_on_the_whole_vta(tmp_path: Path) -> None:
    """The layer of docs/accelerator.md, with 256 products in a cycle; the cycle simulator is right within a percent."""
    harness = built(verilog(VTA), tmp_path)
    layer = Convolution(height=14, width=14, channels=2, filters=4, kernel=3, padding=1)
    for threads in (1, 2):
        tiling = Tiling(rows=7, columns=14, filters=2, channels=1, threads=threads)
        program = convolution_program(layer, tiling, VTA)
        device = Observed(VTA, 1 << 18, Timing())
        modelled = Runtime(device).run(program, random_arrays(program)).report.cycles
        (image := tmp_path / "memory").write_bytes(device.image)
        arguments = [image, *device.started, Timing().latency, 100_000]
        taken = run_harness(harness, arguments)
        assert image.read_bytes() == device.core.memory.data.tobytes()
        assert modelled is not None
        print(f"{threads} threads: {taken} cycles, {modelled.total} in the model")
        assert abs(taken - modelled.total) <= 0.01 * modelled.total


def run_harness(harness: Path, arguments: list[object]) -> int:
    """The cycles."""
    command = [harness, *map(str, arguments)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


def built(text: str, folder: Path) -> Path:
    (source := folder / "accelerator.v").write_text(text)
    cpp = Path(__file__).with_name("harness.cpp")
    options = ["--cc", "--exe", "--build", "-Wno-fatal", "-Wno-lint", "--top-module", "accelerator", "-Mdir", "made"]
    subprocess.run(
        ["verilator", *options, str(source), str(cpp)], check=True, cwd=folder, capture_output=True, timeout=1800
    )
    return folder / "made" / "Vaccelerator"

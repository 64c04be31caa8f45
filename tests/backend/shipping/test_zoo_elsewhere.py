"""Programs of all networks of the zoo for other processors, under emulation: the results of this machine, within 1e-5.

Slow, and only where the files are (``tests/test_zoo.py``). ``ZOO_NETWORKS`` names some of the networks.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import tilewright
from benchmarks.networks import NETWORKS, ZOO
from benchmarks.zoo.samples import load_samples
from tests.backend.shipping.emulator import emulate

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("ZOO_FOLDER") or ROOT / ZOO)
NAMES = os.environ.get("ZOO_NETWORKS", ",".join(NETWORKS)).split(",")
# The emulator knows neither RISC-V's vectors nor its instructions for bits.
TARGETS = ("aarch64,cortex-a72", "aarch64,cortex-a76", "aarch64,neoverse-v1", "riscv64")
SECONDS = 3600
"""An emulator takes some hundred times as long as a processor."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not FOLDER.is_dir(),
        reason=f"there is no {FOLDER}: python -m benchmarks.zoo makes build/zoo, and ZOO_FOLDER names another one",
    ),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_networks_give_the_results_of_this_machine(name: str, target: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    here, sample = tilewright.compile(path, threads=1), load_samples(FOLDER / f"{name}.npz")[0]
    expected = here.run(None, sample.inputs)
    given = b"".join(np.ascontiguousarray(sample.inputs[spec.name]).tobytes() for spec in here.inputs)
    del here
    (program,) = tilewright.compile(path, target=target).emit(tmp_path / "program")
    found = emulate(program.read_bytes(), given, seconds=SECONDS)
    assert (found.code, found.errors) == (0, b"")
    rest = found.out
    for wanted in expected:
        own, rest = np.frombuffer(rest[: wanted.nbytes], wanted.dtype).reshape(wanted.shape), rest[wanted.nbytes :]
        scale = np.abs(wanted).max()
        assert np.abs(own - wanted).max() <= 1e-5 * scale, f"{np.abs(own - wanted).max() / scale:.1e}"
    assert not rest

"""Programs and modules of the networks of the zoo, emulated and in an engine: this machine's results, within 1e-5.

Slow, and only where the files are (``tests/test_zoo.py``). ``ZOO_NETWORKS`` names some of the networks.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tilewright
from benchmarks.networks import NETWORKS, ZOO
from benchmarks.zoo.samples import load_samples
from tests.backend.shipping.emulator import emulate
from tests.backend.shipping.engine import ran
from tilewright.base.arrays import Array

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("ZOO_FOLDER") or ROOT / ZOO)
NAMES = os.environ.get("ZOO_NETWORKS", ",".join(NETWORKS)).split(",")
# The emulator knows neither RISC-V's vectors nor its instructions for bits.
TARGETS = ("aarch64,cortex-a72", "aarch64,cortex-a76", "aarch64,neoverse-v1", "riscv64")
SECONDS = 3600
"""An emulator takes some hundred times as long as a processor."""
NEAR = 1e-5
FARTHER = {"inception_v3": 2e-5}
"""Networks whose results differ by that much on this machine, too: between vectors of 256 and of 512 bits."""
MODULES = ("mlp", "dqn", "dcgan", "squeezenet", "mobilenet_v2", "resnet18", "nasnet_mobile", "lstm")
"""Those that run as modules of WebAssembly."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not FOLDER.is_dir(),
        reason=f"there is no {FOLDER}: python -m benchmarks.zoo makes build/zoo, and ZOO_FOLDER names another one",
    ),
]


@dataclass(frozen=True)
class Here:
    """The file of a network, inputs, and this machine's outputs."""

    path: Path
    inputs: Sequence[Array]
    outputs: Sequence[Array]

    def check(self, found: Sequence[Array]) -> None:
        for own, wanted in zip(found, self.outputs, strict=True):
            assert own.shape == wanted.shape
            differs = distance(own, wanted)
            print(f"{self.path.stem}: {differs:.2g} from this machine's results")
            assert differs <= FARTHER.get(self.path.stem, NEAR)


def distance(one: Array, other: Array) -> float:
    """By the largest number."""
    return float(np.abs(one - other).max() / np.abs(other).max())


def here(name: str) -> Here:
    path = FOLDER / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    model, sample = tilewright.compile(path, threads=1), load_samples(FOLDER / f"{name}.npz")[0]
    inputs = [np.ascontiguousarray(sample.inputs[spec.name]) for spec in model.inputs]
    return Here(path, inputs, model.run(None, sample.inputs))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_networks_give_the_results_of_this_machine(name: str, target: str, tmp_path: Path) -> None:
    ours = here(name)
    (program,) = tilewright.compile(ours.path, target=target).emit(tmp_path / "program")
    found = emulate(program.read_bytes(), b"".join(one.tobytes() for one in ours.inputs), seconds=SECONDS)
    assert (found.code, found.errors) == (0, b"")
    assert len(found.out) == sum(one.nbytes for one in ours.outputs)
    ends = np.cumsum([one.nbytes for one in ours.outputs])
    pieces = (found.out[end - one.nbytes : end] for end, one in zip(ends, ours.outputs, strict=True))
    ours.check(
        [np.frombuffer(piece, one.dtype).reshape(one.shape) for piece, one in zip(pieces, ours.outputs, strict=True)]
    )


@pytest.mark.parametrize("name", [name for name in MODULES if name in NAMES])
def test_networks_as_modules(name: str, tmp_path: Path) -> None:
    ours = here(name)
    module, _ = tilewright.compile(ours.path, target="wasm32").emit(tmp_path / "net.wasm", "wasm")
    ours.check(ran(module.read_bytes(), ours.inputs))

"""All networks of the zoo: compiled, saved, loaded without the compiler, each within 1e-4 of float64.

Slow, and only where the files are: ``python -m benchmarks.zoo`` (extra ``bench``) writes them to ``build/zoo``;
``ZOO_FOLDER`` names another folder.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.accuracy import accuracy
from benchmarks.networks import NETWORKS, ZOO
from benchmarks.zoo.samples import Array, Sample, load_samples
from tilewright.api import CompiledModel
from tilewright.api import compile as compile_model
from tilewright.base.settings import Settings
from tilewright.frontend.onnx.read import importer
from tilewright.frontend.onnx.write import exporter
from tilewright.passes.normalize import normalize
from tilewright.passes.recognize import recognize
from tilewright.passes.rules import ALGEBRA, load_rules, rewrite

ROOT = Path(__file__).parent.parent
FOLDER = Path(os.environ.get("ZOO_FOLDER") or ROOT / ZOO)
SMALL = ("mlp", "dqn", "lstm", "nasrnn", "dcgan", "squeezenet")
"""Networks that are compiled and run with bounds checks in a minute at most, on a quiet machine."""

TOLERANCE = 1e-4
THREADS = (1, 2)
Results = list[list[Array]]
"""By sample, then by output."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not FOLDER.is_dir(),
        reason=f"there is no {FOLDER}: python -m benchmarks.zoo makes build/zoo, and ZOO_FOLDER names another one",
    ),
]


@pytest.mark.parametrize("name", NETWORKS)
def test_compiled_and_loaded(name: str, tmp_path: Path) -> None:
    """Both error measures on three inputs; what is loaded without the compiler gives the same bits."""
    model, samples = compile_model(FOLDER / f"{name}.onnx", threads=max(THREADS)), samples_of(name)
    assert len(samples) == 3
    results = {threads: run(model, samples, threads) for threads in THREADS}
    for found in results.values():
        check(found, samples, model)
    model.save(tmp_path / "model.tw", settings=Settings(key_dir=tmp_path / "keys"))
    del model
    for threads, again in run_apart(FOLDER / f"{name}.npz", tmp_path, len(results[1][0])).items():
        for one, other in zip(flat(again), flat(results[threads]), strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert one.tobytes() == other.tobytes(), f"{threads} threads: not the bits of the compiled model"


@pytest.mark.parametrize("name", NETWORKS)
def test_written_as_onnx(name: str, tmp_path: Path) -> None:
    """What is left after the passes that know of algebra only, by ONNX Runtime with all its optimizations."""
    graph = normalize(importer.load(FOLDER / f"{name}.onnx"))
    for step in (graph, rewrite(recognize(graph), load_rules(ALGEBRA))):
        exporter.save(step, tmp_path / "written.onnx")
        onnx.checker.check_model(tmp_path / "written.onnx", full_check=True)
        session = onnxruntime.InferenceSession(tmp_path / "written.onnx", providers=["CPUExecutionProvider"])
        for sample in samples_of(name):
            found = [np.asarray(array, np.float64) for array in session.run(None, dict(sample.inputs))]
            error = accuracy(found, [sample.outputs[value.name] for value in graph.outputs])
            assert np.max([error.norm, error.element]) <= TOLERANCE, error


@pytest.mark.parametrize("name", SMALL)
def test_with_bounds_checks(name: str) -> None:
    """No access outside of a buffer, and the same accuracy."""
    settings = Settings(bounds_check=True)
    model, samples = compile_model(FOLDER / f"{name}.onnx", threads=2, settings=settings), samples_of(name)[:1]
    check(run(model, samples, 2), samples, model)


def samples_of(name: str) -> list[Sample]:
    """The inputs of a network of the zoo, and its results in float64."""
    return load_samples(FOLDER / f"{name}.npz")


def run(model: CompiledModel, samples: list[Sample], threads: int) -> Results:
    """The model's results for each sample."""
    return [model.executable.run(sample.inputs, threads=threads) for sample in samples]


def check(results: Results, samples: list[Sample], model: CompiledModel) -> None:
    """Both error measures of each sample are within the tolerance."""
    for position, (found, sample) in enumerate(zip(results, samples, strict=True)):
        error = accuracy(
            [np.asarray(array, np.float64) for array in found], [sample.outputs[spec.name] for spec in model.outputs]
        )
        worst = np.max([error.norm, error.element])  # a NaN stays a NaN, and is not within
        assert worst <= TOLERANCE, f"sample {position}: {error}"


def flat(results: Results) -> list[Array]:
    """All arrays, sample after sample."""
    return [array for sample in results for array in sample]


RUN = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("llvmlite", "onnx", "google"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Refuse())
import numpy as np
import tilewright
from benchmarks.zoo.samples import load_samples

model = tilewright.load(sys.argv[1], threads=2)
results = {
    f"{threads}.{position}.{output}": array
    for threads in (1, 2)
    for position, sample in enumerate(load_samples(sys.argv[2]))
    for output, array in enumerate(model.executable.run(sample.inputs, threads=threads))
}
np.savez(sys.argv[3], **results)
"""


def run_apart(samples: Path, folder: Path, outputs: int) -> dict[int, Results]:
    """Results by number of threads of ``model.tw`` in ``folder``, in a process that can't import the compiler."""
    variables = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "TILEWRIGHT_KEY_DIR": str(folder / "keys"),
    }
    arguments = [str(folder / "model.tw"), str(samples), str(folder / "results.npz")]
    environ = {**os.environ, **variables}
    subprocess.run([sys.executable, "-c", RUN, *arguments], check=True, timeout=300, env=environ)
    with np.load(folder / "results.npz") as found:
        return {
            threads: [[found[f"{threads}.{p}.{o}"] for o in range(outputs)] for p in range(3)] for threads in THREADS
        }

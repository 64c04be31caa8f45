"""A front end outside of the package: ``layers.py``, given by its user or found as an entry point."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.extending import packages
from tests.extending.layers import LAYERS
from tilewright.base.errors import BadInput, InvalidModel, Unsupported, UnsupportedModel
from tilewright.base.settings import Settings
from tilewright.cli import main
from tilewright.frontend import opening

HERE = Path(__file__).parent
W, B = np.array([[1, -2, 3], [4, 5, -6]], np.float32), np.array([0.5, 0, -1], np.float32)
X = np.array([[1, 2], [-3, 4], [0, 1]], np.float32)
EXPECTED = np.maximum(X @ W + B, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "net.layers"
    file.write_text(json.dumps([{"weight": W.tolist(), "bias": B.tolist(), "then": "Relu"}]))
    return file


def install(folder: Path, value: str) -> None:
    """A package in ``folder`` whose metadata name a front end."""
    packages.install(folder, opening.GROUP, "layers", value, HERE / "layers.py")


def test_a_model_of_another_form(path: Path) -> None:
    model = tilewright.compile(path, frontends=[LAYERS], threads=1)
    np.testing.assert_allclose(model.run(None, {"x": X})[0], EXPECTED, rtol=1e-6)
    fixed = tilewright.compile(str(path), frontends=[LAYERS], shapes={"x": (3, 2)}, threads=1)
    assert fixed.inputs[0].static_shape == (3, 2)
    assert fixed.compare({"x": X}, against="reference").agrees
    assert not fixed.is_cached
    assert "then0" in {node.node for node in fixed.explain().nodes}


def test_it_runs_as_an_artifact_and_never_writes_over_the_model(path: Path, tmp_path: Path) -> None:
    model = tilewright.compile(path, frontends=[LAYERS], threads=1)
    model.save(tmp_path / "net.tw")
    np.testing.assert_allclose(tilewright.load(tmp_path / "net.tw").run(None, {"x": X})[0], EXPECTED, rtol=1e-6)
    with pytest.raises(BadInput, match=r"net\.layers"):
        model.save(path)


def test_what_a_front_end_leaves_out_is_said(path: Path) -> None:
    model = tilewright.compile(path, frontends=[LAYERS], threads=1)
    with pytest.raises(Unsupported, match="against='reference'"):
        model.compare({"x": X})
    with pytest.raises(BadInput, match="only what is installed"):
        tilewright.compile(path, frontends=[LAYERS], isolate=True)


def test_its_errors_are_those_of_models(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"none\.layers holds no layers"):
        tilewright.compile(tmp_path / "none.layers", frontends=[LAYERS])
    path.write_text(path.read_text().replace("Relu", "Fly"))
    with pytest.raises(UnsupportedModel, match="then0: there is no operator Fly"):
        tilewright.compile(path, frontends=[LAYERS], settings=Settings(repro_dir=None))


def test_what_is_accepted_is_named() -> None:
    with pytest.raises(
        BadInput,
        match=r"model=3: give a file \*\.layers or a path, bytes, a file open for reading bytes, or a ModelProto",
    ):
        tilewright.compile(3, frontends=[LAYERS])
    with pytest.raises(BadInput, match="frontends="):
        tilewright.compile("m.onnx", frontends=[3])


def test_an_installed_one_needs_no_argument(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "layers_front_end:LAYERS")
    monkeypatch.syspath_prepend(tmp_path)
    np.testing.assert_allclose(tilewright.compile(path, threads=1).run(None, {"x": X})[0], EXPECTED, rtol=1e-6)
    assert main(["explain", str(path), "--coverage"]) == 0


def test_an_installed_one_works_in_a_process_of_its_own(path: Path, tmp_path: Path) -> None:
    install(tmp_path, "layers_front_end:LAYERS")
    code = f"import tilewright; print(tilewright.compile({str(path)!r}, isolate=True, threads=1).inputs)"
    source = Path(tilewright.__file__).parent.parent
    environment = {"PYTHONPATH": f"{tmp_path}:{source}", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_one_that_is_none_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, "layers_front_end:json")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadInput, match="give a path"):
        tilewright.compile(3)
    assert "it is a module, not a FrontEnd" in caplog.text

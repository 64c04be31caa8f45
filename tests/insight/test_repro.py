"""Bundles: everything that is needed is in them, and rerunning them gives the same."""

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.frontend.models import single_node
from tests.insight.models import classifier, compiled
from tilewright import api
from tilewright.base.errors import BadInput, InternalError, UnsupportedModel
from tilewright.insight.repro import Request, pack_fault, pack_kernel, pack_model
from tilewright.insight.rerun import random_inputs, rerun
from tilewright.runtime.manifest import Symbol

SOURCE = Path(__file__).parent.parent.parent / "src"


def test_a_model_is_packed_and_rerun_by_its_script(tmp_path: Path) -> None:
    files = pack_model(tmp_path / "b.zip", classifier(), Request("host", 1, seed=3))
    assert files == ("README.md", "rerun.py", "settings.json", "model.onnx")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        archive.extractall(tmp_path / "b")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, str(tmp_path / "b" / "rerun.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "no value differs" in done.stdout
    settings = json.loads((tmp_path / "b" / "settings.json").read_text())
    assert settings["seed"] == 3
    assert {"tilewright", "python", "llvm", "numpy", "onnx"} - {"tilewright"} <= settings["versions"].keys()


def test_equal_requests_give_equal_bundles(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        pack_model(tmp_path / name, classifier(), Request("host"))
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_external_data_comes_along_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    proto = single_node("Add", {"x": np.zeros((4,), np.float32)}, {"c": np.ones((4,), np.float32)})
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert "weights.bin" in pack_model(tmp_path / "b", tmp_path / "m.onnx", Request("host", 1))
    assert rerun(tmp_path / "b") == 0
    onnx.save(proto, tmp_path / "m.onnx")
    entry = proto.graph.initializer[0]
    entry.data_location = onnx.TensorProto.EXTERNAL
    entry.external_data.add(key="location", value="../secret")
    entry.ClearField("raw_data")
    (tmp_path / "n.onnx").write_bytes(proto.SerializeToString())
    assert pack_model(tmp_path / "c", tmp_path / "n.onnx", Request("host"))[3:] == ("model.onnx",)


def test_a_kernel_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, made = compiled(classifier())
    for kernel in made.kernels:
        folder = tmp_path / kernel.program.name
        files = pack_kernel(folder, kernel, made.options)
        assert files == ("README.md", "rerun.py", "settings.json", "program.txt", "trace.json")
        assert rerun(folder) == 0
    assert "differ from those of the naive program by" in capsys.readouterr().out
    assert "node soft (Softmax)" in (tmp_path / made.kernels[2].program.name / "README.md").read_text()


def test_a_kernel_with_a_wrong_result_leaves_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = compiled(classifier())
    pack_kernel(tmp_path, made.kernels[0], made.options)
    monkeypatch.setattr("tilewright.insight.rerun.TOLERANCE", -1.0)
    assert rerun(tmp_path) == 1


def test_what_can_not_be_packed_or_rerun(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="can't be read"):
        pack_model(tmp_path / "b", tmp_path / "none.onnx", Request("host"))
    with pytest.raises(BadInput, match="can't be written"):
        pack_model(Path("/dev/null/b.zip"), classifier(), Request("host"))
    with pytest.raises(BadInput, match="holds no bundle"):
        rerun(tmp_path)
    assert isinstance(pack_fault(tmp_path / "none.onnx", Request("host"), ValueError("x")), BadInput)


def test_run_time_extents_get_a_size() -> None:
    proto = single_node("Relu", {"x": np.zeros((2, 3), np.float32)})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    _, made = compiled(proto)
    manifest = made.executable.manifest
    assert random_inputs(manifest, 0)["x"].shape == (7, 3)
    for bounds, size in (((0, 5), 5), ((0, None), 7), ((9, None), 9), ((9, 12), 9)):
        bounded = replace(manifest, symbols=(Symbol("n", *bounds),))
        assert random_inputs(bounded, 0)["x"].shape == (size, 3)


@pytest.mark.parametrize("error", [InternalError("broken"), KeyError("broken")])
def test_a_fault_of_the_compiler_leaves_a_bundle(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(api, "compile_graph", fail)
    with pytest.raises(InternalError, match="a bundle to reproduce it is in ") as caught:
        api.compile(classifier(), shapes={"x": (4, 8)}, threads=1)
    assert caught.value.__cause__ is error
    (bundle,) = tmp_path.glob("tilewright-*/repro.zip")
    assert str(bundle) in str(caught.value)
    with zipfile.ZipFile(bundle) as archive:
        settings = json.loads(archive.read("settings.json"))
    assert settings["shapes"] == {"x": [4, 8]}
    assert "broken" in settings["error"]


def test_what_is_no_fault_leaves_no_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    proto = classifier()
    proto.graph.node[4].op_type = "Fly"
    with pytest.raises(UnsupportedModel):
        api.compile(proto)
    assert not list(tmp_path.iterdir())

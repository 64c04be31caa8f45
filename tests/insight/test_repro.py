"""Bundles: everything that is needed is in them, and rerunning them gives the same."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontend.models import model as make_model
from tests.frontend.models import single_node
from tests.insight.models import classifier, compiled
from tilewright.base.errors import BadInput, UntrustedData
from tilewright.frontend.onnx.read import importer
from tilewright.frontend.opening import opened
from tilewright.insight.repro import Request, pack_kernel, pack_model
from tilewright.insight.rerun import random_inputs, rerun
from tilewright.runtime.manifest import Symbol

SOURCE = Path(__file__).parent.parent.parent / "src"


def test_a_model_is_packed_and_rerun(tmp_path: Path) -> None:
    files = pack_model(tmp_path / "b.zip", opened(classifier()), Request("host", 1, seed=3))
    assert files == ("README.md", "settings.json", "model.onnx")
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        archive.extractall(tmp_path / "b")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-m", "tilewright", "rerun", str(tmp_path / "b")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "no value differs" in done.stdout
    assert "tilewright rerun" in (tmp_path / "b" / "README.md").read_text()
    settings = json.loads((tmp_path / "b" / "settings.json").read_text())
    assert settings["seed"] == 3
    assert {"tilewright", "python", "llvm", "numpy", "onnx"} - {"tilewright"} <= settings["versions"].keys()


def test_equal_requests_give_equal_bundles(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        pack_model(tmp_path / name, opened(classifier()), Request("host"))
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


C = np.arange(4, dtype=np.float32)


def external(folder: Path, location: str, content: bytes = C.tobytes(), offset: int = 0) -> Path:
    """A model in ``folder`` of which two constants, one of them in an attribute, are in another file."""
    nodes = [
        helper.make_node("Constant", [], ["d"], value=numpy_helper.from_array(C, "d")),
        helper.make_node("Add", ["x", "c"], ["s"]),
        helper.make_node("Mul", ["s", "d"], ["y"]),
    ]
    proto = make_model(nodes, {"x": C}, ["y"], {"c": C})
    for tensor in (proto.graph.initializer[0], proto.graph.node[0].attribute[0].t):
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        tensor.external_data.add(key="offset", value=str(offset))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    if content:
        (folder / location).parent.mkdir(parents=True, exist_ok=True)
        (folder / location).write_bytes(content)
    return folder / "m.onnx"


@pytest.mark.parametrize(
    "location",
    ["rerun.py", "onnx.py", "numpy.py", "onnx/__init__.py", "settings.json", "README.md", "sitecustomize.py"],
)
def test_names_in_a_bundle_are_ours(tmp_path: Path, location: str) -> None:
    """Nothing that came with the model can be imported, run, or stand for a file of the bundle."""
    path = external(tmp_path / "given", location)
    files = pack_model(tmp_path / "b", opened(path), Request("host", 1))
    assert files == ("README.md", "settings.json", "model.onnx", "weights.bin")
    assert sorted(entry.name for entry in (tmp_path / "b").rglob("*")) == sorted(files)
    assert rerun(tmp_path / "b")
    pack_model(tmp_path / "b.zip", opened(path), Request("host", 1))
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert tuple(archive.namelist()) == files


def test_a_bundle_has_the_bytes_of_tensors_only(tmp_path: Path) -> None:
    """And each of them once."""
    path = external(tmp_path / "given", "w", b"secret 1" + C.tobytes() + b"secret 2", offset=8)
    pack_model(tmp_path / "b", opened(path), Request("host", 1))
    assert (tmp_path / "b" / "weights.bin").read_bytes() == C.tobytes()
    assert rerun(tmp_path / "b")
    moved = onnx.load(tmp_path / "b" / "model.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(moved.graph.initializer[0]), C)


LINKS: dict[str, Callable[[Path, Path], object]] = {
    "symbolic": lambda place, secret: place.symlink_to(secret),
    "hard": lambda place, secret: os.link(secret, place),
    "pipe": lambda place, _: os.mkfifo(place),
    "folder": lambda place, _: place.mkdir(),
}


@pytest.mark.parametrize("kind", LINKS)
def test_what_importing_refuses_is_not_packed(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_bytes(C.tobytes())
    path = external(tmp_path / "given", "w", b"")
    LINKS[kind](tmp_path / "given" / "w", tmp_path / "secret")
    for attempt in (lambda: importer.load(path), lambda: pack_model(tmp_path / "b.zip", opened(path), Request("host"))):
        with pytest.raises(UntrustedData):
            attempt()
    assert not (tmp_path / "b.zip").exists()


@pytest.mark.parametrize("location", ["../secret", "/etc/hostname", "a/../../secret", "link/secret"])
def test_nothing_from_elsewhere_is_packed(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(C.tobytes())
    path = external(tmp_path / "given", location, b"")
    (tmp_path / "given" / "link").symlink_to(tmp_path)
    with pytest.raises(UntrustedData):
        pack_model(tmp_path / "b.zip", opened(path), Request("host"))


def test_a_folder_that_is_in_use_stays(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(BadInput, match="is a folder that is not empty"):
        pack_model(tmp_path, opened(classifier()), Request("host"))
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_model_that_is_none_is_packed_as_it_is(tmp_path: Path) -> None:
    """Reading it may be what went wrong."""
    (tmp_path / "m.onnx").write_bytes(b"\xff" * 100)
    pack_model(tmp_path / "b", opened(tmp_path / "m.onnx"), Request("host"))
    assert (tmp_path / "b" / "model.onnx").read_bytes() == b"\xff" * 100


def test_a_kernel_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, made = compiled(classifier())
    for kernel in made.kernels:
        folder = tmp_path / kernel.program.name
        files = pack_kernel(folder, kernel, made.options)
        assert files == ("README.md", "settings.json", "program.txt", "trace.json")
        assert rerun(folder)
    assert "differ from those of the naive program by" in capsys.readouterr().out
    assert "node soft (Softmax)" in (tmp_path / made.kernels[2].program.name / "README.md").read_text()


def test_a_kernel_with_a_wrong_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = compiled(classifier())
    pack_kernel(tmp_path, made.kernels[0], made.options)
    monkeypatch.setattr("tilewright.insight.rerun.TOLERANCE", -1.0)
    assert not rerun(tmp_path)


def test_what_can_not_be_packed_or_rerun(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="can't be read"):
        pack_model(tmp_path / "b", opened(tmp_path / "none.onnx"), Request("host"))
    with pytest.raises(BadInput, match="can't be written"):
        pack_model(Path("/dev/null/b.zip"), opened(classifier()), Request("host"))
    with pytest.raises(BadInput, match="holds no bundle"):
        rerun(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"), [("kind", "virus"), ("seed", None), ("target", 3), ("shapes", [1]), ("math", {}), ("bounds", 1)]
)
def test_settings_that_are_none(tmp_path: Path, name: str, value: object) -> None:
    pack_model(tmp_path / "b", opened(classifier()), Request("host"))
    settings = json.loads((tmp_path / "b" / "settings.json").read_text())
    (tmp_path / "b" / "settings.json").write_text(json.dumps({**settings, name: value}))
    with pytest.raises(BadInput):
        rerun(tmp_path / "b")


def test_run_time_extents_get_a_size() -> None:
    proto = single_node("Relu", {"x": np.zeros((2, 3), np.float32)})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    _, made = compiled(proto)
    manifest = made.executable.manifest
    assert random_inputs(manifest, 0)["x"].shape == (7, 3)
    for bounds, size in (((0, 5), 5), ((0, None), 7), ((9, None), 9), ((9, 12), 9)):
        bounded = replace(manifest, symbols=(Symbol("n", *bounds),))
        assert random_inputs(bounded, 0)["x"].shape == (size, 3)

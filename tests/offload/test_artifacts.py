"""Models on two devices in artifacts: what is loaded computes the same, on the device that is named or given."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tests.offload.models import Writer, image
from tests.offload.test_regions import random_region
from tilewright.backend.vta.config import CLIP, VTA
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.backend.vta.written import program_of, written
from tilewright.base.errors import BadInput, BadProgram, CorruptArtifact, Unsupported
from tilewright.cli import main
from tilewright.offload.accelerator import Accelerator, Placing

ALWAYS = Accelerator(placing=Placing.ALWAYS)


def small() -> tuple[onnx.ModelProto, np.ndarray]:
    """A model of two regions: a mean between them stays on the CPU."""
    net = Writer()
    x = net.input(1, 4, 6, 6)
    proto = net.model(x, net.matrix(net.mean(net.convolution(net.convolution(x, 6), 4)), 5))
    return proto, image(proto)


def saved(folder: Path, accelerator: Accelerator) -> tuple[Path, np.ndarray, np.ndarray]:
    """A file, an input, and the output before."""
    proto, x = small()
    model = tilewright.compile(proto, accelerator=accelerator, threads=1)
    model.save(folder / "model.tw")
    return folder / "model.tw", x, model.run(None, {"x": x})[0]


def test_what_is_loaded_computes_the_same(tmp_path: Path) -> None:
    path, x, want = saved(tmp_path, ALWAYS)
    model = tilewright.load(path)
    for loaded in (model, pickle.loads(pickle.dumps(model)), tilewright.load(path.read_bytes(), trust=True)):
        for _ in range(2):
            assert np.array_equal(loaded.run(None, {"x": x})[0], want)
    out = np.empty_like(want)
    model.run(None, {"x": x}, out=[out])
    assert np.array_equal(out, want)
    proto, _ = small()
    again = tilewright.compile(proto, accelerator=ALWAYS, threads=1)
    assert np.array_equal(pickle.loads(pickle.dumps(again)).run(None, {"x": x})[0], want)


def test_commands_save_it_and_run_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto, x = small()
    onnx.save(proto, tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", x)
    path = str(tmp_path / "net.tw")
    assert main(["compile", str(tmp_path / "net.onnx"), "-o", path, "--accelerator", "vta,always", "--quiet"]) == 0
    run = ["run", path, "--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path), "--accelerator"]
    assert main([*run, "vta,cycles"]) == 0
    want = tilewright.compile(proto, threads=1).run(None, {"x": x})[0]
    assert np.array_equal(np.load(tmp_path / "output_0.npy"), want)
    assert main([*run, "vta,large"]) == 2
    assert "the model's programs are for" in capsys.readouterr().err


def test_another_device_is_given(tmp_path: Path) -> None:
    path, x, want = saved(tmp_path, ALWAYS)
    opened: list[int] = []

    def connect(size: int) -> SimulatedDevice:
        opened.append(size)
        return SimulatedDevice(VTA, size)

    model = tilewright.load(path, accelerator=Accelerator(connect=connect))
    for _ in range(2):
        assert np.array_equal(model.run(None, {"x": x})[0], want)
    assert len(opened) == 1
    with pytest.raises(BadInput, match="are for Config"):
        tilewright.load(path, accelerator="vta,large")
    wrong = Accelerator(connect=lambda size: SimulatedDevice(CLIP, size))
    with pytest.raises(BadProgram, match="the program is for vta, and the device is clip"):
        tilewright.load(path, accelerator=wrong).run(None, {"x": x})


def test_a_device_of_ones_own_has_no_name(tmp_path: Path) -> None:
    own = replace(ALWAYS, connect=lambda size: SimulatedDevice(VTA, size))
    path, x, want = saved(tmp_path, own)
    with pytest.raises(Unsupported, match="a device of its own: give it to load"):
        tilewright.load(path)
    model = tilewright.load(path, accelerator=own)
    assert np.array_equal(model.run(None, {"x": x})[0], want)
    proto, _ = small()
    with pytest.raises(Unsupported, match="can't be pickled"):
        pickle.dumps(tilewright.compile(proto, accelerator=own, threads=1))


def test_an_accelerator_for_nothing_is_refused(tmp_path: Path) -> None:
    proto, _ = small()
    tilewright.compile(proto, threads=1).save(tmp_path / "plain.tw")
    with pytest.raises(BadInput, match="no part of the model is for an accelerator"):
        tilewright.load(tmp_path / "plain.tw", accelerator="vta")


def test_programs_as_text() -> None:
    program = random_region(2, VTA).program
    text = written(program)
    assert program_of(text) == program
    for damaged in (text[:-1], text.replace(b'"format":1', b'"format":9'), text.replace(b'"INP"', b'"IN"'), b"[]"):
        with pytest.raises(CorruptArtifact):
            program_of(damaged)

"""``tilewright accelerator``: areas, searches, and files that ``--accelerator`` takes."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tests.cli.schema import report
from tests.offload.models import Writer
from tilewright import codesign
from tilewright.backend.vta.config_file import read_config
from tilewright.backend.vta.synthesis import tools
from tilewright.cli import main
from tilewright.codesign.networks import Layer
from tilewright.offload.accelerator import Accelerator


@pytest.fixture
def network(tmp_path: Path) -> str:
    net = Writer()
    x = net.input(1, 8, 6, 6)
    onnx.save(net.model(x, net.convolution(net.convolution(x, 16), 8)), tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_area(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accelerator", "area", "tiny"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("tiny on ecp5: about ")
    assert "20 DSPs" in printed
    assert "chips: 25k, 45k, 85k" in printed
    assert main(["accelerator", "area", "large", "--bus", "16", "--json"]) == 0
    found = report("accelerator", capsys.readouterr().out)
    assert (found["config"], found["bus_bytes"], found["dsps"]) == ("large", 16, 1024 + 32)
    assert main(["accelerator", "area", "large"]) == 0
    assert "chips: none has room" in capsys.readouterr().out


def test_search_for_a_model(network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = str(tmp_path / "own.json")
    bound = ["--base", "tiny", "--chip", "25k", "--dsps", "24", "--rated", "3"]
    assert main(["accelerator", "search", network, *bound, "-o", own, "--json"]) == 0
    found = report("accelerator", capsys.readouterr().out)
    assert found["bound"]["dsps"] == 24
    best = found["front"][0]
    assert best["area"]["dsps"] == 20
    design = read_config(Path(own))
    assert design.config.name == "own"
    assert {**best["config"], "name": "own"} == {**best["config"], "name": design.config.name}
    assert Accelerator.named(f"vta,{own},always").config == design.config
    assert main(["explain", network, "--accelerator", f"vta,{own},always", "--json"]) == 0
    stages = capsys.readouterr().out
    assert "an accelerator computes it" in stages


def test_search_for_layers(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codesign, "RESNET18", (Layer(4, 4, 8, 8, 3, padding=1),))
    assert main(["accelerator", "search", "--base", "tiny", "--rated", "1"]) == 0
    printed = capsys.readouterr().out
    assert "ecp5, within " in printed
    assert "best" in printed
    assert "configurations were screened" in printed


def test_without_tools(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "command_of", lambda tool: None)
    assert main(["accelerator", "synthesize", "tiny"]) == 3
    assert "yosys is not installed: pip install 'tilewright[synthesis]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["area", "huge"], "'huge' is no configuration: give one of osdi, vta, large, clip, tiny, or a file *.json"),
        (["area", "none.json"], "none.json can't be read: No such file"),
        (["area", "vta", "--family", "x"], "--family 'x': choose one of ecp5, ice40"),
        (["synthesize", "vta", "--chip", "x"], "x is no chip of ecp5: choose one of 25k, 45k, 85k"),
        (["search", "--chip", "25k", "--dsps", "4"], "has room for the layers: give a larger area"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accelerator", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_units_are_tuned_and_used(network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By either name of the accelerator; the model's bits stay those of the CPU."""
    path = str(tmp_path / "units.db")
    search = ["--space", "sketches", "--minutes", "0.001", "--records", path]
    assert main(["tune", network, "--backend", "vta", *search, "--json"]) == 0
    found = report("tune", capsys.readouterr().out)
    assert [unit["calls"] for unit in found["units"]] == [2]
    assert found["units"][0]["tried"] > 1
    words = f"vta,always,{path}"
    model, alone = (tilewright.compile(network, accelerator=words), tilewright.compile(network))
    x = np.random.default_rng(0).normal(size=(1, 8, 6, 6)).astype(np.float32)
    assert np.array_equal(model.run(None, {"x": x})[0], alone.run(None, {"x": x})[0])
    assert main(["tune", network, "--accelerator", "vta,always", "--space", "all", *search[2:]]) == 0
    assert f"{path} has the schedules: --accelerator vta,always,{path} uses them" in capsys.readouterr().out
    assert main(["tune", network, "--accelerator", "osdi", *search]) == 2
    assert main(["tune", network, "--accelerator", "vta,large", *search]) == 2
    assert "has measurements of another device" in capsys.readouterr().err
    assert main(["tune", network, "--accelerator", "vta", "--minutes", "0.001"]) == 2
    assert "keeps what it finds in a file of its own" in capsys.readouterr().err

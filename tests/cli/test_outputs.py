"""No verb writes over what it reads, nor over what is no regular file."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.frontend.models import single_node
from tests.insight.models import classifier
from tilewright.base.errors import BadInput
from tilewright.cli import main
from tilewright.frontend.onnx.read import importer
from tilewright.frontend.onnx.write import exporter
from tilewright.measure.records import Records


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with external data, inputs, records; and other ways to call them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_KEY_DIR", str(tmp_path / "key"))
    onnx.save(classifier(), "m.onnx", save_as_external_data=True, location="new.onnx.data", size_threshold=0)
    os.link("m.onnx", "hard.onnx")
    Path("soft.onnx").symlink_to("m.onnx")
    Path("output_0.npy").unlink(missing_ok=True)
    np.save("output_0.npy", np.zeros((4, 8), np.float32))
    Records.open("r.db").close()
    return tmp_path


VERBS: dict[str, list[str]] = {
    "compile": ["compile", "m.onnx", "-o"],
    "compile by its hard link": ["compile", "hard.onnx", "-o"],
    "compile by its link": ["compile", "soft.onnx", "-o"],
    "optimize": ["optimize", "m.onnx", "--superopt", "off", "-o"],
    "optimize --report": ["optimize", "m.onnx", "--superopt", "off", "--report"],
    "quantize": ["quantize", "m.onnx", "--data", "output_0.npy", "-o"],
    "repro": ["repro", "m.onnx", "-o"],
    "repro --kernel": ["repro", "m.onnx", "--kernel", "k1_gemm", "-o"],
}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.is_symlink()}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ["m.onnx", "./m.onnx", "hard.onnx", "soft.onnx", "new.onnx.data"])
def test_the_model_and_its_data_stay(folder: Path, verb: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(folder)
    assert main([*VERBS[verb], name]) == 2
    assert "give another name" in capsys.readouterr().err.replace(
        "give the file that it points to", "give another name"
    )
    assert contents(folder) == before


def test_weights_of_the_model_that_is_written_are_an_output_too(folder: Path) -> None:
    """``new.onnx`` may bring ``new.onnx.data`` along, which the model reads."""
    before = contents(folder)
    graph = importer.load(single_node("Add", {"x": np.zeros(4096, np.float32)}, {"c": np.ones(4096, np.float32)}))
    with pytest.raises(BadInput, match=r"new\.onnx\.data can't be written: it is an input"):
        exporter.save(graph, Path("new.onnx"), largest=0, inputs=["new.onnx.data"])
    assert contents(folder) == before


OTHERS: dict[str, Callable[[], list[str]]] = {
    "records": lambda: ["report", "r.db", "-o", "r.db"],
    "arrays": lambda: ["run", "m.onnx", "--input", "x=output_0.npy", "--output", "."],
    "rules": lambda: ["rules", "prune", "found.rules", "-o", "found.rules"],
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_inputs_stay(folder: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("found.rules").write_text("")
    before = contents(folder)
    assert main(OTHERS[kind]()) == 2
    assert "it is an input" in capsys.readouterr().err
    after = contents(folder)
    assert after.pop("r.db").startswith(b"SQLite")  # reading may touch it
    assert after.items() <= before.items()


@pytest.mark.parametrize("verb", [*VERBS, "report", "rules generate"])
def test_a_pipe_stays(folder: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    others = {"report": ["report", "r.db", "-o"], "rules generate": ["rules", "generate", "--depth", "1", "-o"]}
    assert main([*{**VERBS, **others}[verb], "pipe"]) == 2
    assert "pipe can't be written: it is a pipe" in capsys.readouterr().err
    assert (folder / "pipe").is_fifo()


def test_two_outputs_have_two_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "m.onnx", "--superopt", "off", "-o", "x", "--report", "./x"]) == 2
    assert "give two names" in capsys.readouterr().err
    assert not (folder / "x").exists()

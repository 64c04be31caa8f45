"""The command line, end to end: what it prints, saves and leaves with."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.schema import report
from tests.frontend.models import single_node
from tilewright.base.dtypes import boolean, f32, i64
from tilewright.base.errors import BadFeed, BadInput, InternalError, UnsupportedModel
from tilewright.cli import command, main
from tilewright.cli.bench import largest_difference
from tilewright.cli.feeds import make_feeds
from tilewright.cli.options import bounds, files, shapes
from tilewright.runtime.manifest import TensorSpec

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """x + [1, 2, 3] for x of shape [2, 3]."""
    onnx.save(single_node("Add", {"x": X}, {"c": np.array([1, 2, 3], np.float32)}), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def test_run_saves_its_outputs(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", X)
    folder = tmp_path / "out" / "puts"
    assert main(["run", model, "--input", f"x={tmp_path / 'x.npy'}", "--output", str(folder), "--threads", "1"]) == 0
    np.testing.assert_array_equal(np.load(folder / "output_0.npy"), X + np.array([1, 2, 3], np.float32))
    assert "float32" in capsys.readouterr().out


def test_run_json_with_random_inputs(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    def outputs(seed: int) -> object:
        assert main(["run", model, "--json", "--random-seed", str(seed)]) == 0
        return report("run", capsys.readouterr().out)["outputs"]

    first = outputs(1)
    assert first == outputs(1) != outputs(2)
    assert first[0]["name"] == "y0"
    assert first[0]["shape"] == [2, 3]
    assert first[0]["dtype"] == "float32"


def test_bench_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", model, "--vs", "onnxruntime", "--threads", "1", "--rounds", "2", "--slot", "0.01", "--json"]
    assert main(arguments) == 0
    found = report("bench", capsys.readouterr().out)
    assert found["agree"] is True
    assert found["difference"] <= 1e-6
    least, most = found["ratio_spread"]
    assert 0 < least <= found["ratio"] <= most
    assert found["milliseconds"].keys() == {"tilewright", "onnxruntime", "onnxruntime, less fused"}


def test_bench_for_people(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, "--threads", "1", "--rounds", "1", "--slot", "0.01"]) == 0
    printed = capsys.readouterr().out
    assert "they agree" in printed
    assert "milliseconds" in printed


def test_bench_of_results_that_differ(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, "--rounds", "1", "--slot", "0", "--tolerance", "-1", "--json"]) == 1
    assert report("bench", capsys.readouterr().out)["agree"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "x"], "write NAME=VALUE"),
        (["--shape", "x=1,2.5"], "neither a number nor"),
        (["--shape", "z=1"], "shapes= names z; the inputs are x"),
        (["--input", "z=a.npy"], "--input names z; the inputs are x"),
        (["--input", "x=none.npy"], "can't be read"),
    ],
)
def test_bad_arguments(model: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, *arguments]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_a_bad_model_is_one_line_and_debug_shows_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("this is no model")
    assert main(["run", str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    with pytest.raises(BadInput):
        main(["run", str(path), "--debug"])


def test_a_fault_and_an_interrupt(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Faulty:
        error: BaseException = InternalError("broken")

        def add_arguments(self, parser: object) -> None: ...

        def execute(self, options: object, console: object) -> int:
            raise self.error

    monkeypatch.setattr(command.importlib, "import_module", lambda name: Faulty())
    assert main(["run"]) == 4
    Faulty.error = UnsupportedModel("node n (Fly): no")
    assert main(["run"]) == 3
    Faulty.error = ZeroDivisionError("broken")
    assert main(["run"]) == 4
    with pytest.raises(ZeroDivisionError):
        main(["run", "--debug"])
    Faulty.error = KeyboardInterrupt()
    assert main(["run"]) == 130


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["run"], ["run", "m.onnx", "--threads", "0"], ["run", "m.onnx", "--fly"]]
)
def test_usage_errors_leave_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert "usage: tilewright" in capsys.readouterr().err


def test_as_a_module_without_loading_verbs() -> None:
    """The help needs no compiler: it comes at once."""
    program = "import sys, tilewright.cli.command as c; c.main.__globals__; print('llvmlite' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout == "False\n"
    shown = subprocess.run([sys.executable, "-m", "tilewright", "--help"], capture_output=True, text=True, check=True)
    assert "compile a model and run it once" in shown.stdout


def test_options() -> None:
    assert shapes(["ids=1,128", "a=b=n, 4", "s="]) == {"ids": (1, 128), "a=b": ("n", 4), "s": ()}
    assert shapes(["x=1x3x224x224", "y=7", "z=x", "w=max_x"]) == {
        "x": (1, 3, 224, 224),
        "y": (7,),
        "z": ("x",),
        "w": ("max_x",),
    }
    assert bounds(["n=512"]) == {"n": 512}
    with pytest.raises(BadInput, match="whole number"):
        bounds(["n=-1"])
    assert files(["x=a.npy"]) == {"x": Path("a.npy")}
    with pytest.raises(BadInput, match="gives x twice"):
        files(["x=a.npy", "x=b.npy"])


def test_random_feeds(tmp_path: Path) -> None:
    specs = [TensorSpec("a", f32, (2, 3)), TensorSpec("b", i64, (50,)), TensorSpec("c", boolean, ())]
    feeds = make_feeds(specs, {}, seed=0)
    assert [(feeds[s.name].dtype, feeds[s.name].shape) for s in specs] == [(s.dtype.numpy, s.shape) for s in specs]
    assert set(feeds["b"].tolist()) == {0, 1}
    with pytest.raises(BadFeed, match=r"input d: f32\[n\] has dimensions .* give --shape or --input"):
        make_feeds([TensorSpec("d", f32, ("n",))], {}, seed=0)
    np.savez(tmp_path / "x.npz", a=X)
    with pytest.raises(BadFeed, match="several arrays"):
        make_feeds(specs, {"a": tmp_path / "x.npz"}, seed=0)
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object))
    with pytest.raises(BadFeed, match="can't be read"):
        make_feeds(specs, {"a": tmp_path / "pickled.npy"}, seed=0)


def test_differences() -> None:
    a, nan = np.array([1.0, -4.0]), np.array([np.nan, 1.0])
    assert largest_difference([a], [a]) == 0
    assert largest_difference([a + 0.5], [a]) == 0.125
    assert largest_difference([a * 0], [a * 0]) == 0
    assert largest_difference([a], [a * 0]) == float("inf")
    assert largest_difference([nan], [nan]) == 0
    assert largest_difference([nan], [a]) == float("inf")
    assert largest_difference([a], [nan]) == float("inf")
    assert largest_difference([a], [a, a]) == float("inf")
    assert largest_difference([a], [a[:1]]) == float("inf")
    assert largest_difference([a.astype(np.float32)], [a]) == float("inf")

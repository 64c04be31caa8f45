"""The verbs that look into a model, end to end: what they print, what JSON they give, and what they leave with."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from rich.console import Console

from tests.cli.schema import report
from tests.frontend.models import model as make_model
from tests.insight.models import classifier
from tilewright.base.events import Advanced, CacheLookup, Event, StepFinished, StepStarted
from tilewright.cli import main
from tilewright.cli.output import emit
from tilewright.cli.progress import reporting
from tilewright.insight.figures import Finding
from tilewright.target.target import Target


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(classifier(), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


@pytest.fixture
def artifact(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TILEWRIGHT_KEY_DIR", str(tmp_path / "key"))
    assert main(["compile", model, "-o", str(tmp_path / "m.tw"), "--quiet"]) == 0
    return str(tmp_path / "m.tw")


def test_compile_and_run_the_artifact(
    artifact: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["compile", model, "-o", str(tmp_path / "again.tw"), "--threads", "1", "--json"]) == 0
    shown = capsys.readouterr()
    found = report("compile", shown.out)
    assert found["bytes"] == Path(artifact).stat().st_size
    assert (found["kernels"], found["calls"]) == (3, 3)
    assert shown.err.startswith(f"compiling {model} ...\n")
    assert "code: 3 of 3 kernels, about 0 s left" in shown.err

    def outputs(path: str) -> object:
        assert main(["run", path, "--json", "--random-seed", "3"]) == 0
        return report("run", capsys.readouterr().out)["outputs"]

    assert outputs(artifact) == outputs(model)
    for path, word in ((artifact, "loaded in "), (model, "compiled in ")):
        assert main(["run", path]) == 0
        assert word in capsys.readouterr().out


def test_an_artifact_of_another_user(
    artifact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_KEY_DIR", str(tmp_path / "another"))
    assert main(["run", artifact]) == 2
    assert main(["run", artifact, "--trust"]) == 0
    assert main(["run", artifact, "--trust", "--shape", "x=4,8"]) == 2
    assert "is compiled already" in capsys.readouterr().err


def test_bench_of_an_artifact(artifact: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--rounds", "1", "--slot", "0", "--threads", "1"]
    assert main(["bench", artifact, *quick]) == 2
    assert "--peer-model" in capsys.readouterr().err
    assert main(["bench", artifact, "--peer-model", model, "--json", *quick]) == 0
    assert report("bench", capsys.readouterr().out)["agree"] is True


@pytest.mark.usefixtures("short_turns")
def test_profile(
    model: str, artifact: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    quick = ["--seconds", "0", "--threads", "1"]
    capsys.readouterr()
    assert main(["profile", model, "--json", *quick]) == 0
    found = report("profile", capsys.readouterr().out)
    assert found["peak"] is not None
    assert all(row["percent_of_peak"] > 0 and row["trace"] for row in found["kernels"])
    assert main(["profile", model, "--json", "--no-roofs", *quick]) == 0
    assert report("profile", capsys.readouterr().out)["peak"] is None
    assert main(["profile", artifact, "--json", *quick]) == 0
    assert [row["nodes"] for row in report("profile", capsys.readouterr().out)["kernels"]] == [[], [], []]
    assert main(["profile", model, "--steps", "--by-kernel", "--no-roofs", *quick]) == 0
    printed = capsys.readouterr().out
    assert "Time by kernel" in printed
    assert "nodes" in printed  # a pipe is wide
    assert "s.vectorize" in printed


def test_explain(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", model, "--json"]) == 0
    found = report("explain", capsys.readouterr().out)
    assert found["coverage"]["refusals"] == []
    assert [row["fate"] for row in found["explanation"]["nodes"]][:3] == ["folded", "dissolved", "unused"]
    assert main(["explain", model, "--coverage", "--json"]) == 0
    assert report("explain", capsys.readouterr().out)["explanation"] is None


def test_explain_lists_all_that_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]
) -> None:
    nodes = [
        helper.make_node("Flight", ["x"], ["a"], name="fly", domain="my.ops"),
        helper.make_node("Relu", ["x"], ["b"], name="fine"),
        helper.make_node("Flight", ["b"], ["c"], name="fly\x1b again", domain="my.ops"),
    ]
    proto = make_model(nodes, {"x": np.zeros((2, 2), np.float32)}, ["a", "c"])
    proto.opset_import.append(helper.make_opsetid("my.ops", 1))
    onnx.save(proto, tmp_path / "m.onnx")
    assert main(["explain", str(tmp_path / "m.onnx")]) == 3
    golden("cli/refused", capsys.readouterr().out)
    assert main(["explain", str(tmp_path / "m.onnx"), "--json"]) == 3
    assert report("explain", capsys.readouterr().out)["explanation"] is None


def test_the_first_line_needs_no_compiler() -> None:
    """It is written before anything slow is imported, so it comes at once."""
    program = (
        "import sys, tilewright.cli.compile, tilewright.cli.explain, tilewright.cli.profile, tilewright.cli.doctor\n"
        "import tilewright.cli.repro\n"
        "print(sorted({'onnx', 'llvmlite', 'tilewright.api'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    program = "import sys, tilewright.cli.compile; print(sorted({'numpy', 'rich.progress'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_progress_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with reporting("compiling m", Console(stderr=True), lambda: now) as listen:
        assert capsys.readouterr().err == "compiling m ...\n"
        events: list[tuple[float, Event]] = [
            (1.0, Advanced("schedule", 1, 4, "k0")),
            (2.0, CacheLookup("0" * 64, True)),
            (6.0, Advanced("schedule", 3, 4, "k2")),
            (8.0, Advanced("schedule", 4, 4, "k3")),
            (9.0, Advanced("another step", 4, 4)),
            (16.0, Advanced("code", 4, 4, "k3")),
        ]
        for at, event in events:
            now = at
            listen(event)
    assert capsys.readouterr().err.splitlines() == [
        "schedule: 3 of 4 kernels, about 10 s left",
        "schedule: 4 of 4 kernels, about 8 s left",
        "code: 4 of 4 kernels, about 0 s left",
    ]


def test_the_search_does_not_count_when_the_time_left_is_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with reporting("compiling m", Console(stderr=True), lambda: now) as listen:
        events: list[tuple[float, Event]] = [
            (100.0, StepStarted("superopt")),
            (120.0, Advanced("code", 2, 4, "k1")),
            (200.0, StepFinished("superopt", 100.0)),
            (201.0, Advanced("schedule", 1, 4, "k0")),
            (206.0, Advanced("schedule", 2, 4, "k1")),
        ]
        for at, event in events:
            now = at
            listen(event)
    assert capsys.readouterr().err.splitlines() == [
        "compiling m ...",
        "superopt: searching for a better graph ...",
        "schedule: 2 of 4 kernels, about 18 s left",
    ]


def test_a_search_on_a_terminal() -> None:
    console = Console(force_terminal=True, width=100, record=True)
    with reporting("compiling m", console) as listen:
        listen(StepStarted("superopt"))
        listen(Advanced("code", 2, 2, "finalist"))
    assert "superopt: searching" in (text := console.export_text())
    assert "finalist" not in text
    with reporting("compiling m", console) as listen:
        for event in (StepStarted("superopt"), StepFinished("superopt", 1.0), Advanced("code", 2, 2, "k1")):
            listen(event)
    assert "code k1" in console.export_text()


def test_progress_on_a_terminal() -> None:
    console = Console(force_terminal=True, width=100, record=True)
    with reporting("compiling m", console) as listen:
        listen(Advanced("schedule", 1, 2, "k[0]"))
        listen(Advanced("code", 2, 2, "k1"))
    assert "code k1" in console.export_text()


def test_json_without_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    emit({"a": float("inf"), "b": [1.5, (float("nan"), "x")], "c": {"d": -float("inf"), "e": None}})
    assert capsys.readouterr().out == '{"a": null, "b": [1.5, [null, "x"]], "c": {"d": null, "e": null}}\n'


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    assert main(["doctor", "--no-measure", "--json"]) == 0
    assert report("doctor", capsys.readouterr().out)["measured"] is None
    assert main(["doctor", "--json"]) == 0
    assert report("doctor", capsys.readouterr().out)["measured"] is not None
    assert main(["doctor", "--no-measure"]) == 0
    assert "data caches" in capsys.readouterr().out


def test_doctor_keeps_what_it_measures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_MACHINE", str(tmp_path / "of/machine.json"))
    found = (Finding("near_bytes", 31.0, 0.1, 24.0), Finding("far_bytes", 3.0, 0.9, 10.0, "it varies"))
    monkeypatch.setattr("tilewright.insight.doctor.measure_figures", lambda target, threads: found)
    assert main(["doctor", "--measure", "--json"]) == 0
    figures = report("doctor", capsys.readouterr().out)["figures"]
    assert figures["used"] == {"near_bytes": 31.0}
    assert [one["problem"] for one in figures["found"]] == [None, "it varies"]
    assert Target.parse("host").machine.near_bytes == 31.0
    with pytest.raises(SystemExit):
        main(["doctor", "--measure", "--no-measure"])


def test_repro(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repro", model, "-o", str(tmp_path / "a.zip"), "--json"]) == 0
    assert report("repro", capsys.readouterr().out)["kind"] == "model"
    assert main(["repro", model, "-o", str(tmp_path / "b"), "--kernel", "k1_gemm"]) == 0
    assert f"trace.json; tilewright rerun {tmp_path / 'b'}" in capsys.readouterr().out
    assert (tmp_path / "b" / "program.txt").exists()
    assert main(["repro", model, "--kernel", "k9"]) == 2
    assert "there are k0_gemm_relu, k1_gemm, k2_softmax" in capsys.readouterr().err
    assert main(["rerun", str(tmp_path / "b"), "--json"]) == 0
    assert report("rerun", capsys.readouterr().out)["agree"] is True
    assert main(["rerun", str(tmp_path)]) == 2
    assert "holds no bundle" in capsys.readouterr().err


def test_a_model_for_another_machine(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = ["--target", "riscv64"]
    assert main(["compile", model, "-o", str(tmp_path / "m.tw"), *elsewhere]) == 0
    assert main(["explain", model, *elsewhere]) == 0
    assert main(["profile", model, *elsewhere]) == 3
    assert "riscv64" in capsys.readouterr().err


def test_nobody_reads_the_output(model: str) -> None:
    command = [sys.executable, "-m", "tilewright", "explain", model, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")


def test_explain_tells_consequences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        helper.make_node("CumSum", ["x", "s"], ["wide"], name="cause"),
        helper.make_node("Shape", ["wide"], ["shape"], name="between"),
        helper.make_node("Expand", ["x", "shape"], ["y"], name="effect"),
    ]
    inputs = {"x": np.zeros((3, 4), np.float32), "s": np.array(0)}
    onnx.save(make_model(nodes, inputs, ["y"]), tmp_path / "m.onnx")
    assert main(["explain", str(tmp_path / "m.onnx")]) == 3
    printed = capsys.readouterr().out
    assert "node cause (CumSum): " in printed
    assert ("(perhaps because of a node before it)" in printed) == ("perhaps, too" in printed)

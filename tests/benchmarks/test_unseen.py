"""The programs that no template names: all libraries compute the same, and the contest's rows and table."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy import accuracy
from benchmarks.contest import Terms
from benchmarks.harness import Plan
from benchmarks.results import Results, load
from benchmarks.unseen import __main__ as runner
from benchmarks.unseen.__main__ import ANALYTIC, BY_CLASS, SEARCHED, report, run_program
from benchmarks.unseen.candidates import analytic
from benchmarks.unseen.in_numpy import Array
from benchmarks.unseen.programs import PROGRAMS, Normal, Outputs, Program
from tilewright import te
from tilewright.base.errors import BadInput

EACH = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
PLAN = Plan(rounds=2, slot=0.0, warm_up=0.0, least_runs=2)


def exact(program: Program, feeds: dict[str, Array]) -> list[Array]:
    return [*program.reference(**{name: array.astype(np.float64) for name, array in feeds.items()})]


@EACH
def test_what_is_compiled_is_what_numpy_says(program: Program) -> None:
    outputs = program.outputs(divisor=8)
    feeds = program.feeds(outputs)
    kernel = te.build(te.autoschedule(outputs), threads=1)
    assert accuracy(kernel.run(None, feeds), exact(program, feeds)).element < 1e-4


@EACH
def test_pytorch_computes_the_same(program: Program) -> None:
    torch = pytest.importorskip("torch")
    in_torch = pytest.importorskip("benchmarks.unseen.in_torch")
    feeds = program.feeds(program.outputs(divisor=8))
    made = getattr(in_torch, program.name)(**{name: torch.from_numpy(array) for name, array in feeds.items()})
    assert accuracy([tensor.numpy() for tensor in made], exact(program, feeds)).element < 1e-4


def test_there_are_sixteen_of_fixed_sizes() -> None:
    assert len(PROGRAMS) == 16
    outputs = PROGRAMS["gram"].outputs()
    assert [str(extent) for extent in outputs[0].shape] == ["128", "128"]
    assert [str(extent) for extent in PROGRAMS["gram"].outputs(divisor=64)[0].shape] == ["2", "2"]
    assert PROGRAMS["gram"].feeds(outputs)["x"].shape == (128, 1024)


def small(rows: int) -> Outputs:
    x = te.placeholder((rows,), name="x")
    return (te.compute((rows,), lambda i: 2 * x[i], name="y"),)


def refused(outputs: Outputs) -> te.TeSchedule:
    raise BadInput("no space")


def test_each_way_is_a_row_with_times_or_a_reason() -> None:
    program = Program(small, lambda x: [2 * x], {"rows": 32}, {"x": Normal(5.0, 0.0)})
    assert program.feeds(program.outputs())["x"].tolist() == [5.0] * 32
    first, second = run_program(program, {ANALYTIC: analytic, SEARCHED: refused}, 1, Terms(PLAN, ()))
    assert (first.case, first.peer, first.failure, len(first.slots)) == ("small", ANALYTIC, "", 2)
    assert first.error is not None and first.error.element == 0.0
    assert (second.peer, second.failure) == (SEARCHED, "BadInput: no space")
    table = report(Results(rows=(first, second)))
    assert "| | Tilewright | Tilewright, searched | fastest other / Tilewright, searched |" in table.replace(
        "|  |", "| |"
    )
    assert "| small |" in table
    assert "- small, Tilewright, searched: BadInput: no space" in table


def test_a_wrong_result_is_a_reason() -> None:
    program = Program(small, lambda x: [3 * x], {"rows": 32})
    (row,) = run_program(program, {ANALYTIC: analytic}, 1, Terms(PLAN, ()))
    assert row.failure.startswith("its result is off by 3.3e-01")


def test_the_runner_prints_a_table_and_keeps_the_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "peers", tuple)
    path = tmp_path / "rows.json"
    runner.main(["--only", "wave3d", "--no-search", "--by-class", "--seconds", "0", "--json", str(path)])
    assert "| wave3d |" in capsys.readouterr().out
    rows = load(path).rows
    assert [(row.case, row.threads, row.peer, row.failure) for row in rows] == [
        ("wave3d", 1, ANALYTIC, ""),
        ("wave3d", 1, BY_CLASS, ""),
    ]


def test_unknown_programs_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runner.main(["--only", "gram,nothing"])
    assert "there is no nothing" in capsys.readouterr().err

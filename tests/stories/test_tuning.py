"""Stories of tuning, told as ``docs/tuning.md`` tells them: by the public API and the command line."""

import re
import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.cli.schema import report
from tests.extending.straight_lines import STRAIGHT_LINES
from tests.extending.word_pairs import LANES, PAIRS, vpmaddwd
from tests.frontend.models import model as make_model
from tilewright import te
from tilewright.base.dtypes import i16, i32
from tilewright.cli import main
from tilewright.loops.interpreter import interpret
from tilewright.loops.program import Program
from tilewright.measure.build import shape_of
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Verdict
from tilewright.schedule.schedule import Schedule
from tilewright.space.config import Config, extent
from tilewright.symbolic.expr import Var
from tilewright.tensor.ir import Reduction
from tilewright.tune.kernel_tuner import KernelTuner

pytestmark = pytest.mark.usefixtures("short_turns")
needs_avx2 = pytest.mark.skipif(not tilewright.Target.host().has("avx2"), reason="vpmaddwd is of AVX2")


def words(m: int, n: int, depth: int) -> Program:
    """``C = A B`` in i32, ``B`` stored in pairs of i16."""
    a = te.placeholder((m, depth), i16, "A")
    b = te.placeholder((n // LANES, depth // PAIRS, LANES, PAIRS), i16, "B")
    ko, ki = te.reduce_axis((0, depth // PAIRS), "ko"), te.reduce_axis((0, PAIRS), "ki")

    def product(i: Var, j: Var) -> Reduction:
        left, right = a[i, ko.var * PAIRS + ki.var], b[j // LANES, ko.var, j % LANES, ki.var]
        return te.sum(te.cast(left, i32) * te.cast(right, i32), axis=(ko, ki))

    c = te.compute((m, n), product, name="C")
    return te.create_schedule(c).program


def in_pairs(s: Schedule, config: Config) -> None:
    """A template that uses an intrinsic of one's own."""
    i, j, ko, ki = s.get_loops("C")
    io, ii = s.split(i, config.split("rows", extent(s, i), parts=2, max_factor=4))
    jo, ji = s.split(j, (None, LANES))
    s.reorder(io, jo, ii, ko, ji, ki)
    if config.choice("written out", (0, 1)):
        s.unroll(ii)
    s.tensorize(ji, vpmaddwd())


@needs_avx2
def test_a_template_with_an_intrinsic_of_ones_own_is_tuned(tmp_path: Path) -> None:
    program = words(8, 16, 8)
    path = tmp_path / "r.db"
    best = tilewright.tune_kernel(program, template=in_pairs, trials=4, cost_model=STRAIGHT_LINES, records=path)
    with Records.open(path) as records:
        kept = list(records.all())
    assert {record.outcome.verdict for record in kept} == {Verdict.OK}
    assert sum(bool(record.job.intrinsics) for record in kept) >= 4
    assert not best.is_kept or "pairs" not in str(best.schedule.program), "compile does not know the intrinsic"
    random = np.random.default_rng(0)
    inputs = {b.name: random.integers(-99, 99, shape_of(b), np.int16) for b in program.inputs}
    (found,), (expected,) = (interpret(p, inputs).values() for p in (best.schedule.program, program))
    np.testing.assert_array_equal(found, expected)


WRONG: list[tuple[dict[str, object], str]] = [
    ({"trials": 0}, "trials=0: give a whole number from 1"),
    ({"threads": 0}, "threads=0"),
    ({"search": "up"}, "no search called 'up'; there is annealing"),
    ({"cost_model": "up"}, "no cost model called 'up'; there is random"),
    ({"records": "/nowhere/r.db"}, "/nowhere/r.db"),
    ({"template": 3}, "template=3"),
]


@pytest.mark.parametrize(("given", "said"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_wrong_arguments_are_refused_before_anything_is_measured(
    given: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.tune.kernel.Pool", None)  # starting processes would raise a TypeError
    with pytest.raises(tilewright.BadInput, match=re.escape(said)):
        tilewright.tune_kernel(words(8, 16, 8), **given)  # pyright: ignore[reportArgumentType]


def interrupted(_: KernelTuner) -> None:
    """Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def test_tune_interrupt_resume_explain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {"w": np.ones((40, 24), np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    net, path = tmp_path / "net.onnx", tmp_path / "records.db"
    onnx.save(make_model(nodes, {"x": np.zeros((20, 40), np.float32)}, ["y"], weights), net)
    own = [str(net), "--threads", "1", "--records", str(path)]
    assert main(["explain", *own]) == 2, "there are no records yet"

    with monkeypatch.context() as patched:
        patched.setattr(KernelTuner, "confirm", interrupted)
        assert main(["tune", *own, "--minutes", "0.001"]) == 130
    assert "the same command goes on from there" in " ".join(capsys.readouterr().err.split())
    assert main(["explain", *own, "--json"]) == 0
    assert "not confirmed yet: the search was interrupted" in capsys.readouterr().out

    with Records.open(path) as records:
        measured = len(list(records.all()))
    assert main(["tune", *own, "--minutes", "0.001", "--json"]) == 0
    told = report("tune", capsys.readouterr().out)
    with Records.open(path) as records:
        assert len(list(records.all())) - measured == told["measured"], "nothing was measured twice"
    assert main(["explain", *own, "--json"]) == 0
    became = capsys.readouterr().out
    assert "schedules measured" in became
    assert ("; confirmed" if told["kept"] else "; withdrawn") in became
    assert main(["explain", str(net), "--threads", "2", "--records", str(path), "--json"]) == 0
    assert "records exist for threads=1, none for threads=2" in capsys.readouterr().out

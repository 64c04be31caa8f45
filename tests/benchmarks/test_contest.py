"""A contest between a peer that works and one that does not."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.compilation import compile_and_load
from benchmarks.contest import Case, Terms, run_case
from benchmarks.harness import Plan
from benchmarks.work import Work
from benchmarks.zoo.samples import Sample

PLAN = Plan(rounds=2, slot=0.0, warm_up=0.0, least_runs=2)
SAMPLE = Sample({"x": np.zeros(4, np.float32)}, {"y": np.ones(4)})


def write_model(path: Path, operator: str = "Exp") -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], name="node")], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def case(folder: Path, work: Work) -> Case:
    write_model(folder / "exp.onnx")
    inputs = [np.array([0.0, 0.5, 1.0, k], np.float32) for k in range(2)]
    samples = [Sample({"x": x}, {"y": np.exp(x.astype(np.float64))}) for x in inputs]
    return Case("exp", folder / "exp.onnx", samples, "benchmarks.no_such_module:module_of", work)


def test_a_peer_that_fails_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    peers = ("onnxruntime", "torch_eager", "tilewright")
    first, broken, last = run_case(case(tmp_path, Work(8.0, 8.0, 0.0)), 1, Terms(PLAN, peers))
    assert [first.peer, broken.peer, last.peer] == list(peers)
    for row in (first, last):
        assert row.failure == ""
        assert len(row.slots) == 2
        assert row.median > 0
        assert row.error is not None
        assert 0 < row.error.norm < 1e-6
    assert broken.failure.startswith("ModuleNotFoundError: No module named ")
    assert broken.slots == ()


def test_a_run_that_is_too_fast_is_an_error_of_the_benchmark(tmp_path: Path) -> None:
    (row,) = run_case(case(tmp_path, Work(1e15, 1e15, 0.0)), 1, Terms(PLAN, ("onnxruntime",)))
    assert row.failure.startswith("faster than the roofline's ")


def test_compiling_and_loading_is_timed(tmp_path: Path) -> None:
    write_model(tmp_path / "exp.onnx")
    times = compile_and_load("exp", tmp_path / "exp.onnx", SAMPLE, 1, 60.0)
    assert times.failure == ""
    assert min(times.cold, times.warm, times.artifact, times.cold_cpu, times.warm_cpu, times.artifact_cpu) > 0
    assert times.artifact_bytes > 1000


def test_what_does_not_compile_says_why(tmp_path: Path) -> None:
    write_model(tmp_path / "bad.onnx", operator="NoSuchOperator")
    times = compile_and_load("bad", tmp_path / "bad.onnx", SAMPLE, 1, 60.0)
    assert "NoSuchOperator" in times.failure
    assert "." not in times.failure.partition(":")[0], "the class alone, as rows have it"

"""The command from end to end, on a zoo of one small model."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import networks
from benchmarks.results import load
from benchmarks.tables import report
from benchmarks.zoo import quantized_path
from benchmarks.zoo.samples import Sample, save_samples

QUICK = ["--networks", "mlp", "--peers", "onnxruntime,tilewright", "--threads", "1", "--seconds", "0.01"]


def write_zoo(folder: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "mlp.onnx")
    feeds = np.linspace(0, 1, 4, dtype=np.float32)
    save_samples(folder / "mlp.npz", [Sample({"x": feeds}, {"y": np.exp(feeds.astype(np.float64))})])


def test_results_are_stored_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_zoo(tmp_path)
    stored = tmp_path / "results.json"
    networks.main([*QUICK, "--zoo", str(tmp_path), "--results", str(stored)])
    results = load(stored)
    assert [(row.case, row.peer, row.failure) for row in results.rows] == [("mlp", p, "") for p in QUICK[3].split(",")]
    assert [c.case for c in results.compilations] == ["mlp"]
    printed = capsys.readouterr().out
    assert printed.startswith("mlp, threads: 1\n")
    assert printed.endswith(report(results) + "\n")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"mlp\.onnx is missing: run `python -m benchmarks\.zoo"):
        networks.main([*QUICK, "--zoo", str(tmp_path), "--latency-only"])


def test_int8_models_are_compared_with_the_exact_network(tmp_path: Path) -> None:
    write_zoo(tmp_path)
    options = [*QUICK, "--zoo", str(tmp_path), "--latency-only", "--precision", "int8"]
    with pytest.raises(
        FileNotFoundError, match=r"int8/mlp\.onnx is missing: run `python -m benchmarks\.zoo\.quantized"
    ):
        networks.main([*options, "--results", str(tmp_path / "none.json")])
    path = quantized_path("mlp", tmp_path)
    path.parent.mkdir()
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["d"]),
        helper.make_node("Exp", ["d"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    scale = numpy_helper.from_array(np.float32(1 / 100), "scale")
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [scale])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    networks.main([*options, "--results", str(tmp_path / "results.json")])
    errors = [row.error for row in load(tmp_path / "results.json").rows]
    assert len(errors) == 2
    assert all(error is not None and 1e-4 < error.element < 1e-2 for error in errors), "those of steps of 1 / 100"

"""The parts of the zoo that need no torch; `python -m benchmarks.zoo` itself checks every file it writes."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.accuracy import out_of_scale
from benchmarks.zoo.census import census
from benchmarks.zoo.samples import Sample, load_samples, save_samples


def test_samples_come_back_as_they_were_saved(tmp_path: Path) -> None:
    samples = [
        Sample({"x.y": np.arange(6, dtype=np.float32) + k, "ids": np.array([k])}, {"z": np.array([1.5 * k])})
        for k in range(11)
    ]
    save_samples(tmp_path / "some.npz", samples)
    again = load_samples(tmp_path / "some.npz")
    assert len(again) == 11
    for sample, expected in zip(again, samples, strict=True):
        assert sample.inputs.keys() == {"x.y", "ids"}
        assert all(np.array_equal(sample.inputs[name], array) for name, array in expected.inputs.items())
        assert sample.inputs["x.y"].dtype == np.float32
        assert sample.outputs["z"] == expected.outputs["z"]


def test_out_of_scale_names_what_vanishes_and_explodes() -> None:
    deviations = {"fine": 1.0, "least": 0.1, "most": 10.0, "faint": 0.09, "loud": 11.0, "broken": float("nan")}
    assert list(out_of_scale(deviations)) == ["faint", "loud", "broken"]


def test_census_counts_nodes_in_branches(tmp_path: Path) -> None:
    branch = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["n"])],
        "branch",
        [],
        [helper.make_tensor_value_info("n", TensorProto.FLOAT, [2])],
    )
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    graph = helper.make_graph(
        nodes,
        "main",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "small.onnx")
    first, total = census([tmp_path / "small.onnx"]).splitlines()
    assert first == "small: 4 nodes, opset ai.onnx 17: Neg 2, Abs 1, If 1"
    assert total == "all: 4 nodes, 3 operators: Neg 2, Abs 1, If 1"

"""Operators as older opsets spell them, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper

from tests.frontend.models import model, run_onnxruntime, single_node
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph, verify

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4) / 7
OLD = {
    "Squeeze": single_node("Squeeze", {"x": X}, opset=11, axes=[0]),
    "Unsqueeze": single_node("Unsqueeze", {"x": X}, opset=11, axes=[0, 3]),
    "Slice": single_node("Slice", {"x": X}, opset=9, starts=[1, -3], ends=[2, -1], axes=[1, 3]),
    "Clip": single_node("Clip", {"x": X}, opset=7, min=0.5, max=2.0),
    "Clip below": single_node("Clip", {"x": X}, opset=10, max=2.0),
    "Softmax": single_node("Softmax", {"x": X}, opset=12),
    "Softmax from the last but one axis": single_node("Softmax", {"x": X}, opset=11, axis=-2),
    "ReduceSum": single_node("ReduceSum", {"x": X}, opset=12, axes=[1, 2], keepdims=0),
    "Gemm": single_node("Gemm", {"a": X[0, 0], "b": X[0, 1], "c": X[0, 0, :, :3]}, opset=7, transB=1),
    "Not, unchanged since the first": single_node("Not", {"x": X > 1}, opset=1),
}


@pytest.mark.parametrize("name", OLD)
def test_old_forms(name: str) -> None:
    proto = OLD[name]
    graph = importer.load(proto)
    verify(graph)
    names = {info.name for info in proto.graph.input}
    known = {"x": X > 1 if name.startswith("Not") else X, "a": X[0, 0], "b": X[0, 1], "c": X[0, 0, :, :3]}
    feeds = {name: np.ascontiguousarray(known[name]) for name in names}
    for ours, theirs in zip(evaluate_graph(graph, feeds), run_onnxruntime(proto, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_two_names_of_the_own_domain() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    proto.opset_import[0].domain = "ai.onnx"
    proto.graph.node[0].domain = "ai.onnx"
    assert [node.op.name for node in importer.load(proto).nodes] == ["Relu"]

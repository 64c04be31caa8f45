"""What the importer makes of good models; `test_bad_models.py` has the others."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.models import model, run_onnxruntime, single_node
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph, verify
from tilewright.symbolic.expr import Extent, const

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_a_file_and_a_proto_give_the_same(tmp_path: Path) -> None:
    proto = single_node("Relu", {"x": X})
    onnx.save(proto, tmp_path / "m.onnx")
    assert str(importer.load(tmp_path / "m.onnx")) == str(importer.load(proto))
    assert str(importer.load(str(tmp_path / "m.onnx"))) == str(importer.load(proto))


def test_external_data(tmp_path: Path) -> None:
    proto = single_node("Add", {"x": X}, {"c": np.ones(4, np.float32)})
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    graph = importer.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(evaluate_graph(graph, {"x": X})[0], X + 1)


def symbolic(*shapes: list[int | str]) -> onnx.ModelProto:
    """The sum of inputs x0, x1 ... with the given shapes."""
    infos = [helper.make_tensor_value_info(f"x{i}", 1, shape) for i, shape in enumerate(shapes)]
    node = helper.make_node("Sum", [info.name for info in infos], ["y"])
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def test_dimensions_by_name() -> None:
    proto = symbolic(["batch", 3], ["batch", 1])
    assert importer.load(proto).outputs[0].shape == (Extent("n0", label="batch"), const(3))
    both = importer.load(proto, {"x0": (8, 3)})
    assert [v.shape for v in both.inputs] == [(const(8), const(3)), (const(8), const(1))]
    assert importer.load(proto, {"x1": ("n", 1)}).inputs[0].shape == (Extent("n0", label="n"), const(3))


def test_dimensions_without_a_name_are_apart() -> None:
    info = helper.make_tensor_value_info("x", 1, [None, None])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info], [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert importer.load(proto).inputs[0].shape == (Extent("n0", label="x_0"), Extent("n1", label="x_1"))


def test_an_unknown_rank_is_given_by_shapes() -> None:
    info = onnx.ValueInfoProto(name="x")
    info.type.tensor_type.elem_type = 1
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info], [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert importer.load(proto, {"x": (2, "n")}).outputs[0].shape == (const(2), Extent("n0", label="n"))


def test_computations_on_shapes_are_done_at_import() -> None:
    """Reshape to a shape that the exporter computes from the input's, as exporters do."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["rows"]),
        helper.make_node("Mul", ["rows", "four"], ["size"]),
        helper.make_node("Unsqueeze", ["size", "zero"], ["size1"]),
        helper.make_node("Shape", ["x"], ["first"], start=0, end=1),
        helper.make_node("Concat", ["first", "size1"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"one": np.array(1), "four": np.array(4), "zero": np.array([0])}
    proto = model(nodes, {"x": X}, ["y"], constants)
    graph = importer.load(proto)
    verify(graph)
    assert [node.op.name for node in graph.nodes] == ["Reshape"]
    np.testing.assert_array_equal(evaluate_graph(graph, {"x": X})[0], run_onnxruntime(proto, {"x": X})[0])


def test_constants_in_every_spelling() -> None:
    values: dict[str, object] = {
        "value": onnx.numpy_helper.from_array(np.array([1, 2], np.float32)),
        "value_float": 2.5,
        "value_floats": [1.0, 2.0],
    }
    for name, given in values.items():
        constant = helper.make_node("Constant", [], ["c"], **{name: given})
        proto = model([constant, helper.make_node("Add", ["x", "c"], ["y"])], {"x": X[0, :, :2]}, ["y"])
        feeds = {"x": X[0, :, :2]}
        np.testing.assert_array_equal(evaluate_graph(importer.load(proto), feeds)[0], run_onnxruntime(proto, feeds)[0])


def test_outputs_that_no_node_makes_are_copied() -> None:
    nodes = [helper.make_node("Add", ["x", "c"], ["y"])]
    proto = model(nodes, {"x": X}, ["y", "c", "x"], {"c": np.ones(4, np.float32)})
    graph = importer.load(proto)
    verify(graph)
    made = {v for node in graph.nodes for v in node.outputs}
    assert made.issuperset(graph.outputs)
    assert [v.name for v in graph.outputs] == ["y", "c", "x.copy"]
    for result, expected in zip(evaluate_graph(graph, {"x": X}), [X + 1, np.ones(4), X], strict=True):
        np.testing.assert_array_equal(result, expected)


def test_the_copy_of_an_output_has_a_name_of_its_own() -> None:
    graph = importer.load(model([helper.make_node("Neg", ["x"], ["x.copy"])], {"x": X}, ["x", "x.copy"]))
    verify(graph)
    for result, expected in zip(evaluate_graph(graph, {"x": X}), [X, -X], strict=True):
        np.testing.assert_array_equal(result, expected)


def test_outputs_left_out() -> None:
    x, scale = X[0], np.ones(4, np.float32)
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y", "", "inverse"])
    proto = model([node], {"x": x, "scale": scale}, ["y", "inverse"], opset=17)
    graph = importer.load(proto)
    for result, expected in zip(
        evaluate_graph(graph, {"x": x, "scale": scale}),
        run_onnxruntime(proto, {"x": x, "scale": scale}),
        strict=True,
    ):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_old_models_list_constants_among_the_inputs() -> None:
    proto = single_node("Add", {"x": X}, {"c": np.ones(4, np.float32)})
    proto.graph.input.append(helper.make_tensor_value_info("c", 1, [4]))
    assert [v.name for v in importer.load(proto).inputs] == ["x"]


@pytest.mark.parametrize("name", ["a\nb", "../../etc/passwd", "x" * 100_000, "ünïcode", "\x1b[31m"])
def test_names_may_be_anything(name: str) -> None:
    graph = importer.load(single_node("Relu", {name: X}))
    np.testing.assert_array_equal(evaluate_graph(graph, {name: X})[0], X)

"""Small things to start from: models, artifacts, databases of records."""

import tempfile
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.base.settings import Settings


def settings(folder: Path) -> Settings:
    """Settings under which nothing of the user's is read or written."""
    return Settings(key_dir=folder)


@cache
def sample_artifact(dynamic: bool) -> dict[str, bytes]:
    """The members of a small artifact, in order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tw"
        shape: list[int | str] = ["n", 3] if dynamic else [2, 3]
        model = tilewright.compile(product(shape), threads=1, settings=settings(Path(folder)))
        model.save(path, signed=False)
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def product(shape: list[int | str]) -> onnx.ModelProto:
    """Rows times weights, then a concatenation, so that an extent is computed from another."""
    weights = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Concat", ["p", "p"], ["y"], name="twice", axis=0),
    ]
    return _model(nodes, shape, [weights])


def models() -> Iterator[onnx.ModelProto]:
    """Models in which many kinds of fields are there to be changed."""
    yield product([2, 3])
    yield product(["n", 3])
    kernel = numpy_helper.from_array(np.ones((2, 1, 3, 3), dtype=np.float32), "k")
    yield _model(
        [
            helper.make_node("Conv", ["x", "k"], ["c"], name="conv", pads=[1, 1, 1, 1], strides=[1, 1], group=1),
            helper.make_node("MaxPool", ["c"], ["y"], name="pool", kernel_shape=[2, 2], ceil_mode=1),
        ],
        ["n", 1, 5, 5],
        [kernel],
    )
    picked = numpy_helper.from_array(np.array([0, -1, 1], dtype=np.int64), "i")
    shape = numpy_helper.from_array(np.array([0, -1], dtype=np.int64), "s")
    yield _model(
        [
            helper.make_node("Gather", ["x", "i"], ["g"], name="gather", axis=1),
            helper.make_node("Reshape", ["g", "s"], ["r"], name="reshape"),
            helper.make_node("Softmax", ["r"], ["y"], name="softmax", axis=-1),
        ],
        [2, 3, 4],
        [picked, shape],
    )
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["b"])],
        "then",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    yield _model(
        [
            helper.make_node("Constant", [], ["t"], value=numpy_helper.from_array(np.array(True))),
            helper.make_node("If", ["t"], ["y"], name="if", then_branch=branch, else_branch=branch),
        ],
        [2],
        [],
    )


def _model(nodes: list[onnx.NodeProto], shape: list[int | str], constants: list[onnx.TensorProto]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

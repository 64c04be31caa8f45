"""Small networks with random weights: a convolutional one, and a block of a transformer."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.arrays import Array

Shape = Sequence[int]


def lenet() -> onnx.ModelProto:
    weights = {"w1": (6, 1, 5, 5), "w2": (8, 6, 5, 5), "w3": (32, 128), "b3": (32,), "w4": (10, 32)}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"]),
        helper.make_node("Tanh", ["c2"], ["r2"]),
        helper.make_node("MaxPool", ["r2"], ["p2"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p2"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["g"], transB=1),
        helper.make_node("Floor", ["g"], ["whole"]),
        helper.make_node("Sub", ["g", "whole"], ["rest"]),
        helper.make_node("Gemm", ["rest", "w4"], ["l"], transB=1),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]
    return _model(nodes, {"x": (1, 1, 28, 28)}, {"y": (1, 10), "rest": (1, 32)}, weights)


def transformer_block(length: int = 12, width: int = 16) -> onnx.ModelProto:
    """Attention with one head, normalizations, and a feed-forward part."""
    inner = 2 * width
    weights = {name: (width, width) for name in ("wq", "wk", "wv", "wo")}
    weights |= {"w1": (width, inner), "w2": (inner, width), "scale": (width,), "bias": (width,)}
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["n1"]),
        *(helper.make_node("MatMul", ["n1", f"w{name}"], [name]) for name in "qkv"),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["mixed"]),
        helper.make_node("MatMul", ["mixed", "wo"], ["o"]),
        helper.make_node("Add", ["x", "o"], ["r1"]),
        helper.make_node("LayerNormalization", ["r1", "scale", "bias"], ["n2"]),
        helper.make_node("MatMul", ["n2", "w1"], ["h1"]),
        helper.make_node("Gelu", ["h1"], ["h2"]),
        helper.make_node("MatMul", ["h2", "w2"], ["h3"]),
        helper.make_node("Add", ["r1", "h3"], ["y"]),
    ]
    return _model(nodes, {"x": (1, length, width)}, {"y": (1, length, width)}, weights)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
    weights: Mapping[str, Shape],
) -> onnx.ModelProto:
    random = np.random.default_rng(1)
    arrays = {name: random.standard_normal(shape) / np.sqrt(np.prod(shape[1:])) for name, shape in weights.items()}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def sample(shape: Shape) -> Array:
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def opened(model: onnx.ModelProto, names: Mapping[int, str]) -> onnx.ModelProto:
    """``model`` with these axes of its inputs and outputs open."""
    for value in (*model.graph.input, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        for axis, name in names.items():
            dims[axis].dim_param = name
    return model


def halved() -> onnx.ModelProto:
    """Pairs of rows are added, so the output has ``n // 2`` of them."""
    nodes = [
        helper.make_node("Slice", ["x", "zero", "end", "axis", "two"], ["even"]),
        helper.make_node("Slice", ["x", "one", "end", "axis", "two"], ["odd"]),
        helper.make_node("Shape", ["odd"], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "one", "zero"], ["rows"]),
        helper.make_node("Slice", ["even", "zero", "rows", "axis"], ["first"]),
        helper.make_node("Add", ["first", "odd"], ["y"]),
    ]
    made = _model(nodes, {"x": (8, 3)}, {"y": (4, 3)}, {})
    numbers = {"zero": 0, "one": 1, "two": 2, "axis": 0, "end": (1 << 63) - 1}
    made.graph.initializer.extend(numpy_helper.from_array(np.array([n], np.int64), name) for name, n in numbers.items())
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    return made

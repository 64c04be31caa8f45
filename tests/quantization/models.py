"""Small models with random weights, and samples for them."""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from tests.frontend.models import Array, model

Floats = NDArray[np.float32]
N = helper.make_node


def normal(seed: int, *shape: int, scale: float = 1.0) -> Floats:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def opened_batch(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto`` with an open batch."""
    for value in proto.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return proto


def convolutions() -> onnx.ModelProto:
    """A residual network: batch normalization, a depthwise convolution, an addition, both kinds of pooling."""
    nodes = [
        N("Conv", ["x", "w0"], ["c0"], name="conv0", pads=[1, 1, 1, 1]),
        N("BatchNormalization", ["c0", "gain", "shift", "mean", "variance"], ["n0"], name="norm"),
        N("Relu", ["n0"], ["r0"], name="relu0"),
        N("Conv", ["r0", "w1", "b1"], ["c1"], name="depthwise", pads=[1, 1, 1, 1], group=8),
        N("Clip", ["c1", "zero", "six"], ["r1"], name="relu6"),
        N("Add", ["r0", "r1"], ["sum"], name="add"),
        N("Relu", ["sum"], ["r2"], name="relu2"),
        N("MaxPool", ["r2"], ["pool"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        N("Conv", ["pool", "w3", "b1"], ["c3"], name="conv3", strides=[2, 2]),
        N("Relu", ["c3"], ["r3"], name="relu3"),
        N("GlobalAveragePool", ["r3"], ["mean3"], name="average"),
        N("Flatten", ["mean3"], ["flat"], name="flatten"),
        N("Gemm", ["flat", "w4", "b4"], ["y"], name="classes", transB=1),
    ]
    constants: dict[str, Array] = {
        "w0": normal(1, 8, 3, 3, 3, scale=0.3),
        "gain": 1 + normal(2, 8, scale=0.1),
        "shift": normal(3, 8, scale=0.3),
        "mean": normal(4, 8, scale=0.1),
        "variance": np.abs(1 + normal(5, 8, scale=0.1)),
        "w1": normal(6, 8, 1, 3, 3, scale=0.5),
        "b1": normal(7, 8, scale=0.1),
        "zero": np.array(0, np.float32),
        "six": np.array(6, np.float32),
        "w3": normal(9, 8, 8, 3, 3, scale=0.2),
        "w4": normal(10, 5, 8, scale=0.5),
        "b4": normal(11, 5, scale=0.1),
    }
    return opened_batch(model(nodes, {"x": normal(0, 1, 3, 10, 10)}, ["y"], constants))


def perceptron() -> onnx.ModelProto:
    """Two layers; the second nearly ignores a channel of its activation that is 3000 times as large as the others."""
    large, small = np.ones(16, np.float32), np.ones((16, 1), np.float32)
    large[3], small[3] = 3000, 1e-5
    nodes = [
        N("MatMul", ["x", "w0"], ["p0"], name="first"),
        N("Add", ["p0", "b0"], ["s0"], name="bias"),
        N("Relu", ["s0"], ["h"], name="relu"),
        N("Mul", ["h", "large"], ["scaled"], name="scale"),
        N("Sin", ["scaled"], ["waves"], name="waves"),  # keeps the scale from being folded into the first weight
        N("Add", ["scaled", "waves"], ["g"], name="mixed"),
        N("MatMul", ["g", "w1"], ["z"], name="hurt"),
    ]
    constants: dict[str, Array] = {
        "w0": normal(1, 8, 16, scale=0.5),
        "b0": normal(2, 16, scale=0.2),
        "large": large,
        "w1": normal(3, 16, 4, scale=0.5) * small,
    }
    return opened_batch(model(nodes, {"x": normal(0, 1, 8)}, ["z"], constants))


def attention() -> onnx.ModelProto:
    """Attention with two heads, of fixed sizes: products of activations."""
    nodes = [
        N("MatMul", ["x", "wq"], ["pq"], name="query"),
        N("Add", ["pq", "bq"], ["q"], name="bias"),
        N("MatMul", ["x", "wk"], ["k"], name="key"),
        N("MatMul", ["x", "wv"], ["v"], name="value"),
        *(N("Reshape", [name, "heads"], [f"{name}4"], name=f"split_{name}") for name in "qkv"),
        *(N("Transpose", [f"{name}4"], [f"{name}h"], name=f"heads_{name}", perm=[0, 2, 1, 3]) for name in "qv"),
        N("Transpose", ["k4"], ["kh"], name="heads_k", perm=[0, 2, 3, 1]),
        N("MatMul", ["qh", "kh"], ["scores"], name="scores"),
        N("Softmax", ["scores"], ["weights"], name="softmax"),
        N("MatMul", ["weights", "vh"], ["mixed"], name="mix"),
        N("Transpose", ["mixed"], ["m4"], name="back", perm=[0, 2, 1, 3]),
        N("Reshape", ["m4", "flat"], ["m"], name="join"),
        N("MatMul", ["m", "wo"], ["o"], name="out"),
        N("Add", ["o", "x"], ["y"], name="residual"),
    ]
    weights = {f"w{name}": normal(seed, 16, 16, scale=0.25) for seed, name in enumerate("qkvo", 1)}
    shapes = {"heads": np.array([2, 6, 2, 8]), "flat": np.array([2, 6, 16])}
    constants: dict[str, Array] = {**weights, "bq": normal(9, 16, scale=0.1), **shapes}
    return model(nodes, {"x": normal(0, 2, 6, 16)}, ["y"], constants)

"""Nodes whose operands or attributes do not fit their operator: refused by name, before anything large is made."""

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from tests.ops.nodes import NodeCase, check
from tilewright.base.errors import InvalidModel, ResourceLimit, TilewrightError, UnsupportedModel
from tilewright.frontend.onnx.read import importer

Array = NDArray[np.generic]
HUGE = 1 << 40
RECURRENT = {"hidden_size": 4}
STEPS, W, R = np.zeros((3, 1, 2), np.float32), np.zeros((1, 16, 2), np.float32), np.zeros((1, 16, 4), np.float32)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def number(value: float) -> Array:
    return np.array(value, np.float32)


def bytes_(*shape: int) -> Array:
    return np.ones(shape, np.uint8)


def tensor_of(*values: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.float32))


def unpooled(output: Array) -> NodeCase:
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    return NodeCase("MaxUnpool", [zeros(1, 1, 2, 2), np.zeros((1, 1, 2, 2), np.int64)], window, [output])


def resized(*constants: Array | None, **attributes: object) -> NodeCase:
    return NodeCase("Resize", [zeros(4)], attributes, constants)


def quantized(x_zero: Array, y_zero: Array) -> NodeCase:
    constants = [number(1), x_zero, bytes_(1, 1, 1, 1), number(1), bytes_(), number(1), y_zero]
    return NodeCase("QLinearConv", [bytes_(2, 1, 3, 3)], {}, constants)


def grouped(elements: int) -> NodeCase:
    return NodeCase("GroupNormalization", [zeros(2, 4, 3), zeros(elements), zeros(elements)], {"num_groups": 2})


CROP = {"coordinate_transformation_mode": "tf_crop_and_resize"}
MEL = [np.array(16), np.array(8000), number(0)]
BAD: list[tuple[NodeCase, type[TilewrightError], str]] = [
    (NodeCase("Range", [], {}, [np.array(x) for x in (-1e308, 1e308, 1e-308)]), ResourceLimit, "use a larger step"),
    (NodeCase("Range", [], {}, [np.array(x) for x in (0, HUGE, 1)]), ResourceLimit, "use a larger step"),
    (NodeCase("ConstantOfShape", [], {"value": tensor_of(1, 2)}, [ints(2)]), InvalidModel, "value has 2 elements"),
    (NodeCase("HannWindow", [], {}, [np.array(HUGE)]), UnsupportedModel, "more than 16777216"),
    (NodeCase("MelWeightMatrix", [], {}, [np.array(HUGE), *MEL, number(9)]), UnsupportedModel, "more than 16777216"),
    (NodeCase("MelWeightMatrix", [], {}, [np.array(4), *MEL, number(np.inf)]), InvalidModel, "be finite"),
    (NodeCase("STFT", [zeros(1, 8, 1)], {}, [np.array(2), number(1)]), InvalidModel, "should be a vector"),
    (NodeCase("Split", [zeros(4)], {"num_outputs": HUGE}, outputs=2), InvalidModel, "more than the 4 elements"),
    (NodeCase("GatherND", [zeros(2, 3)], {}, [np.array(1)]), InvalidModel, "must be up to 2 coordinates"),
    (NodeCase("ScatterND", [zeros(2, 3)], {}, [np.array(1), zeros(3)]), InvalidModel, "must be up to 2 coordinates"),
    (resized(None, np.array([3e38], np.float32)), ResourceLimit, "use smaller scales"),
    (resized(None, np.array([2], np.float32), axes=[5]), InvalidModel, r"node n \(Resize\): axis 5"),
    (resized(np.array([np.nan, 1], np.float32), None, ints(2), **CROP), InvalidModel, "2 finite numbers"),
    (grouped(6), InvalidModel, r"the scale .* should have the shape \[4\]"),
    (grouped(2), InvalidModel, r"the scale .* should have the shape \[4\]"),
    (NodeCase("LSTM", [zeros(3, 2)], RECURRENT, [W, R]), InvalidModel, "input 0, .* should have 3 dimensions"),
    (NodeCase("LSTM", [STEPS], RECURRENT, [number(1), R]), InvalidModel, "input 1, .* should have 3 dimensions"),
    (NodeCase("LSTM", [STEPS], RECURRENT, [W, R, zeros(1, 33)]), InvalidModel, "should have 32 elements"),
    (NodeCase("LSTM", [STEPS], {**RECURRENT, "layout": 5}, [W, R]), InvalidModel, "layout is 5; it must be 0 or 1"),
    (NodeCase("LSTM", [STEPS], {**RECURRENT, "clip": np.nan}, [W, R]), InvalidModel, "the clip threshold is nan"),
    (
        NodeCase("TensorScatter", [zeros(2, 4, 5), zeros(2, 1, 5), ints(1)], {"axis": 1}, opset=24),
        InvalidModel,
        r"the write_indices .* should be integers\[2\]",
    ),
    (NodeCase("Col2Im", [zeros(1, 9, 1)], {}, [ints(1, 1), ints(3, 3)]), InvalidModel, r"must have the shape \[N, C"),
    (quantized(bytes_(2), bytes_()), InvalidModel, "the zero point .* should be one number"),
    (quantized(bytes_(), bytes_(3)), InvalidModel, "the zero point .* should be one number"),
    (NodeCase("AffineGrid", [zeros(3, 2, 3)], {}, [ints(2, 1, 4, 4)]), InvalidModel, "the first extents must agree"),
    (unpooled(ints(1, 1, 2, 2)), InvalidModel, r"it must be at least \[4, 4\] in space"),
]


@pytest.mark.parametrize(("case", "error", "message"), BAD, ids=[str(case) for case, *_ in BAD])
def test_refusals(case: NodeCase, error: type[TilewrightError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        importer.load(case.model())
    assert str(caught.value).startswith(f"node n ({case.op})")


@pytest.mark.parametrize(
    "case",
    [
        resized(None, None, ints(0), mode="linear", antialias=1),
        resized(None, np.array([1e-30], np.float32), mode="cubic", antialias=1),
    ],
    ids=["sizes", "scales"],
)
def test_a_line_that_shrinks_to_nothing(case: NodeCase) -> None:
    graph = importer.load(case.model())
    assert [str(extent) for extent in graph.outputs[0].shape] == ["0"]


def test_a_response_to_more_channels_than_there_are() -> None:
    """Only those that are there count, and take time."""
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    square = np.square(x).sum(axis=1, keepdims=True)
    size = HUGE + 1
    expected = x / (1 + np.float32(1e12 / size) * square) ** 0.75
    check(NodeCase("LRN", [x], {"size": size, "alpha": 1e12}, oracle=lambda *_: [expected.astype(np.float32)]))

"""Counts of operations against brute force, and the roof."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.work import Roof, Work, run_shapes, work_of


def model(node: onnx.NodeProto, feeds: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    outputs = [helper.make_empty_tensor_value_info(node.output[0])]
    graph = helper.make_graph([node], "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def counted(op: str, source: Sequence[int], weights: Sequence[Sequence[int]], **attributes: object) -> Work:
    """The work of one node; shapes come from a run, as they do for networks."""
    feeds = {"x": np.ones(source, np.float32)}
    constants = {f"w{index}": np.ones(shape, np.float32) for index, shape in enumerate(weights)}
    outputs = ["", "h"] if op == "LSTM" else ["y"]
    node = helper.make_node(op, ["x", *constants], outputs, **attributes)
    if op == "LSTM":
        node.output[0] = "y"
    made = model(node, feeds, constants)
    return work_of(made, run_shapes(made, feeds))


def taps(size: int, result: int, kernel: int, stride: int, dilation: int, pad: int) -> int:
    """Multiplications along one dimension that meet an element, not padding."""
    places = (o * stride + k * dilation - pad for o, k in product(range(result), range(kernel)))
    return sum(0 <= place < size for place in places)


def test_convolution_with_stride_leaves_out_padding() -> None:
    work = counted("Conv", (1, 4, 9, 9), [(8, 2, 3, 3)], group=2, strides=[3, 3], pads=[1, 1, 1, 1])
    assert work.flops == 2 * 3 * 3 * 8 * 2 * 9
    assert work.least == pytest.approx(2 * taps(9, 3, 3, 3, 1, 1) ** 2 * 8 * 2)
    assert work.bytes == 8 * 2 * 9 * 4  # not the input, which larger strides step over; the output's shape is unknown


def test_convolution_with_same_padding() -> None:
    work = counted("Conv", (1, 1, 11), [(1, 1, 3)], auto_pad="SAME_LOWER", strides=[3])
    assert work.least == pytest.approx(2 * taps(11, 4, 3, 3, 1, 1))  # 1 of padding, before


def test_convolution_with_dilation() -> None:
    work = counted("Conv", (1, 1, 10), [(1, 1, 4)], dilations=[2], strides=[4], pads=[3, 2])
    assert work.least == pytest.approx(2 * taps(10, 3, 4, 4, 2, 3))


def test_convolution_of_stride_one_may_be_winograd() -> None:
    work = counted("Conv", (1, 16, 62, 62), [(16, 16, 3, 3)])
    assert work.least == pytest.approx(work.flops * (8 * 8) / (6 * 6 * 3 * 3))  # F(6x6, 3x3)
    assert counted("Conv", (1, 16, 62, 62), [(16, 16, 1, 1)]).least == 2 * 62 * 62 * 16 * 16


def test_strides_make_filters_of_their_phases() -> None:
    work = counted("Conv", (1, 16, 101, 101), [(16, 16, 3, 3)], strides=[2, 2])
    assert work.least == pytest.approx(work.flops * ((1 + 8 / 7) / 3) ** 2)  # of one tap, and of two by F(7, 2)


def test_a_filter_of_one_dimension_has_more_points() -> None:
    work = counted("Conv", (1, 16, 40, 42), [(16, 16, 1, 7)])
    assert work.least == pytest.approx(work.flops * 10 / (4 * 7))  # F(4, 7)


def test_transposed_convolution() -> None:
    work = counted("ConvTranspose", (1, 3, 4, 4), [(3, 5, 4, 4)], strides=[2, 2], pads=[1, 1, 1, 1])
    assert work.flops == 2 * 4 * 4 * 3 * 5 * 16
    phases = 8 / (7 * 2)  # four kernels of 2x2, each by F(7x7, 2x2)
    assert work.least == pytest.approx(work.flops * min(phases, taps(8, 4, 4, 2, 1, 1) / 16) ** 2)


def test_products_and_recurrence() -> None:
    assert counted("MatMul", (5, 7, 8), [(8, 3)]).flops == 2 * 5 * 7 * 8 * 3
    assert counted("Gemm", (8, 7), [(3, 8)], transA=1, transB=1).flops == 2 * 7 * 8 * 3
    lstm = counted("LSTM", (6, 1, 5), [(1, 16, 5), (1, 16, 4)], hidden_size=4)
    assert lstm.flops == 2 * 6 * (16 * 5 + 16 * 4)


def test_tables_that_are_looked_up_are_not_read() -> None:
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    indices, table = {"x": np.ones((3, 3), np.float32)}, {"table": np.ones((1000, 4), np.float32)}
    assert work_of(model(node, indices, table), {}) == Work(0.0, 0.0, 9 * 4)


def test_roof_is_broken_by_what_no_machine_can_do() -> None:
    roof = Roof(flops=1e9, bandwidth=1e8)
    computes, moves = Work(4e9, 2e9, 1e3), Work(0.0, 0.0, 1e8)
    assert roof.least_seconds(computes) == 2.0
    assert roof.least_seconds(moves) == 1.0
    assert roof.broken_by(computes, 1.5)
    assert not roof.broken_by(computes, 1.95)  # within the probe's tolerance


def test_narrower_numbers_are_counted_once() -> None:
    work = Work(8.0, 4.0, 16.0)
    assert work.in_width(2) == Work(4.0, 2.0, 8.0, 2)
    assert work.in_width(1) == work.in_width(2).in_width(1) == Work(2.0, 1.0, 4.0, 1)
    narrow = work.in_width(2, has_matrix_unit=True)
    assert narrow == Work(0.5, 0.25, 8.0, 2)
    assert narrow.in_width(1, has_matrix_unit=True) == work.in_width(1, has_matrix_unit=True)
    assert work.in_width(1).in_width(2) == work.in_width(1)  # bytes computed in bfloat16 stay bytes in the roof

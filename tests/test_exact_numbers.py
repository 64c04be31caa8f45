"""Models with numbers that Python calls equal, but whose results differ: NumPy and ONNX Runtime tell what is right."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model, run_onnxruntime

Array = NDArray[np.generic]
X = np.array([-2, -1, -0.0, 0.0, 1, 3], np.float32)
ZEROS = [(0.0, -0.0), (-0.0, 0.0)]


def check(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The results, which are ONNX Runtime's with the signs of its zeros."""
    results = tilewright.compile(proto, threads=1).run(None, dict(feeds))
    for ours, theirs in zip(results, run_onnxruntime(proto, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))
    return results


def reciprocals(inputs: list[str], slopes: tuple[float, float]) -> list[onnx.NodeProto]:
    """``1 / leaky_relu(x)``: of negative numbers, an infinity with the sign that the slope does not have."""
    nodes: list[onnx.NodeProto] = []
    for position, (name, slope) in enumerate(zip(inputs, slopes, strict=True)):
        nodes.append(helper.make_node("LeakyRelu", [name], [f"r{position}"], alpha=slope))
        nodes.append(helper.make_node("Reciprocal", [f"r{position}"], [f"y{position}"]))
    return nodes


@pytest.mark.parametrize("slopes", ZEROS)
def test_nodes_that_differ_in_the_sign_of_a_zero_stay_two(slopes: tuple[float, float]) -> None:
    first, second = check(model(reciprocals(["x", "x"], slopes), {"x": X}, ["y0", "y1"]), {"x": X})
    np.testing.assert_array_equal(first[:2], -second[:2])


@pytest.mark.parametrize("slopes", ZEROS)
def test_so_do_their_kernels(slopes: tuple[float, float]) -> None:
    """Other inputs, so that they are no common subexpression; but all else is the same."""
    feeds = {"x": X, "z": X}
    first, second = check(model(reciprocals(["x", "z"], slopes), feeds, ["y0", "y1"]), feeds)
    np.testing.assert_array_equal(first[:2], -second[:2])


@pytest.mark.parametrize("zeros", ZEROS)
def test_so_do_constants(zeros: tuple[float, float]) -> None:
    constants = {f"c{i}": np.array(zero, np.float32) for i, zero in enumerate(zeros)}
    nodes = [helper.make_node("Mul", ["x", f"c{i}"], [f"p{i}"]) for i in range(2)]
    nodes += [helper.make_node("Reciprocal", [f"p{i}"], [f"y{i}"]) for i in range(2)]
    first, second = check(model(nodes, {"x": X}, ["y0", "y1"], constants), {"x": X})
    np.testing.assert_array_equal(first, -second)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_hard_swish_clips_at_the_zero_that_is_written(zero: float) -> None:
    """``x max(x + 3, zero)`` of -4 is a zero of the other sign."""
    x = np.array([-4, -2, 1, 4], np.float32)
    constants = {name: np.array(v, np.float32) for name, v in {"three": 3.0, "low": zero, "six": 6.0}.items()}
    nodes = [
        helper.make_node("Add", ["x", "three"], ["shifted"]),
        helper.make_node("Clip", ["shifted", "low", "six"], ["clipped"]),
        helper.make_node("Mul", ["x", "clipped"], ["product"]),
        helper.make_node("Div", ["product", "six"], ["y"]),
    ]
    (y,) = check(model(nodes, {"x": x}, ["y"], constants), {"x": x})
    assert np.signbit(y[0]) == (not np.signbit(zero))


def test_fills_keep_the_bits_of_a_nan() -> None:
    bits = [0x7FC00000, 0xFFC00000, 0x7FC00123]
    nodes = [
        helper.make_node(
            "ConstantOfShape",
            ["shape"],
            [f"y{i}"],
            value=onnx.numpy_helper.from_array(np.array([pattern], np.uint32).view(np.float32)),
        )
        for i, pattern in enumerate(bits)
    ]
    proto = model(nodes, {}, ["y0", "y1", "y2"], {"shape": np.array([3], np.int64)})
    results = tilewright.compile(proto, threads=1).run(None, {})
    assert [list(np.asarray(y).view(np.uint32)) for y in results] == [[pattern] * 3 for pattern in bits]

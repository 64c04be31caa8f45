"""Scales and shifts by channel go into weights, and the graph computes the same."""

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tests.frontend.models import single_node
from tests.passes.graphs import apply, value
from tilewright.graph import Graph, Node, Value, evaluate_graph, verify
from tilewright.passes.rules import ALGEBRA, load_rules, rewrite

Array = NDArray[np.generic]
CHANNELS = 3
random = np.random.default_rng(5)


def constants(*shapes: tuple[int, ...]) -> dict[Value, Array]:
    return {value(f"c{i}", *s): random.uniform(0.5, 1.5, s).astype(np.float32) for i, s in enumerate(shapes)}


def convolution(bias: bool, known: dict[Value, Array]) -> Node:
    weight, offset = [v for v in known if v.name in ("c0", "c1")]
    inputs = [value("x", 1, 2, 5, 5), weight, *([offset] if bias else [])]
    return apply("Conv", inputs, "y", pads=(1, 1, 1, 1), strides=(2, 2))


def graph_of(known: dict[Value, Array], *nodes: Node, outputs: int = 1) -> Graph:
    leaving = tuple(v for node in nodes[-outputs:] for v in node.outputs)
    return Graph("g", (value("x", 1, 2, 5, 5),), leaving, nodes, known)


def check(graph: Graph, operators: list[str]) -> None:
    after = rewrite(graph, load_rules(ALGEBRA))
    verify(after)
    assert after.outputs == graph.outputs
    assert [node.op.name for node in after.nodes] == operators
    feeds = {"x": random.standard_normal((1, 2, 5, 5)).astype(np.float32)}
    for old, new in zip(evaluate_graph(graph, feeds), evaluate_graph(after, feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_batch_normalization_goes_into_the_convolution(bias: bool) -> None:
    known = constants((CHANNELS, 2, 3, 3), *[(CHANNELS,)] * 5)
    conv = convolution(bias, known)
    statistics = [v for v in known if v.name in ("c2", "c3", "c4", "c5")]
    norm = apply("BatchNormalization", [*conv.outputs, *statistics], "z", epsilon=0.1)
    check(graph_of(known, conv, norm, apply("Relu", norm.outputs, "r")), ["Conv", "Relu"])


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("shape", [(CHANNELS, 1, 1), (1, CHANNELS, 1, 1)])
def test_so_do_a_scale_and_a_shift(swapped: bool, shape: tuple[int, ...]) -> None:
    known = constants((CHANNELS, 2, 3, 3), (CHANNELS,), shape, shape)
    conv = convolution(False, known)
    scale, shift = (v for v in known if v.name in ("c2", "c3"))
    scaled = apply("Mul", [scale, *conv.outputs] if swapped else [*conv.outputs, scale], "s")
    check(graph_of(known, conv, scaled, apply("Add", [*scaled.outputs, shift], "t")), ["Conv"])


def test_a_convolution_that_others_read_stays() -> None:
    known = constants((CHANNELS, 2, 3, 3), (CHANNELS,), (CHANNELS, 1, 1))
    conv = convolution(True, known)
    scale = next(v for v in known if v.name == "c2")
    nodes = [conv, apply("Mul", [*conv.outputs, scale], "s"), apply("Relu", conv.outputs, "r")]
    check(graph_of(known, *nodes, outputs=2), ["Conv", "Mul", "Relu"])


def test_elsewhere_it_is_a_multiplication_and_an_addition() -> None:
    known = constants(*[(2,)] * 4)
    norm = apply("BatchNormalization", [value("x", 1, 2, 5, 5), *known], "z")
    check(graph_of(known, norm), ["Mul", "Add"])


def test_a_constant_by_width_is_no_shift_by_channel() -> None:
    known = constants((CHANNELS, 2, 3, 3), (CHANNELS,), (CHANNELS,))
    conv = convolution(True, known)
    other = next(v for v in known if v.name == "c2")
    check(graph_of(known, conv, apply("Add", [*conv.outputs, other], "s")), ["Conv", "Add"])


def test_a_convolution_that_leaves_the_graph_stays() -> None:
    known = constants((CHANNELS, 2, 3, 3), (CHANNELS,), (CHANNELS, 1, 1))
    conv = convolution(True, known)
    scale = next(v for v in known if v.name == "c2")
    check(graph_of(known, conv, apply("Mul", [*conv.outputs, scale], "s"), outputs=2), ["Conv", "Mul"])


def test_names_that_look_like_ours_stay_what_they_are() -> None:
    known = constants((CHANNELS, 2, 3, 3), *[(CHANNELS,)] * 5)
    twins = [value("z.weight", CHANNELS, 2, 3, 3), value("z.bias", CHANNELS)]
    shapes = [(CHANNELS, 2, 3, 3), (CHANNELS,)]
    known |= {v: random.standard_normal(shape).astype(np.float32) for v, shape in zip(twins, shapes, strict=True)}
    conv = convolution(True, known)
    norm = apply("BatchNormalization", [*conv.outputs, *(v for v in known if v.name in ("c2", "c3", "c4", "c5"))], "z")
    other = apply("Conv", [value("x", 1, 2, 5, 5), *twins], "o", pads=(1, 1, 1, 1))
    check(graph_of(known, conv, norm, other, outputs=2), ["Conv", "Conv"])


def test_so_do_those_of_a_multiplication_and_an_addition() -> None:
    known = constants(*[(2,)] * 4)
    x, twin = value("x", 1, 2, 5, 5), value("z.scale", 2, 1, 1)
    known[twin] = np.full((2, 1, 1), 5, np.float32)
    nodes = [apply("BatchNormalization", [x, *known][:5], "z"), apply("Mul", [x, twin], "z.scaled")]
    check(graph_of(known, *nodes, outputs=2), ["Mul", "Add", "Mul"])


@pytest.mark.parametrize("variance", [0.0, -1.0])
@pytest.mark.parametrize("after", ["x", "Conv"])
def test_what_would_not_be_finite_stays(variance: float, after: str) -> None:
    """``inf * (x - 1)`` is not ``inf * x - inf``."""
    known = constants((2, 2, 3, 3), *[(2,)] * 5)
    statistics = [v for v in known if v.name in ("c2", "c3", "c4", "c5")]
    known[statistics[3]] = np.array([1.0, variance], np.float32)
    conv = convolution(False, known)
    source = conv.outputs[0] if after == "Conv" else value("x", 1, 2, 5, 5)
    norm = apply("BatchNormalization", [source, *statistics], "z", epsilon=0.0)
    before = [conv] if after == "Conv" else []
    check(graph_of(known, *before, norm), [*(node.op.name for node in before), "BatchNormalization"])


def test_weights_stay_where_scaled_ones_would_overflow() -> None:
    known = constants((CHANNELS, 2, 3, 3), (CHANNELS,), (CHANNELS, 1, 1))
    weight, _, scale = known
    known[weight] = np.full((CHANNELS, 2, 3, 3), 1e-20, np.float32)
    known[weight][0, 0, 0, 0] = 1e20
    known[scale] = np.full((CHANNELS, 1, 1), 1e25, np.float32)
    conv = convolution(False, known)
    check(graph_of(known, conv, apply("Mul", [*conv.outputs, scale], "s")), ["Conv", "Mul"])


@pytest.mark.parametrize("mean", [0.0, 1.0, -1.5])
def test_a_deviation_of_zero_gives_infinities(mean: float) -> None:
    """As the definition says; ONNX Runtime multiplies by infinity before it subtracts the mean."""
    x = np.array([[[-2, -1, 0, 1, 2, np.inf, np.nan]]], np.float32)
    parameters = {"scale": 2.0, "bias": 0.5, "mean": mean, "variance": 0.0}
    arrays = {name: np.array([number], np.float32) for name, number in parameters.items()}
    proto = single_node("BatchNormalization", {"x": x}, arrays, epsilon=0.0)
    (found,) = tilewright.compile(proto, threads=1).run(None, {"x": x})
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, (x - np.float32(mean)) / np.float32(0) * 2 + np.float32(0.5))

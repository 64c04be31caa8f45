"""Ranges of activations, integer weights and bias correction, against brute force."""

import numpy as np
import pytest
from onnx import helper

from tests.frontend.models import model, run_onnxruntime
from tests.quantization.models import normal
from tilewright.base.quantization import Activations, Method
from tilewright.frontend.onnx.read import importer
from tilewright.quantization.layers import find_layers
from tilewright.quantization.parameters import Form, Recipe, parameters, quantizer
from tilewright.quantization.placement import place
from tilewright.quantization.ranges import BINS, Distribution, entropy, minmax, percentile
from tilewright.quantization.statistics import Statistics
from tilewright.quantization.weights import quantized_weight


def distribution(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Distribution:
    limit = float(np.abs(values).max())
    counts, _ = np.histogram(values[values != 0], 2 * BINS, (-limit, limit))
    return Distribution(float(values.min()), float(values.max()), counts.astype(np.int64))


def quantization_error(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]], low: float, high: float) -> float:
    step = (high - low) / 255
    rounded = np.clip(np.rint((values - low) / step), 0, 255) * step + low
    return float(np.square(rounded - values).mean())


def test_outliers_are_cut_off_by_entropy_and_by_percentiles() -> None:
    """Of a normal distribution with one value of a thousand deviations, either range is nearly that without it."""
    values = np.append(normal(0, 100_000), np.float32(1000))
    assert minmax(distribution(values)) == (float(values.min()), 1000.0)
    for method in (percentile, entropy):
        low, high = method(distribution(values))
        assert high < 150
        assert quantization_error(values[:-1], low, high) < 0.05 * quantization_error(
            values[:-1], *minmax(distribution(values))
        )


def test_entropy_keeps_a_uniform_distribution_and_cuts_tails() -> None:
    uniform = np.random.default_rng(0).uniform(0, 8, 100_000).astype(np.float32)
    assert entropy(distribution(uniform)) == pytest.approx((0.0, 8.0), abs=0.1)
    low, high = entropy(distribution(normal(1, 100_000)))
    assert -4.5 < low < -2.5
    assert 2.5 < high < 4.5


def test_values_that_are_all_zero() -> None:
    zeros = Distribution(0.0, 0.0, np.zeros(2 * BINS, np.int64))
    for method in (minmax, percentile, entropy):
        assert method(zeros) == (0.0, 0.0)
    assert quantizer((0.0, 0.0), Form()).scale == 1.0


@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (2.0, 6.0), (-5.0, -1.0), (0.0, 1e-30)])
@pytest.mark.parametrize("powers", [False, True])
@pytest.mark.parametrize("activations", Activations)
def test_quantizers_hold_their_range_and_zero(low: float, high: float, powers: bool, activations: Activations) -> None:
    by = quantizer((low, high), Form(activations, powers))
    least, most = ((float(end) - by.zero) * float(by.scale) for end in (by.dtype.min, by.dtype.max))
    assert least <= min(low, 0.0) + float(by.scale) / 2
    assert most >= max(high, 0.0) - float(by.scale) / 2
    assert by.dtype.min <= by.zero <= by.dtype.max
    assert activations is Activations.U8 or by.zero == 0


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_weights(axis: int | None) -> None:
    weight = normal(0, 6, 5, 3) * np.float32(10.0) ** np.arange(5, dtype=np.float32)[:, None]
    weight[:, 2] = 0
    channels = 1 if axis is None else weight.shape[axis]
    plain = quantized_weight(weight, axis, np.zeros(channels), search=False, powers=False)
    axes = tuple(dim for dim in range(3) if dim != axis)
    step = np.abs(weight).max(axis=axes, keepdims=True) / 127
    assert plain.codes.min() >= -127
    assert (np.abs(plain.wide() - weight) <= step * 0.5001 + 1e-30).all()
    fitted = quantized_weight(weight, axis, np.zeros(channels), search=True, powers=False)
    assert (np.square(fitted.wide() - weight).sum(axes) <= np.square(plain.wide() - weight).sum(axes)).all()
    bound = quantized_weight(weight, axis, np.full(channels, 1e9), search=True, powers=True)
    assert (bound.scale >= 1e9).all()
    assert (np.frexp(bound.scale)[0] == 0.5).all()


@pytest.mark.parametrize("op", ["Conv", "Gemm", "MatMul"])
def test_bias_correction_keeps_the_mean(op: str) -> None:
    """By ONNX Runtime: the error of the weights, applied to an activation that is its mean everywhere."""
    shape, options = ((1, 4, 3, 3), {"group": 2}) if op == "Conv" else ((1, 4), {"transB": 1} if op == "Gemm" else {})
    weight = normal(1, *{"Conv": (6, 2, 3, 3), "Gemm": (6, 4), "MatMul": (4, 6)}[op])
    x, bias = np.ones(shape, np.float32), normal(2, 6)
    nodes = [helper.make_node(op, ["x", "w"] if op == "MatMul" else ["x", "w", "b"], ["h"], **options)]
    nodes += [helper.make_node("Add", ["h", "b"], ["y"])] if op == "MatMul" else []
    graph = importer.load(model(nodes, {"x": x}, [nodes[-1].output[0]], {"w": weight, "b": bias}))
    layers = find_layers(graph).found
    means = normal(3, 4)
    values = Distribution(-1.0, 1.0, np.zeros(2 * BINS, np.int64))
    statistics = Statistics({graph.inputs[0]: values}, {layers[0].result: means})
    recipe = Recipe(Method.MINMAX, search=False, correct=True)
    numbers = parameters(graph, layers, place(graph, layers), statistics, recipe, Form())
    error = numbers.weights["h"].wide() - weight
    constant = np.broadcast_to(means.reshape(1, 4, *[1] * (len(shape) - 2)), shape).astype(np.float32)
    single = model([helper.make_node(op, ["x", "w"], ["h"], **options)], {"x": x}, ["h"], {"w": error})
    (shift,) = run_onnxruntime(single, {"x": constant})
    np.testing.assert_allclose(numbers.biases["h"], bias - shift.reshape(6), rtol=1e-4, atol=1e-6)
    integers = numbers.integer_bias(layers[0])
    assert integers is not None
    np.testing.assert_allclose(integers.wide(), numbers.biases["h"], atol=float(integers.scale.max()))

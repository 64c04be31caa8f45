"""All numbers of a quantized model: scales and zero points of activations, integer weights, corrected biases.

Quantized weights shift the mean of each channel by the error of the weights times the mean of the activation. Bias
correction subtracts that from the bias (Nagel et al., "Data-free quantization through weight equalization and bias
correction", 2019, section 4.2; the means are those on the calibration data).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import DType
from tilewright.base.quantization import Activations, Method
from tilewright.graph import Graph
from tilewright.ops import Trait
from tilewright.quantization.layers import Layer, channels_of, weight_of
from tilewright.quantization.placement import Placement
from tilewright.quantization.ranges import RANGES, Range
from tilewright.quantization.statistics import Means, Statistics
from tilewright.quantization.weights import LEAST_SCALE, Exact, Floats, Weight, power_of_two, quantized_weight

_MOST_BIAS = 1 << 30
"""The largest integer of a bias: half of what 32 bits hold is left to the sum of products."""


@dataclass(frozen=True, slots=True)
class Form:
    """What does not depend on measurements: the type of activations, and whether scales are powers of two."""

    activations: Activations = Activations.U8
    powers: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """Choices that can be measured. ``search``: of ranges of weights; ``correct``: biases."""

    method: Method
    search: bool
    correct: bool


@dataclass(frozen=True, slots=True)
class Quantizer:
    """A real number x is the integer ``round(x / scale) + zero``, saturated to ``dtype``."""

    scale: np.float32
    zero: int
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class IntegerBias:
    """``codes * scale`` for each channel: the scale is that of the products of the layer."""

    codes: NDArray[np.int32]
    scale: Floats

    def wide(self) -> Floats:
        """The bias in float32, as DequantizeLinear computes it."""
        return self.codes.astype(np.float32) * self.scale


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """The numbers: ``quantizers`` by the names of values, ``weights`` and ``biases`` by those of the results of layers.

    A layer without a bias may have one here, for the correction.
    """

    quantizers: Mapping[str, Quantizer]
    weights: Mapping[str, Weight]
    biases: Mapping[str, Floats]

    def integer_bias(self, layer: Layer) -> IntegerBias | None:
        """The bias of ``layer``, if it has one here."""
        bias = self.biases.get(layer.result.name)
        if bias is None:
            return None
        scale = self.quantizers[layer.activations[0].name].scale * self.weights[layer.result.name].scale
        scale = np.broadcast_to(scale, bias.shape).astype(np.float32)
        codes = np.clip(np.rint(bias.astype(np.float64) / scale), -(1 << 31), (1 << 31) - 1)
        return IntegerBias(codes.astype(np.int32), scale)


def parameters(
    graph: Graph, layers: Sequence[Layer], placement: Placement, statistics: Statistics, recipe: Recipe, form: Form
) -> Parameters:
    """The numbers of ``layers`` of ``graph``, and of all values that ``placement`` has."""
    find = RANGES[recipe.method]
    ranges = {root: find(values) for root, values in statistics.distributions.items()}
    made = {root: quantizer(found, form) for root, found in ranges.items()}
    quantizers = {value.name: made[root] for value, root in placement.scaled_as.items()}
    weights: dict[str, Weight] = {}
    biases: dict[str, Floats] = {}
    for layer in layers:
        array = weight_of(layer, graph)
        if array is None:
            continue
        weight = np.asarray(array, np.float32)
        given = None if layer.bias is None or layer.bias.value is None else graph.constants[layer.bias.value]
        bias = None if given is None else np.asarray(given, np.float32)
        least = _least_scales(layer, graph, bias, quantizers[layer.activations[0].name])
        found = quantized_weight(weight, layer.axis, least, search=recipe.search, powers=form.powers)
        weights[layer.result.name] = found
        if recipe.correct and layer.bias is not None:
            shift = _shift(layer, found.wide().astype(np.float64) - weight, statistics.means[layer.result])
            bias = ((0.0 if bias is None else bias.astype(np.float64)) - shift).astype(np.float32)
        if bias is not None:
            biases[layer.result.name] = bias
    return Parameters(quantizers, weights, biases)


def quantizer(found: Range, form: Form) -> Quantizer:
    """The quantizer of a range, which is extended to have zero in it."""
    low, high = min(found[0], 0.0), max(found[1], 0.0)
    if form.activations is Activations.I8:
        return Quantizer(_scale(max(-low, high) / 127, form), 0, form.activations.dtype)
    scale = _scale((high - low) / 255, form)
    zero = int(np.clip(np.rint(-low / float(scale)), 0, 255))
    return Quantizer(scale, zero, form.activations.dtype)


def _scale(scale: float, form: Form) -> np.float32:
    """``scale``, or 1 for values that are all zero."""
    exact = np.array([scale if scale > 0 else 1.0])
    rounded = power_of_two(exact) if form.powers else exact
    return np.float32(max(float(rounded[0]), LEAST_SCALE))


def _least_scales(layer: Layer, graph: Graph, bias: Floats | None, data: Quantizer) -> Exact:
    """Scales of the channels with which the bias fits into 32 bits."""
    if bias is None:
        return np.zeros(channels_of(layer, graph))
    return np.abs(bias.astype(np.float64)) / (float(data.scale) * _MOST_BIAS)


def _shift(layer: Layer, error: Exact, means: Means) -> Exact:
    """The shift of the mean of each channel by ``error`` of the weight; ``means``: of the activation."""
    if layer.node.op.has(Trait.SUMS_CHANNELS):
        filters, own = error.shape[:2]
        groups = len(means) // own
        taps = error.reshape(groups, filters // groups, own, -1).sum(axis=3)
        return np.einsum("goi,gi->go", taps, means.reshape(groups, own)).reshape(filters)
    return error @ means if layer.axis == 0 else means @ error

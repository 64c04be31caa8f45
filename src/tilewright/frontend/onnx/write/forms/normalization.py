"""Normalizations, and the softmax family."""

from collections.abc import Mapping

import numpy as np

from tilewright.base.dtypes import DType, f16, f32
from tilewright.frontend.onnx.write.forms.form import Form, FormFunction, Writing
from tilewright.frontend.onnx.write.forms.writer import code_of
from tilewright.ops.build import accumulator
from tilewright.ops.shapes import normalize_axes, normalize_axis, simplified, static


def _layer_normalization(writing: Writing) -> None:
    options = {"axis": writing.integer("axis"), "epsilon": writing.number("epsilon")}
    writing.result("LayerNormalization", writing.inputs, **options, stash_type=code_of(_wide(writing)))


def _rms_normalization(writing: Writing) -> None:
    """ONNX has it from opset 23 on. Runtimes recognize it by these parts."""
    x, rank, wide = writing.value(0), len(writing.value(0).shape), _wide(writing)
    axes = writing.vector(range(normalize_axis(writing.integer("axis"), rank), rank))
    data = writing.cast(x.name, x.dtype, wide)
    squares = writing.apply("Pow", [data, writing.scalar(2.0, wide)])
    mean = writing.apply("ReduceMean", [squares, axes], keepdims=1)
    shifted = writing.apply("Add", [mean, writing.scalar(writing.number("epsilon"), wide)])
    normal = writing.apply("Div", [data, writing.apply("Sqrt", [shifted])])
    scaled = writing.cast(normal, wide, x.dtype)
    writing.result("Mul", [scaled, writing.input(1)])


def _group_normalization(writing: Writing) -> None:
    """For f32 and f16 each group becomes an instance of ONNX, for which runtimes have a kernel."""
    x, scale, bias = (writing.value(position) for position in range(3))
    extents, channels = static(x.shape[1:2]), static(scale.shape)
    if extents is None or channels is None:
        raise writing.unsupported("its groups or channels are run-time extents; give the model's shapes")
    groups, epsilon = extents[0], writing.number("epsilon")
    has_kernel = x.dtype in (f16, f32)
    if has_kernel and extents == channels:
        writing.result("InstanceNormalization", writing.inputs, epsilon=epsilon)
        return
    by_channel = (x.shape[0], scale.shape[0], simplified(x.shape[1] * x.shape[2] // channels[0]))
    if has_kernel:
        ones, zeros = (writing.constant(np.full(groups, value, x.dtype.numpy)) for value in (1, 0))
        normal = writing.apply("InstanceNormalization", [x.name, ones, zeros], epsilon=epsilon)
        rows = writing.reshape(normal, x.shape, by_channel)
        scaled = writing.apply("Mul", [rows, writing.unsqueezed(scale, 1)])
        result = writing.apply("Add", [scaled, writing.unsqueezed(bias, 1)])
    else:
        rows = writing.reshape(x.name, x.shape, by_channel)
        operands = [rows, scale.name, bias.name]
        result = writing.apply("GroupNormalization", operands, epsilon=epsilon, num_groups=groups)
    writing.result_reshaped(result, by_channel)


def _mean_variance(writing: Writing) -> None:
    """ONNX's own is for f32, and has one epsilon."""
    x, epsilon, wide = writing.value(0), writing.number("epsilon"), _wide(writing)
    chosen = writing.ints("axes")
    if x.dtype == f32 and epsilon == _EPSILON and chosen:  # runtimes do not support empty axes
        writing.result("MeanVarianceNormalization", [x.name], axes=chosen)
        return
    axes = writing.vector(normalize_axes(chosen, len(x.shape)))
    data = writing.cast(x.name, x.dtype, wide)
    centered = writing.apply("Sub", [data, writing.apply("ReduceMean", [data, axes], noop_with_empty_axes=1)])
    squares = writing.apply("Mul", [centered, centered])
    deviation = writing.apply("Sqrt", [writing.apply("ReduceMean", [squares, axes], noop_with_empty_axes=1)])
    shifted = writing.apply("Add", [deviation, writing.scalar(epsilon, wide)])
    normal = writing.apply("Div", [centered, shifted])
    writing.result("Identity", [writing.cast(normal, wide, x.dtype)])


_EPSILON = 1e-9
"""The epsilon of ONNX's MeanVarianceNormalization."""


def _wide(writing: Writing) -> DType:
    """The type of statistics."""
    return accumulator(writing.value(0).dtype)


FORMS: Mapping[str, FormFunction] = {
    "BatchNormalization": Form("BatchNormalization", {"epsilon": "epsilon"}),
    "GroupNormalization": _group_normalization,
    "Hardmax": Form("Hardmax", {"axis": "axis"}),
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": Form("LogSoftmax", {"axis": "axis"}),
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms_normalization,
    "Softmax": Form("Softmax", {"axis": "axis"}),
}

"""Operators that ONNX's reference evaluator gets wrong, or not in float64: written in NumPy from their definitions.

Windows are enumerated: an array with one more dimension per spatial one, of what each place of a window sees.
A result may be masked (``numpy.ma``) where ONNX does not define it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.random_graphs.case import Array
from tests.random_graphs.conversions import quantize, quantize_dynamically
from tests.random_graphs.form import Form
from tests.random_graphs.recurrent_reference import recurrent

Override = Callable[[Form, Sequence[Array | None]], Sequence[Array]]

# Convolution and pooling


@dataclass(frozen=True)
class _Sliding:
    """How a window moves over the spatial dimensions."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    begins: Sequence[int]
    extents: Sequence[int]
    """Of the result."""
    padded: Sequence[int]
    """Where the padding after the input ends, counted from the start of that before."""


def _sliding(form: Form, spatial: Sequence[int], kernel: Sequence[int]) -> _Sliding:
    rank = len(spatial)
    strides, dilations = form.ints("strides", [1] * rank), form.ints("dilations", [1] * rank)
    pads = form.ints("pads", [0] * 2 * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    mode = form.attributes.get("auto_pad", "NOTSET")
    if str(mode).startswith("SAME"):
        extents = [-(-n // s) for n, s in zip(spatial, strides, strict=True)]
        total = [max((e - 1) * s + r - n, 0) for e, s, r, n in zip(extents, strides, reach, spatial, strict=True)]
        begins = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
        padded = [n + t for n, t in zip(spatial, total, strict=True)]
        return _Sliding(kernel, strides, dilations, begins, extents, padded)
    begins = [0] * rank if mode == "VALID" else pads[:rank]
    padded = (
        list(spatial) if mode == "VALID" else [n + b + e for n, b, e in zip(spatial, begins, pads[rank:], strict=True)]
    )
    extents = [(p - r) // s + 1 for p, r, s in zip(padded, reach, strides, strict=True)]
    if form.get("ceil_mode", 0):
        extents = [-(-(p - r) // s) + 1 for p, r, s in zip(padded, reach, strides, strict=True)]
        starts = zip(extents, strides, begins, spatial, strict=True)
        extents = [e - 1 if (e - 1) * s >= n + b else e for e, s, b, n in starts]
    return _Sliding(kernel, strides, dilations, begins, extents, padded)


def _seen(data: Array, own: _Sliding, fill: float) -> Array:
    """``data`` as the windows see it: [batch, channels, *result, product of the kernel]; outside there is ``fill``."""
    ends = [(e - 1) * s + (k - 1) * d + 1 for e, s, k, d in _axes(own)]
    after = [max(end - n - b, 0) for end, n, b in zip(ends, data.shape[2:], own.begins, strict=True)]
    widths = [(0, 0), (0, 0), *zip(own.begins, after, strict=True)]
    padded = np.pad(data, widths, constant_values=data.dtype.type(fill))
    views = []
    for offset in product(*map(range, own.kernel)):
        cut = [slice(o * d, o * d + (e - 1) * s + 1, s) for o, (e, s, _, d) in zip(offset, _axes(own), strict=True)]
        views.append(padded[(slice(None), slice(None), *cut)])
    return np.stack(views, -1)


def _axes(own: _Sliding) -> list[tuple[int, int, int, int]]:
    return list(zip(own.extents, own.strides, own.kernel, own.dilations, strict=True))


def _conv(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    data, weight, *bias = inputs
    assert data is not None and weight is not None
    return [_convolved(form, data, weight, bias[0] if bias else None)]


def _convolved(form: Form, data: Array, weight: Array, bias: Array | None) -> Array:
    group = int(form.get("group", 1))
    seen = _seen(data, _sliding(form, data.shape[2:], weight.shape[2:]), 0)
    per = weight.shape[1]
    results = []
    for channel in range(weight.shape[0]):
        first = channel // (weight.shape[0] // group) * per
        filters = weight[channel].reshape(per, -1)
        results.append(np.einsum("nc...k,ck->n...", seen[:, first : first + per], filters))
    result = np.stack(results, 1)
    return result if bias is None else result + bias.reshape(-1, *[1] * (data.ndim - 2))


def _conv_transpose(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    """Every element adds its multiple of the filters to the result; the padding is cut off."""
    data, weight, *bias = inputs
    assert data is not None and weight is not None
    group, rank = int(form.get("group", 1)), data.ndim - 2
    strides, dilations = form.ints("strides", [1] * rank), form.ints("dilations", [1] * rank)
    pads, more = form.ints("pads", [0] * 2 * rank), form.ints("output_padding", [0] * rank)
    spatial, kernel, per = data.shape[2:], weight.shape[2:], weight.shape[1]
    full = [
        (n - 1) * s + (k - 1) * d + 1 + extra
        for n, s, k, d, extra in zip(spatial, strides, kernel, dilations, more, strict=True)
    ]
    result = np.zeros((data.shape[0], per * group, *full))
    inner = data.shape[1] // group
    for g in range(group):
        own = slice(g * inner, (g + 1) * inner)
        for offset in product(*map(range, kernel)):
            part = np.einsum("nc...,co->no...", data[:, own], weight[(own, slice(None), *offset)])
            cut = [
                slice(o * d, o * d + (n - 1) * s + 1, s)
                for o, d, n, s in zip(offset, dilations, spatial, strides, strict=True)
            ]
            result[(slice(None), slice(g * per, (g + 1) * per), *cut)] += part
    cut = [slice(b, f - e) for b, f, e in zip(pads[:rank], full, pads[rank:], strict=True)]
    result = result[(slice(None), slice(None), *cut)]
    return [result if not bias or bias[0] is None else result + bias[0].reshape(-1, *[1] * rank)]


def _max_pool(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    data = inputs[0]
    assert data is not None
    own = _sliding(form, data.shape[2:], form.ints("kernel_shape", ()))
    seen = _seen(data, own, -np.inf if data.dtype.kind == "f" else np.iinfo(data.dtype).min)
    if form.outputs == 1:
        return [seen.max(-1)]
    places = np.arange(data.size, dtype=np.int64).reshape(data.shape)
    where = _seen(places, own, -1)
    best = np.where(where >= 0, seen, -np.inf).argmax(-1)[..., None]
    return [seen.max(-1), np.take_along_axis(where, best, -1)[..., 0]]


def _average_pool(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    data = inputs[0]
    assert data is not None
    own = _sliding(form, data.shape[2:], form.ints("kernel_shape", ()))
    counted = np.ones((1, 1, *data.shape[2:]))
    if form.get("count_include_pad", 0):
        after = [p - n - b for p, n, b in zip(own.padded, data.shape[2:], own.begins, strict=True)]
        counted = np.pad(counted, [(0, 0), (0, 0), *zip(own.begins, after, strict=True)], constant_values=1.0)
        whole = _Sliding(own.kernel, own.strides, own.dilations, [0] * len(own.kernel), own.extents, own.padded)
        return [_seen(data, own, 0).sum(-1) / _seen(counted, whole, 0).sum(-1)]
    return [_seen(data, own, 0).sum(-1) / _seen(counted, own, 0).sum(-1)]


def _lp_pool(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    data = inputs[0]
    assert data is not None
    p = form.get("p", 2)
    seen = _seen(np.abs(data) ** p, _sliding(form, data.shape[2:], form.ints("kernel_shape", ())), 0)
    return [seen.sum(-1) ** (1 / p)]


def _global_pool(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    data = inputs[0]
    assert data is not None
    axes = tuple(range(2, data.ndim))
    match form.op_type:
        case "GlobalMaxPool":
            return [data.max(axes, keepdims=True)]
        case "GlobalAveragePool":
            return [data.mean(axes, keepdims=True)]
        case _:
            p = form.get("p", 2)
            return [(np.abs(data) ** p).sum(axes, keepdims=True) ** (1 / p)]


# Normalization


def _lrn(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    data = inputs[0]
    assert data is not None
    size = int(form.get("size", 1))
    squares = np.pad(data**2, [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (data.ndim - 2)])
    total = sum(squares[:, offset : offset + data.shape[1]] for offset in range(size))
    scale = form.get("bias", 1.0) + form.get("alpha", 1e-4) / size * total
    return [data / scale ** form.get("beta", 0.75)]


def _group_normalization(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    """Before opset 21, scale and bias have an entry for each group."""
    data, scale, bias = inputs
    assert data is not None and scale is not None and bias is not None
    groups = int(form.get("num_groups", 1))
    rows = data.reshape(data.shape[0], groups, -1)
    normal = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + form.get("epsilon", 1e-5))
    each = [np.repeat(p, data.shape[1] // p.size).reshape(1, -1, *[1] * (data.ndim - 2)) for p in (scale, bias)]
    return [normal.reshape(data.shape) * each[0] + each[1]]


def _instance_normalization(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    data = inputs[0]
    assert data is not None
    own = Form(form.op_type, form.opset, {**form.attributes, "num_groups": data.shape[1]}, 1)
    return _group_normalization(own, inputs)


def _batch_normalization(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    """Training mode uses the batch's own statistics, and moves the running ones."""
    data, epsilon, momentum = inputs[0], form.get("epsilon", 1e-5), form.get("momentum", 0.9)
    assert data is not None
    column = (-1, *[1] * (data.ndim - 2))
    scale, bias, mean, variance = (np.asarray(p).reshape(column) for p in inputs[1:])
    if not form.get("training_mode", 0):
        return [(data - mean) / np.sqrt(variance + epsilon) * scale + bias]
    axes = tuple(axis for axis in range(data.ndim) if axis != 1)
    own = [data.mean(axes).reshape(column), data.var(axes).reshape(column)]
    result = (data - own[0]) / np.sqrt(own[1] + epsilon) * scale + bias
    moved = [old * momentum + new * (1 - momentum) for old, new in zip((mean, variance), own, strict=True)]
    return [result, *(statistic.reshape(-1) for statistic in moved)][: form.outputs]


def _mean_variance_normalization(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    data = inputs[0]
    assert data is not None
    axes = tuple(form.ints("axes", (0, 2, 3)))
    return [(data - data.mean(axes, keepdims=True)) / (data.std(axes, keepdims=True) + 1e-9)]


def _along_axis(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    """Before opset 13, all dimensions from the axis on are one."""
    data = inputs[0]
    assert data is not None
    axis = int(form.get("axis", -1 if form.opset >= 13 else 1))
    rows = np.moveaxis(data, axis, -1)
    if form.opset < 13:
        rows = data.reshape(*data.shape[: axis % data.ndim], -1)
    shifted = rows - rows.max(-1, keepdims=True)
    match form.op_type:
        case "Hardmax":
            result = (np.arange(rows.shape[-1]) == rows.argmax(-1)[..., None]).astype(data.dtype)
        case "LogSoftmax":
            result = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        case _:
            result = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    return [np.moveaxis(result, -1, axis) if form.opset >= 13 else result.reshape(data.shape)]


# Reductions

_REDUCTIONS: Mapping[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "ReduceL1": lambda x, axes: np.abs(x).sum(axes, keepdims=True),
    "ReduceL2": lambda x, axes: np.sqrt((x * x).sum(axes, keepdims=True)),
    "ReduceLogSum": lambda x, axes: np.log(x.sum(axes, keepdims=True)),
    "ReduceLogSumExp": lambda x, axes: np.log(np.exp(x).sum(axes, keepdims=True)),
}


def _reduction(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    """Axes are an attribute in old opsets."""
    data, *rest = inputs
    assert data is not None
    given = rest[0].tolist() if rest and rest[0] is not None else form.ints("axes", ())
    if not given and form.get("noop_with_empty_axes", 0):
        return [_REDUCTIONS[form.op_type](data, ())]
    axes = tuple(axis % data.ndim for axis in given) or tuple(range(data.ndim))
    result = _REDUCTIONS[form.op_type](data, axes)
    return [
        result if form.get("keepdims", 1) else result.reshape([e for d, e in enumerate(data.shape) if d not in axes])
    ]


# Others


def _scatter(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    """The old name of ScatterElements."""
    data, indices, updates = inputs
    assert data is not None and indices is not None and updates is not None
    axis = int(form.get("axis", 0))
    result = data.copy()
    np.put_along_axis(result, indices % data.shape[axis], updates, axis)
    return [result]


def _slice(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    """Unlike in Python, a slice backwards from before the first element begins at the first."""
    data, *rest = inputs
    assert data is not None
    lists = [None if numbers is None else numbers.tolist() for numbers in rest]
    starts, ends, axes, steps = (*lists, None, None, None, None)[:4]
    starts, ends = starts or form.ints("starts", ()), ends or form.ints("ends", ())
    axes = axes or form.ints("axes", range(len(starts)))
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        extent = data.shape[axis]
        first = start + extent if start < 0 else start
        last = end + extent if end < 0 else end
        low, high = (0, extent) if step > 0 else (-1, extent - 1)
        places = range(min(max(first, 0), high), min(max(last, low), high), step)
        data = data.take(places, axis)
    return [data]


def _recurrent(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    return recurrent(form.op_type, form.attributes, inputs)


def _affine_grid(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    """Of two dimensions: the places (x, y), and one, times theta."""
    theta, size = inputs
    assert theta is not None and size is not None
    rows, columns = (int(extent) for extent in size[2:])
    ends = [1.0 if form.get("align_corners", 0) else 1 - 1 / extent for extent in (rows, columns)]
    y, x = np.meshgrid(np.linspace(-ends[0], ends[0], rows), np.linspace(-ends[1], ends[1], columns), indexing="ij")
    return [np.einsum("nij,hwj->nhwi", theta, np.stack([x, y, np.ones_like(x)], -1))]


OVERRIDES: Mapping[str, Override] = {
    "Scatter": _scatter,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "AffineGrid": _affine_grid,
    "AveragePool": _average_pool,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DynamicQuantizeLinear": quantize_dynamically,
    "BatchNormalization": _batch_normalization,
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), _global_pool),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), _along_axis),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LRN": _lrn,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "QuantizeLinear": quantize,
    "Slice": _slice,
}

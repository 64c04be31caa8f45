"""ONNX's convolutions and their relatives."""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.base.dtypes import f32
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.frontend.onnx.read.rules.windows import (
    Sliding,
    check_entries,
    sliding,
    unknown_auto_pad,
    window_attributes,
)
from tilewright.graph import Value
from tilewright.ops.shapes import Shape, show, simplified, static
from tilewright.ops.windows import number
from tilewright.symbolic.expr import Const, Expr, as_expr, const, maximum


def _conv(request: Request) -> Sequence[Value]:
    data, weight, bias = request.input(0), request.input(1), request.optional(2)
    attributes = window_attributes(request, data, kernel_of(request, weight))
    return [request.apply("Conv", data, weight, bias, **attributes, group=request.integer("group", 1))]


def kernel_of(request: Request, weight: Value) -> Shape:
    """The window of a convolution: the spatial extents of its weight, with which ``kernel_shape`` must agree."""
    given, own = request.ints("kernel_shape"), weight.shape[2:]
    if given is not None and static(own) not in (None, given):
        raise request.invalid(f"attribute kernel_shape is {list(given)}, but the weight is {weight!r}; leave it out")
    return own


def _conv_transpose(request: Request) -> Sequence[Value]:
    """By phases of the strides. Outputs are computed in whole strides, and cropped afterwards."""
    data, weight, bias = request.input(0), request.input(1), request.optional(2)
    own = sliding(request, data, kernel_of(request, weight))
    group = request.integer("group", 1)
    begins, spatial = _transposed_extents(request, own)
    filters = request.apply("PhaseFilters", weight, strides=own.strides, dilations=own.dilations, group=group)
    rank = len(spatial)
    if max(own.strides) == 1:
        return [_convolved(request, own, filters, begins, spatial, group)]
    whole = tuple(
        simplified((extent + (stride - 1)) // stride * stride)
        for extent, stride in zip(spatial, own.strides, strict=True)
    )
    place = {"kernel": own.kernel, "dilations": own.dilations, "begins": tuple(begins), "spatial": whole}
    result = request.apply("PhaseConv", data, filters, bias, **place, group=group)
    if whole == tuple(spatial):
        return [result]
    return [request.apply("Slice", result, starts=(0,) * rank, ends=tuple(spatial), axes=tuple(range(2, rank + 2)))]


def _convolved(
    request: Request, own: Sliding, filters: Value, begins: Sequence[int], spatial: Sequence[Expr], group: int
) -> Value:
    """Without strides there is one phase: a convolution."""
    rank = len(spatial)
    taps = filters.shape[rank + 2 :]
    weight = request.apply("Reshape", filters, shape=(filters.shape[0], *filters.shape[rank + 1 :]))
    before = [
        number((k - 1) * dilation - begin) for k, dilation, begin in zip(taps, own.dilations, begins, strict=True)
    ]
    after = [number(y + begin - there) for begin, y, there in zip(begins, spatial, own.spatial, strict=True)]
    options = {"pads": (*before, *after), "dilations": own.dilations, "group": group}
    return request.apply("Conv", request.input(0), weight, request.optional(2), **options)


def _transposed_extents(request: Request, own: Sliding) -> tuple[list[int], list[Expr]]:
    """The padding to crop at the begin, and the extents of the output."""
    rank = len(own.kernel)
    more = request.ints("output_padding") or (0,) * rank
    moves = zip(own.spatial, own.kernel, own.strides, own.dilations, more, strict=True)
    full = [simplified((i - 1) * stride + (k - 1) * dilation + 1 + extra) for i, k, stride, dilation, extra in moves]
    wanted = _output_extents(request, own)
    mode = request.text("auto_pad", "NOTSET")
    if wanted is None:
        pads = (request.ints("pads") if mode == "NOTSET" else None) or (0,) * (2 * rank)
        begins, ends = pads[:rank], pads[rank:]
        spatial = [simplified(f - b - e) for f, b, e in zip(full, begins, ends, strict=True)]
    else:
        spatial = wanted
        totals = [maximum(f - extent, 0) for f, extent in zip(full, spatial, strict=True)]
        begins = [number(total // 2 if mode == "SAME_UPPER" else (total + 1) // 2) for total in totals]
    for extent in spatial:
        if isinstance(extent, Const) and extent.value < 1:
            raise request.invalid(f"its output would have the spatial extents {show(tuple(spatial))}; use smaller pads")
        request.importer.symbolic.require(simplified(extent - 1))
    known = [begin for begin in begins if isinstance(begin, int)]
    if len(known) != rank:
        raise request.run_time_only(f"its padding depends on extents of {own.data!r} that are")
    return known, spatial


def _output_extents(request: Request, own: Sliding) -> list[Expr] | None:
    """The output's spatial extents, if the node specifies them."""
    given = request.ints("output_shape")
    if given is not None:
        check_entries(request, "output_shape", given[-len(own.kernel) :], len(own.kernel), 1)
        return list(map(as_expr, given[-len(own.kernel) :]))
    match request.text("auto_pad", "NOTSET"):
        case "SAME_UPPER" | "SAME_LOWER":
            return [simplified(i * stride) for i, stride in zip(own.spatial, own.strides, strict=True)]
        case "NOTSET" | "VALID" | "":
            return None
        case mode:
            raise unknown_auto_pad(request, mode)


def _deform_conv(request: Request) -> Sequence[Value]:
    data, weight, offsets = (request.input(position) for position in range(3))
    groups = {"group": request.integer("group", 1), "offset_group": request.integer("offset_group", 1)}
    attributes = window_attributes(request, data, kernel_of(request, weight))
    operands = [data, weight, offsets, request.optional(3), request.optional(4)]
    return [request.apply("DeformConv", *operands, **attributes, **groups)]


def _columns_to_image(request: Request) -> Sequence[Value]:
    image, block = request.integers(1) or (), request.integers(2) or ()
    rank = len(image)
    ones = (1,) * rank
    strides, dilations = request.ints("strides") or ones, request.ints("dilations") or ones
    pads = request.ints("pads") or (0,) * (2 * rank)
    for name, values in {
        "image_shape": image,
        "block_shape": block,
        "strides": strides,
        "dilations": dilations,
    }.items():
        check_entries(request, name, values, max(rank, 1), 1)
    check_entries(request, "pads", pads, 2 * rank, 0)
    window = {"strides": strides, "dilations": dilations, "pads": pads}
    return [request.apply("Col2Im", request.input(0), image=image, block=block, **window)]


def _conv_integer(request: Request) -> Sequence[Value]:
    return [_integer_convolution(request, (0, 2), (1, 3))]


def _qlinear_conv(request: Request) -> Sequence[Value]:
    """Computed in i32, scaled in f32, rounded to the nearest even number (ONNX, QuantizeLinear)."""
    total, bias = _integer_convolution(request, (0, 2), (3, 5)), request.optional(8)
    if bias is not None:
        total = request.apply("Add", total, _by_channel(request, bias, 1, len(total.shape)))
    scales = [request.input(position) for position in (1, 4, 6)]
    factor = request.apply("Div", request.apply("Mul", scales[0], scales[1]), scales[2])
    factor = _by_channel(request, factor, 1, len(total.shape))
    zero = request.input(7)
    product = request.apply("Mul", request.apply("Cast", total, to=f32), factor)
    result = request.apply(
        "Add", request.apply("Round", product), request.apply("Cast", _scalar(request, zero), to=f32)
    )
    limits = [request.constant(np.array(limit, np.float32)) for limit in (zero.dtype.min, zero.dtype.max)]
    return [request.apply("Cast", request.apply("Clip", result, *limits), to=zero.dtype)]


def _integer_convolution(request: Request, data: tuple[int, int], weight: tuple[int, int]) -> Value:
    """The zero points of two inputs, if present, by position."""
    x, filters = request.input(data[0]), request.input(weight[0])
    zero, zeros = request.optional(data[1]), request.optional(weight[1])
    zero = None if zero is None else _scalar(request, zero)
    zeros = _scalar(request, zeros) if zeros is not None and zeros.shape == (const(1),) else zeros
    attributes = window_attributes(request, x, kernel_of(request, filters))
    return request.apply("ConvInteger", x, filters, zero, zeros, **attributes, group=request.integer("group", 1))


def _by_channel(request: Request, parameter: Value, axis: int, rank: int) -> Value:
    """One value, or one for each channel, shaped so that it broadcasts along ``axis``."""
    if not parameter.shape or parameter.shape == (const(1),):
        return _scalar(request, parameter)
    return request.apply("Unsqueeze", parameter, axes=tuple(p for p in range(rank) if p != axis))


def _scalar(request: Request, value: Value) -> Value:
    """One number, as a scalar. Raises ``InvalidModel`` for several."""
    if any(extent != const(1) for extent in value.shape):
        raise request.invalid(f"the zero point {value!r} should be one number")
    return request.apply("Squeeze", value) if value.shape else value


RULES: Mapping[str, RuleFunction] = {
    "Col2Im": _columns_to_image,
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deform_conv,
    "QLinearConv": _qlinear_conv,
}

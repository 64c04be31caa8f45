"""Convolutions and their relatives.

A transposed convolution has the filters of all phases of the strides here (``ops.transposed_convolution``); that
operator maps taps of phases to taps of the weight.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import i64
from tilewright.frontend.onnx.write.forms.form import FormFunction, Writing
from tilewright.frontend.onnx.write.forms.windows import slid
from tilewright.graph import Value, evaluate_node, make_node
from tilewright.ops.operator import require
from tilewright.ops.shapes import simplified, static
from tilewright.ops.windows import number
from tilewright.symbolic.expr import as_expr, const

_Taps = NDArray[np.int64]


def _sliding(operator: str, groups: Sequence[str] = ("group",), around: str | None = None) -> FormFunction:
    """A weight that slides over the data; ``around``: see ``slid``."""

    def form(writing: Writing) -> None:
        kernel = writing.value(1).shape[2:]
        window = slid(writing, kernel, around)
        options = {name: writing.integer(name) for name in groups} | window.attributes
        writing.result(operator, [window.data, *writing.inputs[1:]], kernel_shape=static(kernel), **options)

    return form


_PLAIN = _sliding("Conv", around="")


def _conv(writing: Writing) -> None:
    """A convolution whose result is much larger than its data multiplies zeros: its transpose does not."""
    cut = _cut_of_transpose(writing)
    if cut is None:
        _PLAIN(writing)
    else:
        _write_transposed(writing, cut)


_MUCH = 2
"""The ratio of elements from which a convolution is transposed."""


def _cut_of_transpose(writing: Writing) -> list[int] | None:
    """The crop of the transpose of a convolution; None if it is not transposed."""
    before, after = static(writing.value(0).shape[2:]), static(writing.output.shape[2:])
    kernel, pads = static(writing.value(1).shape[2:]), writing.extents("pads")
    if before is None or after is None or kernel is None or pads is None or writing.integer("group") > 1:
        return None
    is_strided = max(writing.ints("strides") or (1,)) > 1
    if is_strided or writing.known(writing.value(1)) is None or math.prod(after) < _MUCH * math.prod(before):
        return None
    reach = [(k - 1) * d for k, d in zip(kernel, writing.ints("dilations") or (1,) * len(kernel), strict=True)]
    cut = [r - pad for r, pad in zip(reach * 2, pads, strict=True) if isinstance(pad, int)]
    return cut if len(cut) == len(pads) and min(cut) >= 0 else None


def _write_transposed(writing: Writing, cut: Sequence[int]) -> None:
    weight = writing.known(writing.value(1))
    assert weight is not None, "only weights that are known are turned"
    turned = np.flip(weight, tuple(range(2, weight.ndim))).swapaxes(0, 1)
    operands = [writing.input(0), writing.constant(np.ascontiguousarray(turned)), *writing.inputs[2:]]
    dilations, kernel = writing.ints("dilations"), weight.shape[2:]
    writing.result("ConvTranspose", operands, kernel_shape=kernel, dilations=dilations, pads=tuple(cut))


def _columns_to_image(writing: Writing) -> None:
    sizes = [writing.vector(writing.ints(name) or ()) for name in ("image", "block")]
    moves = {name: writing.ints(name) for name in ("strides", "pads", "dilations")}
    writing.result("Col2Im", [writing.input(0), *sizes], **moves)


# Transposed convolutions


def _taps(kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> _Taps:
    """Which tap of the weight each tap of each phase is, row-major: ``[strides..., taps...]``; -1: none."""
    weight = Value("weight", i64, tuple(map(const, (1, 1, *kernel))))
    node = make_node(
        require("PhaseFilters"), [weight], ["filters"], {"strides": tuple(strides), "dilations": tuple(dilations)}
    )
    numbered = np.arange(1, math.prod(kernel) + 1).reshape(1, 1, *kernel)
    (filters,) = evaluate_node(node, {weight: numbered})
    rank = len(kernel)
    return filters.astype(np.int64).reshape(filters.shape[1 : rank + 1] + filters.shape[rank + 2 :]) - 1


def _phase_filters(writing: Writing) -> None:
    """``[group * CI, CO, kernel...]`` to ``[group * CO, strides..., CI, taps...]``, zeros where there is no tap."""
    extents, after = static(writing.value(0).shape), static(writing.output.shape)
    if extents is None or after is None:
        raise writing.unsupported("its weight has run-time extents; give the model's shapes")
    (inputs, outputs, *kernel), group = extents, writing.integer("group")
    taps = _taps(kernel, writing.ints("strides") or (), writing.ints("dilations") or ())
    phases = math.prod(taps.shape[: len(kernel)])
    shaped = (group, inputs // group, outputs, math.prod(kernel))
    flat = writing.apply("Reshape", [writing.input(0), writing.vector(shaped)])
    padded = writing.apply("Pad", [flat, writing.vector((0, 0, 0, 0, 0, 0, 0, 1))])
    places = np.where(taps < 0, math.prod(kernel), taps).reshape(phases, -1)
    chosen = writing.apply("Gather", [padded, writing.constant(places)], axis=3)
    moved = writing.apply("Transpose", [chosen], perm=(0, 2, 3, 1, 4))
    writing.result("Reshape", [moved, writing.vector(after)])


def _phase_conv(writing: Writing) -> None:
    """ONNX's ConvTranspose, which crops or pads the end of the output."""
    x, filters = writing.value(0), writing.value(1)
    rank = len(x.shape) - 2
    kernel, dilations, begins = (writing.ints(name) or () for name in ("kernel", "dilations", "begins"))
    shape = static(filters.shape)
    if shape is None:
        raise writing.unsupported("its weight has run-time extents; give the model's shapes")
    strides = shape[1 : rank + 1]
    ends = _ends(writing, strides)
    # At most a stride can be added: for more, the data are padded with zeros.
    limits = [max(pair) for pair in zip(strides, dilations, strict=True)]
    missing = [max(-(end + limit - 1), 0) for end, limit in zip(ends, limits, strict=True)]
    zeros = [-(-lack // stride) for lack, stride in zip(missing, strides, strict=True)]
    ends = [end + count * stride for end, count, stride in zip(ends, zeros, strides, strict=True)]
    pads = writing.vector((*[0] * (rank + 2), 0, 0, *zeros))
    writing.result(
        "ConvTranspose",
        [
            writing.apply("Pad", [x.name, pads]) if any(zeros) else x.name,
            _weight(writing, filters, shape, kernel, dilations),
            *writing.inputs[2:],
        ],
        strides=strides,
        dilations=dilations,
        kernel_shape=kernel,
        group=writing.integer("group"),
        pads=(*begins, *(max(end, 0) for end in ends)),
        output_padding=tuple(max(-end, 0) for end in ends),
    )


def _ends(writing: Writing, strides: Sequence[int]) -> list[int]:
    """The crop at the end of a transposed convolution's output; negative: padding."""
    kernel, dilations, begins = (writing.ints(name) or () for name in ("kernel", "dilations", "begins"))
    spatial = map(as_expr, writing.extents("spatial") or ())
    moves = zip(writing.value(0).shape[2:], strides, kernel, dilations, begins, spatial, strict=True)
    ends = [number(simplified((i - 1) * s + (k - 1) * d + 1 - b - y)) for i, s, k, d, b, y in moves]
    known = [end for end in ends if isinstance(end, int)]
    if len(known) != len(ends):
        raise writing.unsupported("its padding depends on run-time extents; give the model's shapes")
    return known


def _weight(
    writing: Writing, filters: Value, shape: Sequence[int], kernel: Sequence[int], dilations: Sequence[int]
) -> str:
    """The weight from which the filters of all phases are derived."""
    rank, group = len(kernel), writing.integer("group")
    strides, inputs, outputs = shape[1 : rank + 1], shape[rank + 1], shape[0] // group
    taps = _taps(kernel, strides, dilations).reshape(-1)
    places = np.zeros(math.prod(kernel), np.int64)
    places[taps[taps >= 0]] = np.flatnonzero(taps >= 0)
    split = (group, outputs, math.prod(strides), inputs, math.prod(shape[rank + 2 :]))
    joined, final = (group, inputs, outputs, taps.size), (group * inputs, outputs, *kernel)
    order = (0, 3, 1, 2, 4)
    known = writing.known(filters)
    if known is not None:
        moved = known.reshape(split).transpose(order).reshape(joined)
        return writing.constant(np.ascontiguousarray(moved[..., places].reshape(final)))
    apart = writing.apply("Reshape", [filters.name, writing.vector(split)])
    moved_ = writing.apply("Transpose", [apart], perm=order)
    flat = writing.apply("Reshape", [moved_, writing.vector(joined)])
    chosen = writing.apply("Gather", [flat, writing.constant(places)], axis=3)
    return writing.apply("Reshape", [chosen, writing.vector(final)])


FORMS: Mapping[str, FormFunction] = {
    "Col2Im": _columns_to_image,
    "Conv": _conv,
    "ConvInteger": _sliding("ConvInteger"),
    "DeformConv": _sliding("DeformConv", ("group", "offset_group")),
    "PhaseConv": _phase_conv,
    "PhaseFilters": _phase_filters,
}

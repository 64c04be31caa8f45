"""ONNX's operators that move elements."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from tilewright.base.dtypes import i64
from tilewright.frontend.onnx.read.rules.aligning import declared, in_parts
from tilewright.frontend.onnx.read.rules.rule import Request, Rule, RuleFunction, same
from tilewright.frontend.onnx.read.rules.run_time_shapes import expanded, is_data, numbers, reshaped, sliced
from tilewright.graph import Value
from tilewright.ops.shapes import element_count, same_extent, show, simplified
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr, as_expr, maximum, minimum
from tilewright.symbolic.simplify import simplify


def _axes_of(request: Request, given: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in the given order; by default all. Raises ``InvalidModel``."""
    axes = tuple(range(rank)) if given is None else tuple(given)
    if any(not -rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes}) != len(axes):
        raise request.invalid(f"axes {axes} are not different axes of {rank} dimensions")
    return tuple(axis % rank for axis in axes)


def _shape(request: Request) -> Sequence[Value]:
    end = request.attributes.get("end")
    chosen = request.input(0).shape[request.integer("start", 0) : end if isinstance(end, int) else None]
    return [request.importer.symbolic_value(chosen, (len(chosen),), i64, request.place)]


def _size(request: Request) -> Sequence[Value]:
    count = element_count(request.input(0).shape)
    return [request.importer.symbolic_value((count,), (), i64, request.place)]


_SLICE = Rule("Slice", same("starts", "ends", "axes"), {1: "starts", 2: "ends", 3: "axes", 4: "steps"})


def _slice(request: Request) -> Sequence[Value]:
    """Bounds may depend on run-time extents, or be data, as axes and steps may."""
    if any(is_data(request, position) for position in range(1, 5)):
        return [sliced(request, *_axes_and_steps(request))]
    starts, ends = request.extents(1) or (), request.extents(2) or ()
    if all(isinstance(bound, int) for bound in (*starts, *ends)):
        return _SLICE(request)
    data, steps = request.input(0), request.integers(4) or (1,) * len(starts)
    axes = _axes_of(request, request.integers(3) or tuple(range(len(starts))), len(data.shape))
    if not len(starts) == len(ends) == len(axes) == len(steps) or min(steps) < 1:
        raise request.unsupported(f"slices from {starts} to {ends} by {steps}; only steps forward are supported here")
    first, last = (
        tuple(_place_in(request, bound, data.shape[axis]) for bound, axis in zip(bounds, axes, strict=True))
        for bounds in (starts, ends)
    )
    return [request.apply("Slice", data, starts=first, ends=last, axes=axes, steps=steps)]


def _axes_and_steps(request: Request) -> tuple[Sequence[int] | None, Sequence[int] | None]:
    """Of a slice by data; None for what is data."""
    data = request.input(0)
    listed = None if is_data(request, 3) else request.integers(3) or range(request.extent(request.input(1), 0))
    axes = None if listed is None else _axes_of(request, tuple(listed), len(data.shape))
    if is_data(request, 4):
        return axes, None
    count = len(listed) if listed is not None else request.extent(request.input(1), 0)
    return axes, request.integers(4) or (1,) * count


def _place_in(request: Request, bound: int | Expr, extent: Expr) -> int | Expr:
    """A bound that is an expression, counted from the front and clipped to the dimension."""
    symbolic = request.importer.symbolic
    if isinstance(bound, int):
        return bound
    match symbolic.sign(bound):
        case 1:
            return symbolic.at_most(bound, extent)
        case -1:
            return simplify(maximum(bound + extent, ZERO), symbolic.bounds)
        case _ if symbolic.depends_on_emptiness(bound):
            raise request.unsupported(f"the bound {bound} of a slice has another sign where an extent is 0")
        case _:
            is_negative = minimum(maximum(ZERO - bound, ZERO), ONE)
            place = minimum(maximum(bound + is_negative * extent, ZERO), extent)
            return simplify(place, symbolic.bounds)


_EXPAND = Rule("Expand", {}, {1: "shape"})
_RESHAPE = Rule("Reshape", {"allowzero": "allow_zero"}, {1: "shape"})


def _expand(request: Request) -> Sequence[Value]:
    return [expanded(request)] if is_data(request, 1) else _EXPAND(request)


def _tile(request: Request) -> Sequence[Value]:
    return [request.apply("Tile", request.input(0), repeats=request.sizes(1))]


def _reshape(request: Request) -> Sequence[Value]:
    """An extent of which whole parts are made must be a multiple of these."""
    if is_data(request, 1):
        return [reshaped(request)]
    target = request.extents(1)
    if target is None:
        return _RESHAPE(request)
    data = in_parts(request.importer, request.input(0), target, request.place)
    return _RESHAPE(replace(request, inputs=(data, *request.inputs[1:])))


_MOST_PARTS = 1 << 12
"""Maximum equal parts of an extent that is known at run time only."""


def _split(request: Request) -> Sequence[Value]:
    """Into parts of the given lengths, or of equal ones; the last may be shorter. Lengths may be run-time extents."""
    data, rank = request.input(0), len(request.input(0).shape)
    (axis,) = _axes_of(request, [request.integer("axis", 0)], rank)
    lengths = request.ints("split") or numbers(request, 1)
    if lengths is None:
        lengths = _equal_parts(request, data.shape[axis])
    for length in lengths:
        if isinstance(length, Expr):
            request.importer.symbolic.require(length)
        elif length < 0:
            raise request.invalid(f"lengths {show(lengths)} of parts are negative")
    if len(lengths) < request.outputs:
        raise request.invalid(f"{len(lengths)} parts for {request.outputs} outputs")
    ends = [simplified(end) for end in accumulate(map(as_expr, lengths), initial=ZERO)]
    data = _fitting(request, data, {axis: ends[-1]}, f"lengths {show(lengths)} do not make up")
    places = [_plain(end) for end in ends]
    return [
        request.apply("Slice", data, starts=(start,), ends=(end,), axes=(axis,), steps=(1,))
        for start, end in pairwise(places[: request.outputs + 1])
    ]


def _equal_parts(request: Request, extent: Expr) -> tuple[int | Expr, ...]:
    """From opset 18 on the last part may be shorter."""
    count = max(request.integer("num_outputs", request.outputs), 1)
    if not isinstance(extent, Const):
        if count > _MOST_PARTS:
            raise request.unsupported(f"num_outputs is {count}, more than {_MOST_PARTS}; give the lengths")
        part = simplified((extent + (count - 1 if request.opset >= 18 else 0)) // count)
        return (part,) * (count - 1) + (simplified(extent - part * (count - 1)) if request.opset >= 18 else part,)
    whole = int(extent.value)
    if count > max(whole, request.outputs):
        raise request.invalid(f"num_outputs is {count}, more than the {whole} elements; give the lengths")
    if request.opset < 18 and whole % count:
        raise request.invalid(f"{whole} elements are no {count} equal parts; give the lengths")
    part = -(-whole // count)
    return tuple(max(min(part, whole - n * part), 0) for n in range(count))


def _fitting(request: Request, data: Value, extents: Mapping[int, Expr], reason: str) -> Value:
    """``data`` with these extents by axis, which it must have. Raises ``InvalidModel`` if it never has."""
    shape = tuple(extents.get(axis, extent) for axis, extent in enumerate(data.shape))
    fitting = declared(request.importer, data, shape, request.place)
    for axis, extent in extents.items():
        if not same_extent(fitting.shape[axis], extent):
            raise request.invalid(f"{reason} extent {data.shape[axis]} of dimension {axis} of {data!r}")
    return fitting


def _plain(extent: Expr) -> int | Expr:
    return int(extent.value) if isinstance(extent, Const) else extent


def _pad(request: Request) -> Sequence[Value]:
    """Before opset 11 pads and value are attributes."""
    data, rank = request.input(0), len(request.input(0).shape)
    pads = request.ints("pads") if request.opset < 11 else numbers(request, 1)
    value = request.optional(2)
    if "value" in request.attributes:
        value = request.constant(np.array(request.number("value", 0.0), data.dtype.numpy))
    axes = _axes_of(request, request.integers(3), rank)
    if pads is None or len(pads) != 2 * len(axes):
        raise request.invalid(f"pads {pads} are not two for each of the axes {axes}")
    for number in pads:
        if isinstance(number, Expr):
            request.importer.symbolic.require(number)
    before: list[int | Expr] = [0] * rank
    after: list[int | Expr] = [0] * rank
    for position, axis in enumerate(axes):
        before[axis], after[axis] = pads[position], pads[len(axes) + position]
    mode = request.text("mode", "constant")
    return [request.apply("Pad", data, value, before=tuple(before), after=tuple(after), mode=mode)]


def _center_crop_pad(request: Request) -> Sequence[Value]:
    """Crops or pads to the center; an odd element at the end."""
    data, wanted = request.input(0), request.integers(1)
    axes = _axes_of(request, request.ints("axes"), len(data.shape))
    if wanted is None or len(wanted) != len(axes):
        raise request.invalid(f"the shape {wanted} is not one extent for each of the axes {axes}")
    before, after = [0] * len(data.shape), [0] * len(data.shape)
    for axis, extent in zip(axes, wanted, strict=True):
        missing = extent - request.extent(data, axis)
        half = abs(missing) // 2
        before[axis], after[axis] = (half, missing - half) if missing > 0 else (-half, missing + half)
    return [request.apply("Pad", data, before=tuple(before), after=tuple(after))]


def _blocks(request: Request) -> tuple[Value, int]:
    """The input of a move between depth and space, and the side of a block."""
    data, side = request.input(0), request.integer("blocksize", 0)
    if len(data.shape) != 4 or side < 1:
        raise request.invalid(f"{data!r} has not 4 dimensions, or the block size {side} is not positive")
    return data, side


def _depth_to_space(request: Request) -> Sequence[Value]:
    data, side = _blocks(request)
    c = request.extent(data, 1)
    n, _, h, w = map(_plain, data.shape)
    if c % (side * side):
        raise request.invalid(f"{c} channels of {data!r} are no multiple of {side * side}")
    depth = c // (side * side)
    by_column = request.text("mode", "DCR") == "DCR"
    split = (n, side, side, depth, h, w) if by_column else (n, depth, side, side, h, w)
    perm = (0, 3, 4, 1, 5, 2) if by_column else (0, 1, 4, 2, 5, 3)
    blocks = request.apply("Reshape", data, shape=split, allow_zero=True)
    moved = request.apply("Transpose", blocks, perm=perm)
    return [request.apply("Reshape", moved, shape=(n, depth, h * side, w * side), allow_zero=True)]


def _space_to_depth(request: Request) -> Sequence[Value]:
    data, side = _blocks(request)
    rows, columns = (simplified(extent // side) for extent in data.shape[2:])
    whole = {2: simplified(rows * side), 3: simplified(columns * side)}
    data = _fitting(request, data, whole, f"blocks of {side} x {side} do not make up")
    n, c, *_ = map(_plain, data.shape)
    height, width = _plain(rows), _plain(columns)
    blocks = request.apply("Reshape", data, shape=(n, c, height, side, width, side), allow_zero=True)
    perm = (0, 3, 5, 1, 2, 4) if request.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = request.apply("Transpose", blocks, perm=perm)
    return [request.apply("Reshape", moved, shape=(n, c * side * side, height, width), allow_zero=True)]


RULES: Mapping[str, RuleFunction] = {
    "CenterCropPad": _center_crop_pad,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": Rule("Flatten", same("axis")),
    "Pad": _pad,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": Rule("Squeeze", same("axes"), {1: "axes"}),
    "Tile": _tile,
    "Transpose": Rule("Transpose", same("perm")),
    "Trilu": Rule("Trilu", same("upper")),
    "Unsqueeze": Rule("Unsqueeze", same("axes"), {1: "axes"}),
}

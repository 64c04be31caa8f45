"""ONNX's resizing and sampling of grids."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import TypeVar

import numpy as np

from tilewright.base.dtypes import f32, i64
from tilewright.base.errors import ResourceLimit
from tilewright.frontend.onnx.read import protos
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.frontend.onnx.read.rules.run_time_resizing import MAX_EXTENT, Change, resampled, scaled
from tilewright.frontend.onnx.read.rules.run_time_shapes import numbers
from tilewright.graph import Value
from tilewright.ops.interpolation import Coordinates, Filter, Line, Mode, Rounding, Table, table
from tilewright.ops.shapes import normalize_axes, same_extent, static
from tilewright.symbolic.expr import Const, Expr, as_expr, const

_NAMED = TypeVar("_NAMED", bound=Enum)


def _resize(request: Request) -> Sequence[Value]:
    """Axis by axis, so that the least work is left for the next ones; unchanged axes are skipped."""
    data = request.input(0)
    chosen = _filter(request)
    result = data
    extrapolated: list[tuple[int, Table]] = []
    for axis, change in sorted(_changes(request, data, chosen).items(), key=_order):
        line = change.line
        if line is None:
            result = resampled(request, result, axis, change, chosen)
            continue
        if _does_nothing(line, chosen):
            continue
        if line.before == 0 and line.after > 0:
            raise request.invalid(f"dimension {axis} of {data!r} has no elements to make {line.after} of")
        repeats = line.after // line.before if line.before else 0
        known = table(line, chosen)
        if _repeats(known, line):
            result = request.apply("Repeat", result, axis=axis, times=repeats)
        else:
            result = _resampled(request, result, axis, known, chosen)
        if known.outside.any():
            extrapolated.append((axis, known))
    if result.dtype != data.dtype:
        result = request.apply("Cast", result, to=data.dtype)
    for axis, known in extrapolated:
        result = _filled(request, result, axis, known)
    return [request.apply("Identity", data) if result == data else result]


def _order(change: tuple[int, Change]) -> tuple[float, int]:
    """Shrinking axes first; of those that grow alike the last one, along which elements change their lanes."""
    axis, line = change[0], change[1].line
    return 1.0 if line is None or not line.before else line.after / line.before, -axis


def _resampled(request: Request, data: Value, axis: int, known: Table, chosen: Filter) -> Value:
    if chosen.mode is Mode.NEAREST:
        return request.apply("Gather", data, request.constant(known.indices[:, 0]), axis=axis)
    dtype = data.dtype if data.dtype.is_float else f32
    indices, weights = request.constant(known.indices), request.constant(known.weights.astype(dtype.numpy))
    return request.apply("Resample", data, indices, weights, axis=axis)


def _filled(request: Request, data: Value, axis: int, known: Table) -> Value:
    """With the extrapolation value outside of the input."""
    mask = known.outside.reshape(-1, *(1,) * (len(data.shape) - axis - 1))
    value = np.array(request.number("extrapolation_value", 0.0)).astype(data.dtype.numpy)
    return request.apply("Where", request.constant(mask), request.constant(value), data)


def _does_nothing(line: Line, chosen: Filter) -> bool:
    crops = chosen.coordinates is Coordinates.TF_CROP_AND_RESIZE and line.crop != (0.0, 1.0)
    return line.before == line.after and not crops and (line.scale == 1.0 or line.after == 0)


def _repeats(known: Table, line: Line) -> bool:
    """Whether each element is only repeated."""
    if known.weights.shape[1] != 1 or not line.before or line.after % line.before or known.outside.any():
        return False
    times = line.after // line.before
    return bool((known.indices[:, 0] == np.arange(line.after) // times).all())


def _filter(request: Request) -> Filter:
    mode = request.text("mode", "nearest")
    if request.opset < 11:
        chosen = _named(request, "mode", Mode, mode)
        return Filter(chosen, Coordinates.ASYMMETRIC, Rounding.SIMPLE)
    default = Coordinates.HALF_PIXEL.value
    return Filter(
        _named(request, "mode", Mode, mode),
        _named(
            request,
            "coordinate_transformation_mode",
            Coordinates,
            request.text("coordinate_transformation_mode", default),
        ),
        _named(request, "nearest_mode", Rounding, request.text("nearest_mode", Rounding.PREFER_FLOOR.value)),
        request.number("cubic_coeff_a", -0.75),
        bool(request.integer("antialias", 0)),
        bool(request.integer("exclude_outside", 0)),
    )


def _named(request: Request, attribute: str, kind: type[_NAMED], value: str) -> _NAMED:
    try:
        return kind(value)
    except ValueError as error:
        known = ", ".join(str(each.value) for each in kind)
        raise request.invalid(f"attribute {attribute} is {value}; it must be one of {known}") from error


def _changes(request: Request, data: Value, chosen: Filter) -> dict[int, Change]:
    """The interpolation along each axis of the node."""
    axes = normalize_axes(request.ints("axes"), len(data.shape)) if request.ints("axes") != () else ()
    listed = request.ints("axes") or axes
    order = [axis % len(data.shape) for axis in listed] if len(data.shape) else []
    scales, sizes, crops = _parameters(request, len(order))
    if sizes is not None:
        changes = _to_sizes(request, data, dict(zip(order, sizes, strict=True)))
    elif chosen.coordinates is Coordinates.TF_CROP_AND_RESIZE:
        raise request.unsupported("crop and resize by scales is not supported; give sizes")
    else:
        by_axis = zip(order, scales, strict=True)
        changes = {axis: _by_scale(request, data, axis, scale, chosen) for axis, scale in by_axis}
    cropped = {axis: replace(changes[axis], crop=crop) for axis, crop in zip(order, crops, strict=True)}
    kept = {axis: change for axis, change in cropped.items() if change.line is not None or not _keeps(change)}
    _check_size(request, data, kept)
    return kept


def _keeps(change: Change) -> bool:
    """Whether an axis known at run time only stays as it is."""
    return change.scale in (None, 1.0) and change.crop == (0.0, 1.0) and same_extent(change.before, change.after)


def _by_scale(request: Request, data: Value, axis: int, scale: float, chosen: Filter) -> Change:
    before = data.shape[axis]
    if not isinstance(before, Const):
        return Change(before, before if scale == 1.0 else scaled(request, before, scale, chosen), scale)
    count = int(before.value)
    _check_extent(request, axis, count * scale)
    after = _floor(count, scale)
    if after != float(np.float32(scale)) * count and chosen.coordinates is Coordinates.ALIGN_CORNERS:
        raise request.unsupported(
            f"align_corners with scale {scale} of {count} elements is not supported, as implementations differ; "
            "give sizes"
        )
    return Change(before, const(after), scale)


def _check_extent(request: Request, axis: int, wanted: float) -> None:
    if wanted >= MAX_EXTENT + 1:
        text = (
            f"dimension {axis} would have {wanted:.0f} elements, more than {MAX_EXTENT}; use smaller scales, or sizes"
        )
        raise ResourceLimit(f"{request.place}: {text}")


def _check_size(request: Request, data: Value, changes: Mapping[int, Change]) -> None:
    for axis, change in changes.items():
        if isinstance(change.after, Const):
            _check_extent(request, axis, int(change.after.value))
    resized = (changes[axis].after if axis in changes else extent for axis, extent in enumerate(data.shape))
    protos.check_size(static(tuple(resized)) or (), f"{request.place}: its result")


def _floor(before: int, scale: float) -> int:
    return int(np.floor(np.float32(before) * np.float32(scale)))


def _parameters(request: Request, count: int) -> tuple[list[float], list[int | Expr] | None, list[tuple[float, float]]]:
    """Scales, sizes and crops, one for each axis; their inputs' positions depend on the opset."""
    if request.opset < 9 and request.op_type == "Upsample":
        return _checked_scales(request, list(request.numbers("scales")), count), None, [(0.0, 1.0)] * count
    if request.opset < 11:
        return _checked_scales(request, _floats(request, 1), count), None, [(0.0, 1.0)] * count
    scales, sizes, roi = _floats(request, 2), numbers(request, 3), _floats(request, 1)
    crops = [(0.0, 1.0)] * count
    if roi and request.text("coordinate_transformation_mode", "") == Coordinates.TF_CROP_AND_RESIZE.value:
        if len(roi) != 2 * count or not np.isfinite(roi).all():
            raise request.invalid(f"roi is {roi}; {2 * count} finite numbers are needed")
        crops = list(zip(roi[:count], roi[count:], strict=True))
    if not sizes and (scales or not count):
        return _checked_scales(request, scales, count), None, crops
    if not sizes or scales:
        raise request.invalid("it must have either scales or sizes")
    if len(sizes) != count or any(isinstance(size, int) and size < 0 for size in sizes):
        raise request.invalid(f"sizes is {list(sizes)}; {count} entries that are not negative are needed")
    return [], list(sizes), crops


def _floats(request: Request, position: int) -> list[float]:
    array = request.array(position)
    return [] if array is None else [float(x) for x in np.ravel(array)]


def _checked_scales(request: Request, scales: list[float], count: int) -> list[float]:
    if len(scales) != count or not all(np.isfinite(scale) and scale > 0 for scale in scales):
        raise request.invalid(f"scales is {scales}; {count} positive numbers are needed")
    return scales


def _to_sizes(request: Request, data: Value, sizes: Mapping[int, int | Expr]) -> dict[int, Change]:
    """The changes to ``sizes``; with a policy, all scales are equal and the sizes are adapted."""
    changes = {axis: _to_size(data.shape[axis], as_expr(size)) for axis, size in sizes.items()}
    match request.text("keep_aspect_ratio_policy", "stretch"):
        case "stretch":
            return changes
        case "not_larger" | "not_smaller" as policy:
            quotients = [change.scale for change in changes.values() if change.scale is not None]
            extents = static(tuple(change.before for change in changes.values()))
            if extents is None or len(quotients) < len(extents):
                raise request.run_time_only(f"keep_aspect_ratio_policy {policy} for {data!r}, whose size is")
            scale = (min if policy == "not_larger" else max)(quotients)
            after = [const(int(np.floor(scale * extent + 0.5))) for extent in extents]
            return {
                axis: replace(change, after=wanted, scale=scale)
                for (axis, change), wanted in zip(changes.items(), after, strict=True)
            }
        case policy:
            raise request.invalid(f"keep_aspect_ratio_policy is {policy}; it must be stretch, not_larger, not_smaller")


def _to_size(before: Expr, after: Expr) -> Change:
    """The scale is the quotient, if both are known."""
    if not (isinstance(before, Const) and isinstance(after, Const)):
        return Change(before, after, None)
    return Change(before, after, int(after.value) / int(before.value) if before.value else 1.0)


def _affine_grid(request: Request) -> Sequence[Value]:
    size = request.integers(1) or ()
    if len(size) not in (4, 5) or min(size) < 1:
        raise request.invalid(f"size is {list(size)}; it must be [N, C, H, W] or [N, C, D, H, W], each at least 1")
    theta, aligned = request.input(0), bool(request.integer("align_corners", 0))
    if static(theta.shape[:1]) not in (None, (), size[:1]):
        raise request.invalid(f"size is {list(size)} for {theta!r}: the first extents must agree")
    return [request.apply("AffineGrid", theta, spatial=size[2:], align_corners=aligned)]


_SAMPLES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of the modes in opset 16."""


def _grid_sample(request: Request) -> Sequence[Value]:
    mode = request.text("mode", "linear")
    padding = request.text("padding_mode", "zeros")
    aligned = bool(request.integer("align_corners", 0))
    data, grid = request.input(0), request.input(1)
    chosen = _SAMPLES.get(mode, mode)
    return [request.apply("GridSample", data, grid, mode=chosen, padding_mode=padding, align_corners=aligned)]


def _roi_align(request: Request) -> Sequence[Value]:
    samples = request.integer("sampling_ratio", 0)
    if samples < 0:
        raise request.invalid(f"sampling_ratio is {samples}; give 1 or more, or 0 for as many as a region is large")
    default = "half_pixel" if request.opset >= 16 else "output_half_pixel"
    placing = request.text("coordinate_transformation_mode", default)
    mode = request.text("mode", "avg")
    if placing not in ("half_pixel", "output_half_pixel") or mode not in ("avg", "max"):
        raise request.invalid(f"mode {mode} with coordinates {placing}: avg, max with (output_)half_pixel are there")
    output = (request.integer("output_height", 1), request.integer("output_width", 1))
    scale, offset = request.number("spatial_scale", 1.0), 0.5 if placing == "half_pixel" else 0.0
    counts = None
    if samples == 0:
        counts = _samples_of_regions(request, output, scale, offset)
        wanted = request.apply("ReduceMax", counts, keepdims=False)
        samples = request.sizes_of(request.apply("Max", wanted, request.constant(np.array(1, np.int64))))[0]
    inputs = [*(request.input(position) for position in range(3)), *([] if counts is None else [counts])]
    options = {"output": output, "samples": samples, "scale": scale, "offset": offset, "largest": mode == "max"}
    return request.apply_many("RoiAlign", inputs, 1, **options)


def _samples_of_regions(request: Request, output: tuple[int, int], scale: float, offset: float) -> Value:
    """As many samples for each bin of a region as it has pixels, along x and y: i64[regions, 2]."""
    rois = request.input(1)

    def number(*values: float) -> Value:
        return request.constant(np.array(values, rois.dtype.numpy))

    def corner(first: int) -> Value:
        part = request.apply("Slice", rois, starts=(first,), ends=(first + 2,), axes=(1,))
        return request.apply("Sub", request.apply("Mul", part, number(scale)), number(offset))

    sides = request.apply("Sub", corner(2), corner(0))
    sides = sides if offset else request.apply("Max", sides, number(1.0))
    parts = request.apply("Div", sides, number(*map(float, reversed(output))))
    counts = request.apply("Cast", request.apply("Ceil", parts), to=i64)
    return request.apply("Max", counts, request.constant(np.array(0, np.int64)))


RULES: Mapping[str, RuleFunction] = {
    "AffineGrid": _affine_grid,
    "GridSample": _grid_sample,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Upsample": _resize,
}

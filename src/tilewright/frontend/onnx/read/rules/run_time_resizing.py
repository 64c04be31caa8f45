"""Resizing along an axis whose extent, before or after, is known at run time only.

The table of the axis (``ops.interpolation``) is then computed by nodes of the graph, once in a run: one kernel for the
source indices, and one for the weights. The rest is as for fixed extents, and so are the numbers, operation by
operation.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtypes import DType, boolean, f32, f64, i64
from tilewright.frontend.onnx.read.rules.rule import Request
from tilewright.graph import Value
from tilewright.ops.interpolation import Coordinates, Filter, Line, Mode, Rounding, table
from tilewright.symbolic.expr import ONE, Const, Expr
from tilewright.tensor.elements import Limit

MAX_EXTENT = 1 << 24
"""Maximum length of a resized axis: f32 counts so far."""
_SAMPLE = 64
"""Elements over which a pattern that repeats with each element is compared."""


@dataclass(frozen=True, slots=True)
class Change:
    """One axis of a resize: ``before`` elements become ``after``.

    ``scale``: that of the model; None: the quotient of the two, which is known at run time only. ``crop``: see
    ``interpolation.Line``.
    """

    before: Expr
    after: Expr
    scale: float | None
    crop: tuple[float, float] = (0.0, 1.0)

    @property
    def line(self) -> Line | None:
        """The axis, if both extents are known."""
        if isinstance(self.before, Const) and isinstance(self.after, Const) and self.scale is not None:
            return Line(int(self.before.value), int(self.after.value), self.scale, self.crop)
        return None


def scaled(request: Request, before: Expr, scale: float, chosen: Filter) -> Expr:
    """``floor(before * scale)`` as ONNX Runtime computes it, in f32, for an extent known at run time only.

    Raises ``UnsupportedModel`` if the product may be rounded, which no integer expression gives.
    """
    above, below = float(np.float32(scale)).as_integer_ratio()
    if above > _MAX_RATIO or below > _MAX_RATIO:
        raise request.unsupported(
            f"the scale {scale} of the extent {before}, which is known at run time only, is rounded; "
            f"give sizes, or a scale that is a multiple of a power of two, or {request.importer.symbolic.by_shapes}"
        )
    if below != 1 and chosen.coordinates is Coordinates.ALIGN_CORNERS:
        raise request.unsupported(
            f"align_corners with scale {scale} of {before} elements is not supported, as implementations differ; "
            "give sizes"
        )
    _limit(request, before, MAX_EXTENT // above)
    return before * above // below


_MAX_RATIO = 1 << 10
"""Maximum numerator and denominator of a scale: up to 2**24 / 2**10 elements, f32 has the exact product."""


def resampled(request: Request, data: Value, axis: int, change: Change, chosen: Filter) -> Value:
    """``data`` resized along ``axis``. Raises ``UnsupportedModel`` for what needs a table of known length."""
    _check(request, change, chosen)
    times = _repetitions(change, chosen)
    if times is not None:
        return request.apply("Repeat", data, axis=axis, times=times)
    request.importer.symbolic.require(change.before - 1)
    _limit(request, change.before, MAX_EXTENT)
    _limit(request, change.after, MAX_EXTENT)
    if chosen.mode is Mode.NEAREST:
        arithmetic = _Arithmetic(request, change, f32)
        indices = arithmetic.whole(_nearest(arithmetic, chosen))
        return request.apply("Gather", data, arithmetic.in_range(indices), axis=axis)
    arithmetic = _Arithmetic(request, change, f64)
    indices, weights = _weighted(arithmetic, chosen)
    dtype = data.dtype if data.dtype.is_float else f32
    weights = request.apply("Cast", weights, to=dtype)
    return request.apply("Resample", data, arithmetic.in_range(indices), weights, axis=axis)


def _check(request: Request, change: Change, chosen: Filter) -> None:
    if chosen.coordinates is Coordinates.TF_CROP_AND_RESIZE:
        raise request.run_time_only(f"crop and resize of {change.before} elements, a number")
    if chosen.antialias and change.scale is None:
        raise request.run_time_only(f"antialiasing from {change.before} to {change.after} elements, numbers")


def _limit(request: Request, extent: Expr, most: int) -> None:
    """Let the runtime refuse inputs for which ``extent`` is larger."""
    if not isinstance(extent, Const):
        request.importer.symbolic.limits[Limit(extent, most)] = None


def _repetitions(change: Change, chosen: Filter) -> int | None:
    """The number of times that each element is repeated, if the table does nothing else.

    Multiplying by a power of two is exact, so that the table of a few elements continues likewise.
    """
    scale = change.scale
    is_power = scale is not None and scale >= 1 and scale.is_integer() and int(scale).bit_count() == 1
    if scale is None or not is_power or chosen.mode is not Mode.NEAREST:
        return None
    if chosen.coordinates in (Coordinates.ALIGN_CORNERS, Coordinates.HALF_PIXEL_SYMMETRIC):
        return None
    times = int(scale)
    known = table(Line(_SAMPLE, _SAMPLE * times, scale), chosen)
    return times if (known.indices[:, 0] == np.arange(_SAMPLE * times) // times).all() else None


@dataclass(frozen=True, slots=True)
class _Arithmetic:
    """Nodes that compute with the positions of one axis, in ``dtype``."""

    request: Request
    change: Change
    dtype: DType

    def number(self, value: float) -> Value:
        return self.request.constant(np.array(value, self.dtype.numpy))

    def extent(self, extent: Expr) -> Value:
        """An extent as an i64 scalar."""
        return self.request.importer.symbolic_value((extent,), (), i64, self.request.place)

    def of(self, op: str, *operands: Value) -> Value:
        return self.request.apply(op, *operands)

    def cast(self, value: Value, dtype: DType) -> Value:
        return self.request.apply("Cast", value, to=dtype)

    def before(self) -> Value:
        return self.cast(self.extent(self.change.before), self.dtype)

    def after(self) -> Value:
        return self.cast(self.extent(self.change.after), self.dtype)

    def scale(self) -> Value:
        """The scale, rounded once, from f64."""
        if self.change.scale is not None:
            return self.number(self.change.scale)
        after, before = (self.cast(self.extent(e), f64) for e in (self.change.after, self.change.before))
        return self.cast(self.of("Div", after, before), self.dtype)

    def counted(self) -> Value:
        """The positions in the resized axis."""
        zero, one = (self.request.constant(np.array(number, np.int64)) for number in (0, 1))
        count = self.change.after
        places = self.request.apply("Range", zero, one, count=int(count.value) if isinstance(count, Const) else count)
        return self.cast(places, self.dtype)

    def whole(self, value: Value) -> Value:
        return self.cast(value, i64)

    def in_range(self, indices: Value) -> Value:
        """``indices`` moved to the nearest element."""
        zero = self.request.constant(np.array(0, np.int64))
        return self.of("Min", self.of("Max", indices, zero), self.extent(self.change.before - 1))


def _places(on: _Arithmetic, coordinates: Coordinates) -> Value:
    """As ``interpolation._places``."""
    x, half = on.counted(), on.number(0.5)

    def centred() -> Value:
        return on.of("Sub", on.of("Div", on.of("Add", x, half), on.scale()), half)

    match coordinates:
        case Coordinates.HALF_PIXEL:
            return centred()
        case Coordinates.PYTORCH_HALF_PIXEL:
            return _if_several(on, centred, x)
        case Coordinates.HALF_PIXEL_SYMMETRIC:
            adjustment = on.of("Div", on.after(), on.of("Mul", on.scale(), on.before()))
            shift = on.of("Mul", on.of("Mul", on.before(), half), on.of("Sub", on.number(1.0), adjustment))
            return on.of("Sub", on.of("Add", shift, on.of("Div", on.of("Add", x, half), on.scale())), half)
        case Coordinates.ALIGN_CORNERS:
            one = on.number(1.0)
            steps = on.of("Max", on.of("Sub", on.after(), one), one)
            return on.of("Div", on.of("Mul", x, on.of("Sub", on.before(), one)), steps)
        case Coordinates.ASYMMETRIC:
            return on.of("Div", x, on.scale())
        case Coordinates.TF_HALF_PIXEL_FOR_NN:
            return on.of("Div", on.of("Add", x, half), on.scale())
        case Coordinates.TF_CROP_AND_RESIZE:
            raise AssertionError("refused before")


def _if_several(on: _Arithmetic, value: Callable[[], Value], other: Value) -> Value:
    """``value()`` if the resized axis has more than one element, else ``other``."""
    after = on.change.after
    if isinstance(after, Const):
        return value() if after.value > 1 else other
    several = on.request.importer.symbolic_value((after > ONE,), (), boolean, on.request.place)
    return on.of("Where", several, value(), other)


def _nearest(on: _Arithmetic, chosen: Filter) -> Value:
    places, half = _places(on, chosen.coordinates), on.number(0.5)
    match chosen.rounding:
        case Rounding.PREFER_FLOOR:
            return on.of("Ceil", on.of("Sub", places, half))
        case Rounding.PREFER_CEIL:
            return on.of("Floor", on.of("Add", places, half))
        case Rounding.FLOOR:
            return on.of("Floor", places)
        case Rounding.CEIL:
            return on.of("Ceil", places)
        case Rounding.SIMPLE:
            assert on.change.scale is not None, "before opset 11, scales are given"
            return on.of("Ceil" if on.change.scale < 1 else "Floor", places)


def _weighted(on: _Arithmetic, chosen: Filter) -> tuple[Value, Value]:
    """As ``interpolation._weighted``: indices before they are moved into range, and weights, ``[after, taps]``."""
    request = on.request
    radius = 1 if chosen.mode is Mode.LINEAR else 2
    stretch = min(on.change.scale, 1.0) if chosen.antialias and on.change.scale is not None else 1.0
    first = int(np.floor(-radius / stretch)) + 1
    offsets = request.constant(np.arange(first, 2 - first)[None])
    places = request.apply("Unsqueeze", _places(on, chosen.coordinates), axes=(1,))
    left = on.whole(on.of("Sub", on.of("Ceil", places), on.number(1.0)))
    indices = on.of("Add", left, offsets)
    distances = on.of("Abs", on.of("Sub", on.cast(indices, on.dtype), places))
    if stretch != 1.0:
        distances = on.of("Mul", distances, on.number(stretch))
    weights = _linear(on, distances) if chosen.mode is Mode.LINEAR else _cubic(on, distances, chosen.cubic_a)
    if chosen.exclude_outside:
        inside = on.of("Equal", indices, on.in_range(indices))
        weights = on.of("Mul", weights, on.cast(inside, on.dtype))
    if chosen.exclude_outside or chosen.antialias:
        weights = on.of("Div", weights, request.apply("ReduceSum", weights, axes=(1,), keepdims=True))
    return indices, weights


def _linear(on: _Arithmetic, distances: Value) -> Value:
    return on.of("Max", on.of("Sub", on.number(1.0), distances), on.number(0.0))


def _cubic(on: _Arithmetic, d: Value, a: float) -> Value:
    """As ``interpolation._cubic``."""

    def polynomial(*coefficients: float) -> Value:
        """From the highest power on."""
        result = on.number(coefficients[0])
        for coefficient in coefficients[1:]:
            result = on.of("Add", on.of("Mul", result, d), on.number(coefficient))
        return result

    near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
    outer = on.of("Where", on.of("Less", d, on.number(2.0)), far, on.number(0.0))
    return on.of("Where", on.of("LessOrEqual", d, on.number(1.0)), near, outer)

"""Reshape, Expand, Slice, Range and others by numbers that are data: native code finds the sizes of the result, which
are then read as extents.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tilewright.base.dtypes import i64
from tilewright.frontend.onnx.read.rules.rule import Request
from tilewright.graph import Value
from tilewright.ops.shapes import element_count, static
from tilewright.symbolic.expr import ONE, Expr, as_expr

_Bounds: TypeAlias = tuple[Value, Value]
"""Where slices start and end, along each axis."""
_FARTHEST = 1 << 62
"""Longer steps lead out of every array, and their sums with extents out of i64."""


def is_data(request: Request, position: int) -> bool:
    """Whether an input, if there is one, holds integers that neither are constants nor depend on shapes only."""
    value = request.optional(position)
    return value is not None and value.dtype.is_int and request.importer.elements(value) is None


def numbers(request: Request, position: int) -> tuple[int | Expr, ...] | None:
    """The elements of an optional input. Those that are data become extents, which are not negative."""
    return request.sizes(position) if is_data(request, position) else request.extents(position)


def reshaped(request: Request) -> Value:
    """Reshape: 0 copies an extent (unless ``allowzero``), and one -1 is inferred."""
    data, target = request.input(0), _vector(request, 1)
    rank, own = _length(request, target), data.shape
    total = element_count(own)
    if not request.integer("allowzero", 0):
        copied = request.importer.symbolic_value((own + (as_expr(0),) * rank)[:rank], (rank,), i64, request.place)
        target = _where(request, "Equal", target, 0, copied, target)
    known = request.apply(
        "ReduceProd", _where(request, "Equal", target, -1, _number(request, 1), target), keepdims=True
    )
    whole = request.importer.symbolic_value((total,), (1,), i64, request.place)
    left = request.apply("Div", whole, request.apply("Max", known, _number(request, 1)))
    sizes = [as_expr(size) for size in request.sizes_of(_where(request, "Equal", target, -1, left, target))]
    flat = request.apply("Reshape", data, shape=(total,), allow_zero=True)
    request.importer.symbolic.equate(total, element_count(tuple(sizes)))
    declared = request.apply("Declared", flat, shape=(element_count(tuple(sizes)),))
    return request.apply("Reshape", declared, shape=tuple(sizes), allow_zero=True)


def expanded(request: Request) -> Value:
    """Expand: 1 keeps an extent. An extent that is known at run time only is taken not to be 1 where it is expanded."""
    data, target = request.input(0), _vector(request, 1)
    rank = max(_length(request, target), len(data.shape))
    own = (ONE,) * (rank - len(data.shape)) + data.shape
    behind = own[rank - _length(request, target) :]
    kept = request.importer.symbolic_value(behind, (len(behind),), i64, request.place)
    found = request.sizes_of(_where(request, "Equal", target, 1, kept, target))
    sizes = (*own[: rank - len(found)], *found)
    for extent, size in zip(own, sizes, strict=True):
        if extent != ONE:
            request.importer.symbolic.equate(extent, as_expr(size))
    shape = tuple(size if extent == ONE else extent for extent, size in zip(own, sizes, strict=True))
    return request.apply("Expand", data, shape=shape)


def sliced(request: Request, axes: Sequence[int] | None, steps: Sequence[int] | None) -> Value:
    """Slice from ``starts`` to ``ends``, both counted from the end where they are negative, and clipped.

    ``axes`` and ``steps`` are None if they are data.
    """
    bounds = (_vector(request, 1), _vector(request, 2))
    if axes is not None and steps is not None:
        return _sliced_by(request, axes, [max(min(step, _FARTHEST), -_FARTHEST) for step in steps], bounds)
    by = _vector(request, 4) if steps is None else request.constant(np.array(steps, np.int64))
    by = _clipped(request, by, _number(request, -_FARTHEST), _number(request, _FARTHEST))
    if axes is None:
        bounds, by = _along_all(request, bounds, by)
    return _picked(request, range(len(request.input(0).shape)) if axes is None else axes, bounds, by)


def _sliced_by(request: Request, axes: Sequence[int], steps: Sequence[int], bounds: _Bounds) -> Value:
    if 0 in steps:
        raise request.invalid(f"steps {steps} are not all different from 0")
    _check_lengths(request, len(axes), (*bounds, request.constant(np.array(steps, np.int64))))
    backwards = request.constant(np.array([step < 0 for step in steps]))
    first, counts = _places(request, axes, bounds, backwards, request.constant(np.abs(np.array(steps, np.int64))))
    sizes = request.sizes_of(counts)
    return request.apply("SliceFrom", request.input(0), first, counts=sizes, axes=tuple(axes), steps=tuple(steps))


def _picked(request: Request, axes: Sequence[int], bounds: _Bounds, steps: Value) -> Value:
    """A slice by ``steps`` that are data: elements at computed places. A run in which one is 0 raises ``BadFeed``."""
    _check_lengths(request, len(axes), (*bounds, steps))
    backwards = request.apply("Less", steps, _number(request, 0))
    size = request.apply("Max", request.apply("Abs", steps), _number(request, 1))
    first, counts = _places(request, axes, bounds, backwards, size)
    sizes = request.sizes_of(_where(request, "Equal", steps, 0, _number(request, -1), counts))
    result = request.input(0)
    for at, (axis, count) in enumerate(zip(axes, sizes, strict=True)):
        begin, step = (
            request.apply("Slice", numbers, starts=(at,), ends=(at + 1,), axes=(0,), steps=(1,))
            for numbers in (first, steps)
        )
        result = request.apply("Gather", result, request.apply("Range", begin, step, count=count), axis=axis)
    return result


def _places(
    request: Request, axes: Sequence[int], bounds: _Bounds, backwards: Value, size: Value
) -> tuple[Value, Value]:
    """Where a slice begins along each axis, counted from the front, and how many elements it has."""
    starts, ends = bounds
    own = tuple(request.input(0).shape[axis] for axis in axes)
    extents = request.importer.symbolic_value(own, (len(axes),), i64, request.place)
    shift = request.apply("Cast", backwards, to=i64)  # backwards, a slice begins at most at the last element
    most = request.apply("Sub", extents, shift)
    first = _clipped(request, _from_front(request, starts, extents), _number(request, 0), most)
    last = _clipped(request, _from_front(request, ends, extents), request.apply("Neg", shift), most)
    ahead, back = request.apply("Sub", last, first), request.apply("Sub", first, last)
    distance = request.apply("Where", backwards, back, ahead)
    rounded = request.apply("Sub", request.apply("Add", distance, size), _number(request, 1))
    return first, request.apply("Div", request.apply("Max", rounded, _number(request, 0)), size)


def _along_all(request: Request, bounds: _Bounds, steps: Value) -> tuple[_Bounds, Value]:
    """Bounds and steps for every axis, of those for axes that are data: what is not named is taken whole.

    A step is 0, which is refused in a run, if an axis is named twice, or is none.
    """
    shape, axes = request.input(0).shape, _vector(request, 3)
    rank, count = len(shape), _length(request, axes)
    _check_lengths(request, count, (*bounds, steps))
    forward = request.apply("Reshape", _from_front(request, axes, _number(request, rank)), shape=(1, count))
    is_meant = request.apply("Equal", request.constant(np.arange(rank, dtype=np.int64)[:, None]), forward)
    named = request.apply("ReduceMax", request.apply("Cast", is_meant, to=i64), axes=(1,), keepdims=False)

    def spread(numbers: Value, otherwise: Value) -> Value:
        chosen = request.apply("Where", is_meant, request.apply("Reshape", numbers, shape=(1, count)), nothing)
        total = request.apply("ReduceSum", chosen, axes=(1,), keepdims=False)
        return _where(request, "Equal", named, 1, total, otherwise)

    nothing, one = _number(request, 0), _number(request, 1)
    extents = request.importer.symbolic_value(shape, (rank,), i64, request.place)
    different = request.apply("ReduceSum", named, axes=(0,), keepdims=True)
    by = _where(request, "Equal", different, count, spread(steps, one), nothing)
    return (spread(bounds[0], nothing), spread(bounds[1], extents)), by


def _check_lengths(request: Request, count: int, vectors: Sequence[Value]) -> None:
    if any(_length(request, vector) != count for vector in vectors):
        raise request.invalid(f"{', '.join(map(repr, vectors))} are not {count} numbers each, one for each axis")


def counted(request: Request) -> Value:
    """Range from ``start`` to ``limit`` by ``delta``."""
    start, limit, delta = (request.apply("Reshape", request.input(at), shape=(1,)) for at in range(3))
    (count,) = request.sizes_of(request.apply("RangeCount", start, limit, delta))
    return request.apply("Range", start, delta, count=count)


def _vector(request: Request, position: int) -> Value:
    value = request.input(position)
    if len(value.shape) != 1:
        raise request.invalid(f"{value!r} has to be a vector")
    return value if value.dtype == i64 else request.apply("Cast", value, to=i64)


def _length(request: Request, value: Value) -> int:
    shape = static(value.shape)
    if shape is None:
        raise request.unsupported(f"how many numbers {value!r} has is known at run time only, and so a rank")
    return shape[0]


def _number(request: Request, number: int) -> Value:
    return request.constant(np.array([number], np.int64))


def _where(request: Request, test: str, value: Value, number: int, then: Value, otherwise: Value) -> Value:
    """``then`` where ``value`` compared with ``number`` holds."""
    return request.apply("Where", request.apply(test, value, _number(request, number)), then, otherwise)


def _from_front(request: Request, places: Value, extents: Value) -> Value:
    return _where(request, "Less", places, 0, request.apply("Add", places, extents), places)


def _clipped(request: Request, value: Value, least: Value, most: Value) -> Value:
    """Where there is nothing between, ``most``."""
    return request.apply("Min", request.apply("Max", value, least), most)

"""Reshape, Expand, Slice, Range and others by numbers that are data: native code finds the sizes of the result, which
are then read as extents.
"""

from collections.abc import Sequence

import numpy as np

from tilewright.base.dtypes import i64
from tilewright.frontend.onnx.read.rules.rule import Request
from tilewright.graph import Value
from tilewright.ops.shapes import element_count, static
from tilewright.symbolic.expr import ONE, Expr, as_expr


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


def sliced(request: Request, axes: Sequence[int], steps: Sequence[int]) -> Value:
    """Slice from ``starts`` to ``ends``, both counted from the end where they are negative, and clipped."""
    data, starts, ends = request.input(0), _vector(request, 1), _vector(request, 2)
    if not _length(request, starts) == _length(request, ends) == len(axes) == len(steps) or 0 in steps:
        raise request.invalid(f"bounds {starts!r} and {ends!r} do not fit axes {axes} and steps {steps}")
    count = len(axes)
    extents = request.importer.symbolic_value(tuple(data.shape[axis] for axis in axes), (count,), i64, request.place)
    backwards = request.constant(np.array([step < 0 for step in steps]))
    shift = request.apply("Cast", backwards, to=i64)  # backwards, a slice begins at most at the last element
    most = request.apply("Sub", extents, shift)
    first = _clipped(request, _from_front(request, starts, extents), _number(request, 0), most)
    last = _clipped(request, _from_front(request, ends, extents), request.apply("Neg", shift), most)
    ahead, back = request.apply("Sub", last, first), request.apply("Sub", first, last)
    distance = request.apply("Where", backwards, back, ahead)
    size = request.constant(np.abs(np.array(steps, np.int64)))
    rounded = request.apply("Sub", request.apply("Add", distance, size), _number(request, 1))
    counts = request.apply("Div", request.apply("Max", rounded, _number(request, 0)), size)
    sizes = request.sizes_of(counts)
    return request.apply("SliceFrom", data, first, counts=sizes, axes=tuple(axes), steps=tuple(steps))


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
    return request.apply("Max", request.apply("Min", value, most), least)

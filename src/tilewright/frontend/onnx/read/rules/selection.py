"""ONNX's operators whose results have as many elements as the data says.

Native code counts, the count is read as an extent, and native code makes a result of that size.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.base.dtypes import boolean, i64
from tilewright.frontend.onnx.read.rules.indexing import check_constant, checked_axis
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value
from tilewright.ops.shapes import element_count
from tilewright.symbolic.expr import Expr


def _compress(request: Request) -> Sequence[Value]:
    """A gather of the positions that the condition chooses; these may be constants."""
    data, condition = request.input(0), request.input(1)
    if "axis" not in request.attributes:
        data, axis = request.apply("Reshape", data, shape=(-1,)), 0
    else:
        axis = checked_axis(request, data)
    known = request.importer.known(condition)
    if known is None:
        chosen = request.apply("Reshape", _positions(request, condition), shape=(-1,))
    else:
        chosen = request.constant(np.flatnonzero(known))
    check_constant(request, chosen, [data.shape[axis]], f"dimension {axis} of {data!r}")
    return [request.apply("Gather", data, chosen, axis=axis)]


def _non_zero(request: Request) -> Sequence[Value]:
    known = request.importer.known(request.input(0))
    if known is None:
        return [_positions(request, request.input(0))]
    return [request.constant(np.array(np.nonzero(np.atleast_1d(known)), np.int64))]


def _positions(request: Request, data: Value) -> Value:
    """The positions of what is not 0, as columns."""
    if not data.shape:
        data = request.apply("Reshape", data, shape=(1,))
    chosen = request.apply("Cast", request.apply("Cast", data, to=boolean), to=i64)
    count = _read_count(request, request.apply("ReduceSum", chosen, keepdims=False))
    return request.apply("NonZero", data, count=count)


def _read_count(request: Request, count: Value) -> int | Expr:
    """The only element of ``count`` as an extent."""
    (extent,) = request.sizes_of(count)
    return extent


def _non_max_suppression(request: Request) -> Sequence[Value]:
    boxes, scores = request.input(0), request.input(1)
    if len(boxes.shape) != 3 or len(scores.shape) != 3:
        raise request.invalid(f"{boxes!r} and {scores!r} need three dimensions each")
    count = boxes.shape[1]
    limit = _number(request, 2, 0, np.int64)
    known = request.importer.known(limit)
    most = count if known is None or not known.size else min(int(known.flat[0]), _LARGEST)
    if not isinstance(most, Expr) and most <= 0:
        return [request.constant(np.zeros((0, 3), np.int64))]
    ranked, order = request.apply_many("TopK", [scores], 2, k=count, axis=-1, largest=True)
    chosen, total = request.apply_many(
        "NonMaxSuppression",
        [boxes, ranked, order, limit, _number(request, 3, 0.0, np.float32), _number(request, 4, -np.inf, np.float32)],
        2,
        most_boxes=most,
        centered=bool(request.integer("center_point_box", 0)),
    )
    rows = _read_count(request, total)
    return [request.apply("First", chosen, count=rows)]


_LARGEST = 1 << 31
"""Limits above this number of boxes are none."""


def _number(request: Request, position: int, default: float, dtype: type[np.generic]) -> Value:
    """An optional input of one number, as an array of one dimension."""
    given = request.optional(position)
    value = request.constant(np.array([default], dtype)) if given is None else given
    return request.apply("Reshape", value, shape=(1,))


def _unique(request: Request) -> Sequence[Value]:
    """The elements, or slices along an axis, that differ; the place of each, and how often there are equal ones."""
    data, rank = request.input(0), len(request.input(0).shape)
    if "axis" in request.attributes:
        axis = checked_axis(request, data)
        ahead = (axis, *(other for other in range(rank) if other != axis))
        slices = request.apply("Transpose", data, perm=ahead)
    else:
        axis, ahead = 0, (0,)
        slices = request.apply("Reshape", data, shape=(element_count(data.shape),))
    length = element_count(slices.shape[1:])
    rows = request.apply("Reshape", slices, shape=(slices.shape[0], length), allow_zero=True)
    groups, total = request.apply_many("UniqueRows", [rows], 2)
    count = _read_count(request, total)
    is_sorted = bool(request.integer("sorted", 1))
    firsts, inverse, counts = request.apply_many("UniqueGroups", [groups], 3, count=count, by_value=is_sorted)
    chosen = request.apply("Gather", slices, firsts, axis=0)
    back = tuple(ahead.index(place) for place in range(len(ahead)))
    return [request.apply("Transpose", chosen, perm=back), firsts, inverse, counts][: request.outputs]


RULES: Mapping[str, RuleFunction] = {
    "Compress": _compress,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "Unique": _unique,
}

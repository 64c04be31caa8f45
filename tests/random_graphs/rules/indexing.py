"""Operators that look up and replace elements by their indices. Indices are in range; what is replaced, only once."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tests.random_graphs.case import Array
from tests.random_graphs.draw import MAX_ELEMENTS, Draw, Proposal, Value

Rule = Callable[[Draw], Proposal | None]


def _indices(draw: Draw, extents: Array, *, wrapped: bool = True) -> Array:
    """Random indices below ``extents``, some counted from the end."""
    found = np.array([draw.integer(0, int(e) - 1) for e in extents.reshape(-1)], np.int64).reshape(extents.shape)
    if wrapped and draw.chance(0.4):
        return found - extents * np.array([draw.integer(0, 1) for _ in range(extents.size)]).reshape(extents.shape)
    return found


def _gather(draw: Draw) -> Proposal | None:
    data = draw.value(rank=(1, 4), where=_is_some)
    if not _is_some(data):
        return None
    axis = draw.axis(data.rank)
    extent = data.shape[axis]
    kinds = np.dtype(draw.pick([np.int64, np.int64, np.int32]))

    def fits(value: Value) -> bool:
        return value.dtype == kinds and value.rank <= 2 and value.within(-extent, extent - 1)

    shape = draw.shape(None, 0, 2)
    known = draw.reused(fits)
    indices = known or draw.input(_indices(draw, np.full(shape, extent)).astype(kinds))
    return Proposal([data, indices], {"axis": axis})


def _is_some(value: Value) -> bool:
    return math.prod(value.shape) > 0


def _gather_elements(draw: Draw) -> Proposal | None:
    data = draw.value(rank=(1, 4), where=_is_some)
    if not _is_some(data):
        return None
    axis = draw.integer(0, data.rank - 1)
    shape = [draw.integer(1, 5) if d == axis else draw.integer(1, e) for d, e in enumerate(data.shape)]
    indices = _indices(draw, np.full(shape, data.shape[axis]))
    return Proposal([data, draw.input(indices)], {"axis": axis - data.rank if draw.chance(0.3) else axis})


def _gather_nd(draw: Draw) -> Proposal | None:
    data = draw.value(rank=(1, 4), where=_is_some)
    if not _is_some(data):
        return None
    batch = draw.integer(0, data.rank - 1) if draw.opset >= 12 and draw.chance(0.4) else 0
    depth = draw.integer(1, data.rank - batch)
    lead = (*data.shape[:batch], *draw.shape(None, 0, 2))
    extents = np.broadcast_to(np.array(data.shape[batch : batch + depth]), (*lead, depth))
    if extents.size > MAX_ELEMENTS:
        return None
    return Proposal([data, draw.input(_indices(draw, extents))], {"batch_dims": batch} if batch else {})


def _scatter_elements(draw: Draw) -> Proposal | None:
    """Along the axis, the indices of one line are different, unless they are added up."""
    data = draw.value(rank=(1, 3), where=_is_some, within=(-100, 100))
    if not _is_some(data):
        return None
    axis = draw.integer(0, data.rank - 1)
    shape = [draw.integer(1, extent) for extent in data.shape]
    lines = [draw.permutation(data.shape[axis])[: shape[axis]] for _ in range(math.prod(shape) // shape[axis])]
    others = [extent for d, extent in enumerate(shape) if d != axis]
    indices = np.moveaxis(np.array(lines, np.int64).reshape(*others, shape[axis]), -1, axis)
    attributes: dict[str, int | str] = {"axis": axis}
    if draw.opset >= 16 and draw.op_type != "Scatter" and _adds_up(data) and draw.chance(0.4):
        attributes["reduction"] = draw.pick(["add", "mul"] + (["max", "min"] if draw.opset >= 18 else []))
    return Proposal([data, draw.input(np.ascontiguousarray(indices)), draw.like(shape, data.dtype)], attributes)


def _scatter_nd(draw: Draw) -> Proposal | None:
    data = draw.value(rank=(1, 4), where=_is_some, within=(-100, 100))
    if not _is_some(data):
        return None
    depth = draw.integer(1, data.rank)
    places = math.prod(data.shape[:depth])
    chosen = draw.permutation(places)[: draw.integer(1, min(places, 6))]
    indices = np.stack(np.unravel_index(chosen, data.shape[:depth]), -1).astype(np.int64)
    updates = draw.like((len(chosen), *data.shape[depth:]), data.dtype)
    attributes: dict[str, int | str] = {}
    if draw.opset >= 16 and _adds_up(data) and draw.chance(0.4):
        attributes["reduction"] = draw.pick(["add", "mul"] + (["max", "min"] if draw.opset >= 18 else []))
    return Proposal([data, draw.input(indices), updates], attributes)


def _adds_up(data: Value) -> bool:
    """Whether ONNX Runtime has a reduction for the dtype."""
    return data.dtype.kind != "b" and data.dtype != np.float16


def _one_hot(draw: Draw) -> Proposal:
    depth = draw.integer(1, 9)
    shape = draw.shape(None, 1, 2)
    indices = draw.input(draw.elements(shape, np.dtype(np.int64), (-depth, depth - 1)))
    values = draw.fresh((2,), draw.dtype(2))
    return Proposal([indices, draw.parameters(np.array(depth)), values], {"axis": draw.axis(len(shape) + 1)})


def _compressed(draw: Draw, shape: Sequence[int]) -> Array:
    return draw.elements(shape, np.dtype(bool))


def _compress(draw: Draw) -> Proposal:
    data = draw.value(rank=(1, 4))
    axis = draw.axis(data.rank)
    condition = draw.parameters(_compressed(draw, (data.shape[axis],)))
    return Proposal([data, condition], {"axis": axis})


RULES: Mapping[str, Rule] = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}

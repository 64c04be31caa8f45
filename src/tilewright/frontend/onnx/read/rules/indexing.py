"""ONNX's operators that read and write at data-dependent positions.

A constant index out of range makes the model invalid. Others are checked at run time (``ops.indexing``,
``ops.scatter``).
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.base.dtypes import i64
from tilewright.frontend.onnx.read.rules.rule import Request, Rule, RuleFunction, same
from tilewright.graph import Value
from tilewright.ops.shapes import normalize_axis
from tilewright.symbolic.expr import Const, Expr


def checked_axis(request: Request, data: Value, default: int = 0) -> int:
    """The attribute ``axis``, counted from the front. Raises ``InvalidModel`` if it is none of ``data``."""
    axis, rank = request.integer("axis", default), len(data.shape)
    if not -rank <= axis < rank:
        raise request.invalid(f"axis {axis} is out of range for {data!r}")
    return normalize_axis(axis, rank)


def check_constant(request: Request, indices: Value, extents: Sequence[Expr], what: str) -> None:
    """Raises ``InvalidModel`` if a constant index exceeds its extent: the only one, or that of its column."""
    known = request.importer.known(indices)
    if known is None or not known.size or not np.issubdtype(known.dtype, np.integer):
        return
    count = min(len(extents), known.shape[-1]) if known.ndim else 0
    columns = [known] if len(extents) == 1 else [known[..., p] for p in range(count)]
    for column, extent in zip(columns, extents, strict=False):
        for index in (int(column.min()), int(column.max())):
            if isinstance(extent, Const) and not -extent.value <= index < extent.value:
                raise request.invalid(f"index {index} of {what} is out of range: its extent is {extent}")


def _gather(request: Request) -> Sequence[Value]:
    """Along an axis."""
    data, indices = request.input(0), request.input(1)
    axis = checked_axis(request, data)
    check_constant(request, indices, [data.shape[axis]], f"dimension {axis} of {data!r}")
    return [request.apply(request.op_type, data, indices, axis=axis)]


def _gather_nd(request: Request) -> Sequence[Value]:
    data, indices = request.input(0), request.input(1)
    batch_dims = request.integer("batch_dims", 0)
    if not 0 <= batch_dims < max(len(data.shape), 1):
        raise request.invalid(f"batch_dims is {batch_dims}, and {data!r} has {len(data.shape)} dimensions")
    check_constant(request, indices, data.shape[batch_dims:], repr(data))
    return [request.apply("GatherND", data, indices, batch_dims=batch_dims)]


def _scatter_elements(request: Request) -> Sequence[Value]:
    """Also called Scatter, up to opset 10."""
    data, indices = request.input(0), request.input(1)
    axis = checked_axis(request, data)
    check_constant(request, indices, [data.shape[axis]], f"dimension {axis} of {data!r}")
    reduction = request.text("reduction", "none")
    return [request.apply("ScatterElements", data, indices, request.input(2), axis=axis, reduction=reduction)]


def _scatter_nd(request: Request) -> Sequence[Value]:
    data, indices = request.input(0), request.input(1)
    check_constant(request, indices, data.shape, repr(data))
    return [request.apply("ScatterND", data, indices, request.input(2), reduction=request.text("reduction", "none"))]


def _one_hot(request: Request) -> Sequence[Value]:
    axis = request.integer("axis", -1)
    return [request.apply("OneHot", request.input(0), request.input(2), depth=_depth(request), axis=axis)]


def _depth(request: Request) -> int | Expr:
    """The number of classes; what is data becomes an extent."""
    given = request.input(1)
    depth = request.importer.known(given)
    if depth is None:
        (size,) = request.sizes_of(request.apply("Cast", request.apply("Reshape", given, shape=(1,)), to=i64))
        return size
    if depth.size != 1 or not 1 <= float(depth.item()) < float("inf"):
        raise request.invalid(f"the depth must be one number that is at least 1, not {depth}")
    return int(depth.item())


def _with_checked_labels(request: Request) -> tuple[Value | None, ...]:
    """The inputs of a loss, in whose definition a negative label counts from the end."""
    scores, target = request.input(0), request.input(1)
    if len(scores.shape) < 2:
        raise request.invalid(f"the scores {scores!r} have no dimension of classes")
    ignored = request.attributes.get("ignore_index")
    known = request.importer.known(target)
    if known is not None and isinstance(scores.shape[1], Const):
        classes = int(scores.shape[1].value)
        wrong = [label for label in map(int, known.flat) if label != ignored and not 0 <= label < classes]
        if wrong:
            raise request.invalid(f"label {wrong[0]} is out of range: there are {classes} classes")
    options = {} if ignored is None else {"ignored": request.integer("ignore_index", 0)}
    return (scores, request.apply("Labels", target, classes=scores.shape[1], **options), *request.inputs[2:])


CHECKED_INPUTS: Mapping[str, Callable[[Request], tuple[Value | None, ...]]] = {
    "NegativeLogLikelihoodLoss": _with_checked_labels,
    "SoftmaxCrossEntropyLoss": _with_checked_labels,
}
"""For operators imported by their function bodies: their inputs, with additional checks."""

RULES: Mapping[str, RuleFunction] = {
    "Gather": _gather,
    "GatherElements": _gather,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": Rule("TensorScatter", same("axis", "mode")),
}

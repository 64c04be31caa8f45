"""Operators that read elements at data-dependent positions.

An index counts from the end if it is negative. One beyond the ends makes the run raise ``IndexOutOfRange``; with
``checks="off"`` it is the nearest element (ONNX leaves the result undefined). No input can cause an out-of-bounds read.
"""

from tilewright.base.dtypes import index as index_dtype
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import normalize_axis, same_extent
from tilewright.symbolic.check import Origin, checked
from tilewright.symbolic.expr import ZERO, Const, Expr, as_expr, cast, const, equal, select
from tilewright.tensor.ir import Tensor


def from_front(index: Expr, extent: Expr) -> Expr:
    """``index`` counted from the front, without a range check."""
    place = cast(index, index_dtype)
    return select(place < ZERO, place + extent, place)


def position(index: Expr, extent: Expr, operator: str) -> Expr:
    """``index``, one of the ``indices`` of ``operator``, counted from the front and checked."""
    return checked(index, extent, Origin(operator, "indices"), from_end=True)


@operator("Gather", FusionKind.INJECTIVE, Trait.RELOCATES)
def gather(data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Slices of ``data`` along ``axis``."""
    at = normalize_axis(axis, data.ndim)
    shape = (*data.shape[:at], *indices.shape, *data.shape[at + 1 :])

    def body(index: Index) -> Expr:
        chosen = position(indices[index[at : at + indices.ndim]], data.shape[at], "Gather")
        return data[(*index[:at], chosen, *index[at + indices.ndim :])]

    return tensor(shape, body)


@operator("GatherElements", FusionKind.INJECTIVE)
def gather_elements(data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """``data`` at the position of each index, which replaces the coordinate along ``axis``."""
    at = normalize_axis(axis, data.ndim)
    check_lies_within(indices, data, at, "GatherElements")

    def body(index: Index) -> Expr:
        chosen = position(indices[index], data.shape[at], "GatherElements")
        return data[(*index[:at], chosen, *index[at + 1 :])]

    return tensor(indices.shape, body)


def check_lies_within(indices: Tensor, data: Tensor, axis: int, name: str) -> None:
    """Raises ``BadProgram`` unless ``indices`` is no larger than ``data`` in all dimensions except ``axis``."""
    if indices.ndim != data.ndim:
        raise BadProgram(f"{name}: the indices {indices} need as many dimensions as {data}")
    for position, (own, whole) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if isinstance(own, Const) and isinstance(whole, Const):
            fits = own.value <= whole.value
        else:
            fits = same_extent(own, whole)
        if position != axis and not fits:
            raise BadProgram(f"{name}: the indices {indices} exceed {data} in dimension {position}")


@operator("GatherND", FusionKind.INJECTIVE)
def gather_nd(data: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Slices of ``data`` at the coordinates in the rows of ``indices``; the first ``batch_dims`` dimensions are
    batches."""
    count = row_length(indices, data.ndim - batch_dims, "GatherND")
    if batch_dims >= indices.ndim or not all(map(same_extent, data.shape[:batch_dims], indices.shape[:batch_dims])):
        raise BadProgram(f"GatherND: {indices} and {data} do not share {batch_dims} batch dimensions")
    outer = indices.ndim - 1
    chosen = range(batch_dims, batch_dims + count)

    def body(index: Index) -> Expr:
        row = index[:outer]
        place = (position(indices[(*row, const(p - batch_dims))], data.shape[p], "GatherND") for p in chosen)
        return data[(*index[:batch_dims], *place, *index[outer:])]

    return tensor((*indices.shape[:-1], *data.shape[batch_dims + count :]), body)


def row_length(indices: Tensor, rank: int, name: str) -> int:
    """The number of coordinates in a row of ``indices``, at most ``rank``. Raises ``BadProgram``."""
    last = indices.shape[-1] if indices.ndim else ZERO
    if not indices.ndim or not isinstance(last, Const) or last.value > rank:
        raise BadProgram(f"{name}: the rows of the indices {indices} must be up to {rank} coordinates")
    return int(last.value)


@operator("OneHot", FusionKind.INJECTIVE)
def one_hot(indices: Tensor, values: Tensor, *, depth: int | Expr, axis: int = -1) -> Tensor:
    """``values[1]`` where the coordinate along the new ``axis`` of extent ``depth`` is the index, else ``values[0]``.

    An index out of range selects no coordinate.
    """
    if values.shape != (const(2),):
        raise BadProgram(f"OneHot: the values {values} are not two, off and on")
    at = normalize_axis(axis, indices.ndim + 1)
    extent = as_expr(depth)
    shape = (*indices.shape[:at], extent, *indices.shape[at:])

    def body(index: Index) -> Expr:
        chosen = from_front(indices[(*index[:at], *index[at + 1 :])], extent)
        return select(equal(chosen, index[at]), values[1], values[0])

    return tensor(shape, body)


@operator("Labels", FusionKind.INJECTIVE)
def labels(x: Tensor, *, classes: int | Expr, ignored: int | None = None) -> Tensor:
    """``x``, the labels of a loss: each is a class, from 0 on, or ``ignored``; others raise ``IndexOutOfRange``.

    Without checks, others are the nearest class.
    """
    if not x.dtype.is_int:
        raise BadProgram(f"Labels: {x} should be integers")

    def body(index: Index) -> Expr:
        label = x[index]
        known = cast(checked(label, classes, Origin("Labels", "target")), x.dtype)
        return known if ignored is None else select(equal(label, const(ignored, x.dtype)), label, known)

    return tensor(x.shape, body)

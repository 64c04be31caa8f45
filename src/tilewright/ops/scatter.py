"""Operators that write elements at data-dependent positions.

An index counts from the end if it is negative. One beyond the ends makes the run raise ``IndexOutOfRange``; with
``checks="off"`` the nearest element is written (ONNX leaves the result undefined). No input can cause an out-of-bounds
write. Writes happen in row-major order of the updates.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from tilewright.base.dtypes import index as index_dtype
from tilewright.base.errors import BadProgram
from tilewright.loops.extern import extern, for_range, seq, store
from tilewright.loops.ir import Buffer, LoopKind, Stmt
from tilewright.ops.build import Index, choice, tensor
from tilewright.ops.indexing import check_lies_within, position, row_length
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import Shape, normalize_axis, same_extent, show
from tilewright.symbolic.check import Origin, checked
from tilewright.symbolic.expr import ZERO, Expr, Var, cast, const, maximum, minimum, select
from tilewright.symbolic.traversal import all_of
from tilewright.tensor.ir import Tensor

LANES = 16
"""Elements that are copied at a time: no figure of a processor, as code is made for registers of any width."""


class Combine(Enum):
    """How the old element and the update combine."""

    NONE = "none"
    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"

    def of(self, old: Expr, new: Expr) -> Expr:
        """The combined element."""
        match self:
            case Combine.NONE:
                return new
            case Combine.ADD:
                return old | new if old.dtype.is_bool else old + new
            case Combine.MUL:
                return old & new if old.dtype.is_bool else old * new
            case Combine.MAX:
                return old | new if old.dtype.is_bool else maximum(old, new)
            case Combine.MIN:
                return old & new if old.dtype.is_bool else minimum(old, new)


@operator("ScatterElements", FusionKind.OPAQUE)
def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """``data`` with each update at its own position, where the index replaces the coordinate along ``axis``."""
    at = normalize_axis(axis, data.ndim)
    combine = choice(Combine, reduction, "ScatterElements: the reduction")
    check_lies_within(indices, data, at, "ScatterElements")
    _check_updates(data, updates, indices.shape, "ScatterElements")

    def body(ins: tuple[Buffer, ...], outs: tuple[Buffer, ...]) -> Stmt:
        (source, chosen, new), (out,) = ins, outs

        def write(place: Index) -> Stmt:
            where = position(chosen[place], data.shape[at], "ScatterElements")
            return _update(out, (*place[:at], where, *place[at + 1 :]), new[place], combine)

        return seq(_copy(source, out), _nest(indices.shape, write))

    return extern([data.shape], [data, indices, updates], body, [data.dtype], "scattered")[0]


@operator("ScatterND", FusionKind.OPAQUE)
def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """``data`` with each slice of ``updates`` at the coordinates in its row of ``indices``."""
    combine = choice(Combine, reduction, "ScatterND: the reduction")
    count = row_length(indices, data.ndim, "ScatterND")
    rows, slice_shape = indices.shape[:-1], data.shape[count:]
    _check_updates(data, updates, (*rows, *slice_shape), "ScatterND")

    def body(ins: tuple[Buffer, ...], outs: tuple[Buffer, ...]) -> Stmt:
        (source, chosen, new), (out,) = ins, outs

        def write_slice(row: Index) -> Stmt:
            place = [position(chosen[(*row, const(p))], data.shape[p], "ScatterND") for p in range(count)]

            def write(within: Index) -> Stmt:
                return _update(out, (*place, *within), new[(*row, *within)], combine)

            return _nest(slice_shape, write, "s", LANES)

        return seq(_copy(source, out), _nest(rows, write_slice))

    return extern([data.shape], [data, indices, updates], body, [data.dtype], "scattered")[0]


def _check_updates(data: Tensor, updates: Tensor, shape: Shape, name: str) -> None:
    fits = len(shape) == updates.ndim and all(map(same_extent, shape, updates.shape))
    if updates.dtype != data.dtype or not fits:
        raise BadProgram(f"{name}: the updates {updates} should be {data.dtype}{show(shape)}")


def _is_within(position: Expr, extent: Expr) -> Expr:
    return all_of(position >= ZERO, position < extent)


def _update(out: Buffer, place: Index, new: Expr, combine: Combine) -> Stmt:
    return store(out, place, combine.of(out[place], new))


def _copy(source: Buffer, out: Buffer) -> Stmt:
    return _nest(source.shape, lambda place: store(out, place, source[place]), "c", LANES)


def _nest(extents: Sequence[Expr], body: Callable[[Index], Stmt], name: str = "i", lanes: int = 1) -> Stmt:
    """Loops over ``extents`` around ``body``; the last one ``lanes`` elements at a time."""

    def at(outer: Index) -> Stmt:
        depth = len(outer)
        if depth == len(extents):
            return body(outer)
        if lanes > 1 and depth == len(extents) - 1:
            return _in_lanes(extents[depth], lambda last: body((*outer, last)), f"{name}{depth}", lanes)
        return for_range(extents[depth], lambda var: at((*outer, var)), f"{name}{depth}")

    return at(())


def _in_lanes(extent: Expr, body: Callable[[Expr], Stmt], name: str, lanes: int) -> Stmt:
    """A vectorized loop, and a scalar one for the remainder."""
    whole = extent // lanes

    def vector(position: Var) -> Stmt:
        return for_range(lanes, lambda lane: body(position * lanes + lane), f"{name}l", LoopKind.VECTORIZED)

    return seq(
        for_range(whole, vector, f"{name}v"),
        for_range(extent - whole * lanes, lambda rest: body(whole * lanes + rest), f"{name}r"),
    )


class Beyond(Enum):
    """Modes for updates beyond the end of a tensor."""

    LINEAR = "linear"
    """Out of range."""
    CIRCULAR = "circular"
    """Wrapped around to the start."""


@operator("TensorScatter", FusionKind.INJECTIVE)
def tensor_scatter(
    past: Tensor, update: Tensor, write_indices: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """``past`` with ``update`` written into it along ``axis``, from ``write_indices[b]`` on in batch element ``b``.

    ``mode``: updates beyond the end wrap around to the start (``circular``), or make the run raise ``IndexOutOfRange``
    (``linear``; with ``checks="off"`` the update is moved until it fits).
    """
    at = normalize_axis(axis, past.ndim)
    others = [p for p in range(past.ndim) if p != at]
    same = update.ndim == past.ndim and all(same_extent(past.shape[p], update.shape[p]) for p in others)
    beyond = choice(Beyond, mode, "TensorScatter: the mode")
    if at == 0 or not same or update.dtype != past.dtype:
        raise BadProgram(f"TensorScatter of {update} into {past} along axis {axis}: they do not fit")
    if write_indices is not None and not _is_vector(write_indices, past.shape[0]):
        raise BadProgram(f"TensorScatter: the write_indices {write_indices} should be integers[{past.shape[0]}]")

    def limited(start: Expr) -> Expr:
        """An equivalent start within the tensor, so that sums with it do not overflow."""
        if beyond is Beyond.CIRCULAR:
            return start % past.shape[at]
        return checked(start, past.shape[at] - update.shape[at] + 1, Origin("TensorScatter", "write_indices"))

    def body(index: Index) -> Expr:
        start = ZERO if write_indices is None else cast(write_indices[index[0]], index_dtype)
        place = index[at] - limited(start)
        if beyond is Beyond.CIRCULAR:
            place = place % past.shape[at]
        new = update[(*index[:at], place, *index[at + 1 :])]
        return select(_is_within(place, update.shape[at]), new, past[index])

    return tensor(past.shape, body)


def _is_vector(x: Tensor, extent: Expr) -> bool:
    """Whether ``x`` holds ``extent`` integers."""
    return x.dtype.is_int and x.ndim == 1 and same_extent(x.shape[0], extent)

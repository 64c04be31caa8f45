"""Operators that only move elements: each output element is one input element."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tilewright.base.dtypes import index as index_dtype
from tilewright.base.errors import BadProgram
from tilewright.ops.batches import all_but
from tilewright.ops.build import Index, tensor
from tilewright.ops.operator import Attributes, Batch, BatchAxis, FusionKind, Trait, operator
from tilewright.ops.shapes import (
    broadcast,
    element,
    element_count,
    infer_reshape,
    normalize_axes,
    normalize_axis,
    reshape_indices,
    same_extent,
    simplified,
)
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr, as_expr, cast, const, maximum, minimum, select
from tilewright.symbolic.traversal import vars_in
from tilewright.tensor.ir import Tensor

_UNLIMITED = (1 << 31) - 1
"""Slice bounds from this value on mean the end, for any length: exporters write several such numbers."""

_RESHAPES = Trait.MOVES | Trait.NEUTRAL | Trait.REGROUPS


def _transposed(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    match attributes, shapes:
        case {"perm": (*perm,)}, (x,) if sorted(map(str, perm)) == sorted(map(str, range(len(x)))):
            axes = (BatchAxis((at,), to) for to, at in enumerate(perm) if isinstance(at, int))
            return Batch(tuple(axes), {"perm": ()})
        case _:
            return None


def _concatenated(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    match attributes:
        case {"axis": int(axis)} if -len(shapes[0]) <= axis < len(shapes[0]):
            at = axis % len(shapes[0])
            others = {(*shape[:at], None, *shape[at + 1 :]) for shape in shapes}
            return Batch(all_but((at,), len(shapes[0]), len(shapes)), {"axis": 0}) if len(others) == 1 else None
        case _:
            return None


def _sliced(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    match attributes, shapes:
        case {"axes": (int(axis),), **bounds}, (x,) if -len(x) <= axis < len(x):
            return Batch(all_but((axis % len(x),), len(x)), {**bounds, "axes": (0,)})
        case _:
            return None


@operator("Reshape", FusionKind.VIEW, _RESHAPES)
def reshape(x: Tensor, *, shape: Sequence[int | Expr], allow_zero: bool = False) -> Tensor:
    """The same elements in row-major order; 0 copies an extent, -1 is inferred (ONNX)."""
    target = infer_reshape(x.shape, shape, allow_zero)
    return tensor(target, lambda index: x[reshape_indices(x.shape, target, index)])


@operator("Flatten", FusionKind.VIEW, _RESHAPES)
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    """A matrix: the dimensions before ``axis`` are its rows, the others its columns."""
    if not -x.ndim <= axis <= x.ndim:
        raise BadProgram(f"Flatten: axis {axis} is out of range for {x}")
    at = axis + x.ndim if axis < 0 else axis
    target = element_count(x.shape[:at]), element_count(x.shape[at:])
    return tensor(target, lambda index: x[reshape_indices(x.shape, target, index)])


@operator("Unsqueeze", FusionKind.VIEW, _RESHAPES)
def unsqueeze(x: Tensor, *, axes: Sequence[int]) -> Tensor:
    """Extents of 1 inserted at ``axes`` of the result."""
    rank = x.ndim + len(axes)
    inserted = set(normalize_axes(axes, rank))
    own = iter(x.shape)
    shape = tuple(ONE if position in inserted else next(own) for position in range(rank))
    return tensor(shape, lambda index: x[tuple(i for p, i in enumerate(index) if p not in inserted)])


@operator("Squeeze", FusionKind.VIEW, _RESHAPES)
def squeeze(x: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    """Extents of 1 removed: those at ``axes``, or all."""
    ones = tuple(p for p, extent in enumerate(x.shape) if extent == ONE)
    removed = set(ones if axes is None else normalize_axes(axes, x.ndim))
    if not removed <= set(ones):
        raise BadProgram(f"Squeeze: axes {tuple(axes or ())} of {x} are not all 1")
    return without_axes(x, removed)


def without_axes(x: Tensor, axes: Collection[int]) -> Tensor:
    """``x`` without ``axes``, which have extent 1."""
    kept = [p for p in range(x.ndim) if p not in axes]

    def body(index: Index) -> Expr:
        place = dict(zip(kept, index, strict=True))
        return x[tuple(place.get(p, ZERO) for p in range(x.ndim))]

    return tensor(tuple(x.shape[p] for p in kept), body)


@operator("Declared", FusionKind.VIEW, Trait.MOVES)
def declared(x: Tensor, *, shape: Sequence[int | Expr]) -> Tensor:
    """``x`` with other expressions for its extents; the conditions of the graph say that they are equal."""
    if len(shape) != x.ndim:
        raise BadProgram(f"Declared: {x} has not {len(shape)} dimensions")
    return tensor(tuple(map(as_expr, shape)), lambda index: x[index])


@operator("Transpose", FusionKind.VIEW, Trait.MOVES, _transposed)
def transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    """Dimension ``p`` of the result is dimension ``perm[p]`` of ``x``; without ``perm``, reversed."""
    order = tuple(range(x.ndim))[::-1] if perm is None else tuple(perm)
    if sorted(order) != list(range(x.ndim)):
        raise BadProgram(f"Transpose: {order} is no permutation of {x.ndim} dimensions")
    source = [order.index(p) for p in range(x.ndim)]
    return tensor(tuple(x.shape[p] for p in order), lambda index: x[tuple(index[p] for p in source)])


@operator("Copy", FusionKind.OPAQUE, Trait.ELEMENTWISE | Trait.MOVES)
def copy(x: Tensor) -> Tensor:
    """A copy of the elements: layout passes insert it where a value gets another layout."""
    return tensor(x.shape, lambda index: x[index])


@operator("Concat", FusionKind.INJECTIVE, Trait.MOVES | Trait.RELOCATES, _concatenated)
def concat(*inputs: Tensor, axis: int) -> Tensor:
    """The inputs concatenated along ``axis``."""
    if not inputs:
        raise BadProgram("Concat: there is nothing to join")
    first = inputs[0]
    at = normalize_axis(axis, first.ndim)
    starts: list[Expr] = [ZERO]
    for other in inputs:
        if not _joins(first, other, at):
            raise BadProgram(f"Concat of {first} and {other} along axis {at}: the dtype or another extent differs")
        starts.append(starts[-1] + other.shape[at])
    shape = (*first.shape[:at], simplified(starts[-1]), *first.shape[at + 1 :])

    def read(position: int, index: Index) -> Expr:
        return inputs[position][(*index[:at], index[at] - starts[position], *index[at + 1 :])]

    def choose(begin: int, end: int, index: Index) -> Expr:
        """The element from one of the inputs ``begin .. end - 1``: by bisection, to keep nesting shallow."""
        if end - begin == 1:
            return read(begin, index)
        middle = (begin + end) // 2
        return select(index[at] < starts[middle], choose(begin, middle, index), choose(middle, end, index))

    return tensor(shape, lambda index: choose(0, len(inputs), index))


def _joins(a: Tensor, b: Tensor, axis: int) -> bool:
    if a.dtype != b.dtype or a.ndim != b.ndim:
        return False
    return all(p == axis or same_extent(x, y) for p, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)))


@operator("SliceFrom", FusionKind.INJECTIVE, Trait.RELOCATES)
def slice_from(
    x: Tensor, starts: Tensor, *, counts: Sequence[int | Expr], axes: Sequence[int], steps: Sequence[int]
) -> Tensor:
    """``counts`` elements along ``axes``, from the places ``starts``, counted from the front, on in ``steps``.

    All of these must lie within ``x``.
    """
    numbers = dict(zip(normalize_axes(axes, x.ndim), range(len(axes)), strict=True))
    shape = tuple(as_expr(counts[numbers[p]]) if p in numbers else extent for p, extent in enumerate(x.shape))

    def body(index: Index) -> Expr:
        first = (cast(starts[(const(numbers[p]),)], index_dtype) if p in numbers else ZERO for p in range(x.ndim))
        return x[
            tuple(
                i * steps[numbers[p]] + f if p in numbers else i
                for p, (i, f) in enumerate(zip(index, first, strict=True))
            )
        ]

    return tensor(shape, body)


@operator("Expand", FusionKind.INJECTIVE, Trait.MOVES | Trait.NEUTRAL)
def expand(x: Tensor, *, shape: Sequence[int | Expr]) -> Tensor:
    """``x`` broadcast with ``shape``, in both directions (ONNX)."""
    target = broadcast(x.shape, tuple(map(as_expr, shape)))
    return tensor(target, lambda index: element(x, index))


@operator("Tile", FusionKind.INJECTIVE, Trait.MOVES | Trait.RELOCATES)
def tile(x: Tensor, *, repeats: Sequence[int | Expr]) -> Tensor:
    """``x`` repeated ``repeats`` times along each dimension."""
    if len(repeats) != x.ndim or any(isinstance(times, int) and times < 0 for times in repeats):
        raise BadProgram(f"Tile of {x}: the repeats {tuple(repeats)} are not one count for each dimension")
    shape = tuple(simplified(extent * times) for extent, times in zip(x.shape, repeats, strict=True))

    def body(index: Index) -> Expr:
        return x[tuple(i if n == 1 else i % e for i, e, n in zip(index, x.shape, repeats, strict=True))]

    return tensor(shape, body)


@operator("Trilu", FusionKind.INJECTIVE)
def trilu(x: Tensor, k: Tensor | None = None, *, upper: bool = True) -> Tensor:
    """The matrices of the last two dimensions with 0 below (not ``upper``: above) their ``k``-th diagonal."""
    if x.ndim < 2 or (k is not None and any(extent != ONE for extent in k.shape)):
        raise BadProgram(f"Trilu of {x}: it needs matrices, and one number k, not {k}")
    diagonal = ZERO if k is None else cast(k[(ZERO,) * k.ndim], index_dtype)

    def body(index: Index) -> Expr:
        distance = index[-1] - index[-2]
        kept = distance >= diagonal if upper else distance <= diagonal
        return select(kept, x[index], const(0, x.dtype))

    return tensor(x.shape, body)


@operator("Slice", FusionKind.INJECTIVE, Trait.MOVES | Trait.RELOCATES, _sliced)
def slice_(
    x: Tensor,
    *,
    starts: Sequence[int | Expr],
    ends: Sequence[int | Expr],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:
    """``x[starts:ends:steps]`` along ``axes``, by Python's rules but for one of ONNX: a slice backwards begins at the
    first element where ``starts`` is before it.

    A bound that is an expression is a position from 0 to the extent, counted from the front.
    """
    listed = tuple(range(len(starts))) if axes is None else axes
    strides = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(listed) == len(strides):
        raise BadProgram(f"Slice: {len(starts)} starts, {len(ends)} ends, {len(listed)} axes, {len(strides)} steps")
    if 0 in strides:
        raise BadProgram("Slice: a step is 0")
    cuts: dict[int, _Cut] = {}
    for axis, start, end, step in zip(listed, starts, ends, strides, strict=True):
        at = normalize_axis(axis, x.ndim)
        cuts[at] = _cut(x.shape[at], start, end, step)
    shape = tuple(cuts[p].count if p in cuts else extent for p, extent in enumerate(x.shape))

    def body(index: Index) -> Expr:
        return x[tuple(i * cuts[p].step + cuts[p].start if p in cuts else i for p, i in enumerate(index))]

    dims = vars_in(cut.start for cut in cuts.values())
    return tensor(shape, body, dims=dims)


@dataclass(frozen=True, slots=True)
class _Cut:
    """``count`` positions from ``start`` on, ``step`` apart."""

    start: Expr
    count: Expr
    step: int


def _cut(extent: Expr, start: int | Expr, end: int | Expr, step: int) -> _Cut:
    """The positions of a slice along an axis of ``extent``, also for values known only at run time."""
    if isinstance(extent, Const) and isinstance(start, int) and isinstance(end, int):
        chosen = range(*cut_indices(int(extent.value), start, end, step))
        return _Cut(as_expr(chosen.start), as_expr(len(chosen)), step)
    lowest, highest = (ZERO, extent) if step > 0 else (const(-1), extent - 1)
    nearest = ZERO if step > 0 else minimum(ZERO, highest)  # of nothing, a slice backwards begins before the first
    first, last = _limited(start, extent, nearest, highest), _limited(end, extent, lowest, highest)
    distance = last - first if step > 0 else first - last
    return _Cut(simplified(first), simplified(maximum((distance + (abs(step) - 1)) // abs(step), ZERO)), step)


def cut_indices(extent: int, start: int, end: int, step: int) -> tuple[int, int, int]:
    """``range(*...)`` of these are the positions of a slice along an axis of ``extent``."""
    return slice(start if step > 0 else max(start, -extent), end, step).indices(extent)


def _limited(bound: int | Expr, extent: Expr, lowest: Expr, highest: Expr) -> Expr:
    """A bound counted from the front, clipped to ``lowest .. highest``."""
    if isinstance(bound, Expr):
        return bound
    if abs(bound) >= _UNLIMITED:
        return highest if bound > 0 else lowest
    return minimum(const(bound), highest) if bound >= 0 else maximum(extent + bound, lowest)

"""Samples of a grid at places that are data: between elements, and beyond the ends.

A place is a float for each spatial dimension. Whatever it is (NaN, too, or far outside), no index leaves the grid.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.dtypes import DType, f32
from tilewright.base.dtypes import index as index_dtype
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, narrowed, tensor
from tilewright.ops.convolution import add_bias, filters_per_group
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import Shape, element_count, flat_index, nearest_index, same_extent, simplified
from tilewright.ops.windows import window
from tilewright.symbolic.expr import (
    TRUE,
    Const,
    Expr,
    ExprLike,
    as_expr,
    binary,
    cast,
    const,
    equal,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

CUBIC_A = -0.75
"""The coefficient of PyTorch's and ONNX's cubic sampling."""


@dataclass(frozen=True, slots=True)
class Tap:
    """An element that takes part in a sample: where along one dimension (a float), and with which weight."""

    place: Expr
    weight: Expr


Taps = Callable[[Expr], list[Tap]]


def nearest_tap(place: Expr) -> list[Tap]:
    """The nearest element; of two, the even one."""
    return [Tap(unary(UnaryOp.ROUND, place), const(1.0, place.dtype))]


def linear_taps(place: Expr) -> list[Tap]:
    """The two neighbours, weighted by nearness."""
    left = unary(UnaryOp.FLOOR, place)
    part = place - left
    return [Tap(left, 1.0 - part), Tap(left + 1.0, part)]


def cubic_taps(place: Expr) -> list[Tap]:
    """The four neighbours (Keys, 1981, equation 4)."""
    left = unary(UnaryOp.FLOOR, place)
    part = place - left
    weights = [_far(part + 1.0), _near(part), _near(1.0 - part), _far(2.0 - part)]
    return [Tap(left + float(offset), weight) for offset, weight in zip(range(-1, 3), weights, strict=True)]


def _near(d: Expr) -> Expr:
    return (d * (CUBIC_A + 2) - (CUBIC_A + 3)) * d * d + 1.0


def _far(d: Expr) -> Expr:
    return ((d * CUBIC_A - 5 * CUBIC_A) * d + 8 * CUBIC_A) * d - 4 * CUBIC_A


def sample(x: Tensor, leading: Sequence[Expr], taps: Sequence[Sequence[Tap]], zeros: bool) -> Expr:
    """The sum of the elements at all combinations of ``taps``, weighted by the products of their weights.

    ``leading`` are the indices before the spatial ones. Beyond the ends: 0 if ``zeros``, else the nearest element.
    """
    spatial = x.shape[len(leading) :]

    def total(chosen: tuple[Tap, ...]) -> Expr:
        if len(chosen) == len(spatial):
            return _element(x, leading, chosen, zeros)
        terms = [tap.weight * total((*chosen, tap)) for tap in taps[len(chosen)]]
        result = terms[0]
        for term in terms[1:]:
            result = result + term
        return result

    return total(())


def _element(x: Tensor, leading: Sequence[Expr], chosen: Sequence[Tap], zeros: bool) -> Expr:
    wide = chosen[0].place.dtype
    inside: Expr = TRUE
    place: list[Expr] = []
    for tap, extent in zip(chosen, x.shape[len(leading) :], strict=True):
        inside = inside & (tap.place >= 0.0) & (tap.place <= cast(extent - 1, wide))
        place.append(nearest_index(cast(tap.place, index_dtype), extent))
    value = cast(x[(*leading, *place)], wide)
    return select(inside, value, const(0.0, wide)) if zeros else value


def _require_elements(x: Tensor) -> None:
    if any(isinstance(extent, Const) and extent.value == 0 for extent in x.shape[2:]):
        raise BadProgram(f"{x} has no elements to sample; each spatial dimension needs at least one")


_MODES: dict[str, Taps] = {"nearest": nearest_tap, "linear": linear_taps, "cubic": cubic_taps}
_PADDINGS = frozenset({"zeros", "border", "reflection"})


@operator("GridSample", FusionKind.OPAQUE)
def grid_sample(
    x: Tensor, grid: Tensor, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """``x[N, C, spatial...]`` sampled at ``grid[N, places..., D]``, whose coordinates run from -1 to 1, last dim first.

    ``align_corners``: -1 and 1 are centres of elements, else their outer edges (Jaderberg et al., 2015; PyTorch).
    """
    rank = x.ndim - 2
    if rank < 1 or grid.ndim != x.ndim or grid.shape[-1] != const(rank) or not same_extent(grid.shape[0], x.shape[0]):
        raise BadProgram(f"{grid} must have the shape [{x.shape[0]}, places..., {rank}] for {x}")
    if mode not in _MODES or padding_mode not in _PADDINGS:
        raise BadProgram(f"mode {mode} with padding {padding_mode} is none of {[*_MODES]} with {sorted(_PADDINGS)}")
    _require_elements(x)
    spatial = x.shape[2:]
    wide = accumulator(x.dtype) if x.dtype.is_float else f32
    borders = [_borders(extent, wide, align_corners) for extent in spatial]

    def locate(dim: int) -> Tensor:
        low, high = borders[dim]

        def body(index: Index) -> Expr:
            normalized = cast(grid[(*index, const(rank - 1 - dim))], wide)
            place = low + (normalized + 1.0) * (high - low) * 0.5
            # A clamped place gives what clamped taps give, and is finite; not so for cubic weights, which overshoot.
            return _clamped(place, spatial[dim]) if padding_mode == "border" and mode != "cubic" else place

        return tensor(grid.shape[:-1], body)

    places = [locate(dim) for dim in range(rank)]

    def body(index: Index) -> Expr:
        batch, channel, *point = index
        found: list[list[Tap]] = []
        for dim, place in enumerate(places):
            taps = _MODES[mode](place[(batch, *point)])
            if padding_mode == "reflection":
                taps = [Tap(_reflected(tap.place, *borders[dim]), tap.weight) for tap in taps]
            found.append(taps)
        return cast(sample(x, (batch, channel), found, padding_mode == "zeros"), x.dtype)

    return tensor((*x.shape[:2], *grid.shape[1:-1]), body)


def _borders(extent: Expr, dtype: DType, align_corners: bool) -> tuple[Expr, Expr]:
    half = const(0.0 if align_corners else 0.5, dtype)
    return -half, cast(extent - 1, dtype) + half


def _clamped(place: Expr, extent: Expr) -> Expr:
    return maximum(minimum(place, cast(extent - 1, place.dtype)), const(0.0, place.dtype))


def _reflected(place: Expr, low: Expr, high: Expr) -> Expr:
    """``place`` mirrored at the borders until it lies between them."""
    length = high - low
    below = place < low
    beyond = select(below, low - place, place - high)
    times = unary(UnaryOp.FLOOR, binary(BinaryOp.DIV, beyond, length))
    rest = beyond - times * length
    near_side = equal(unary(UnaryOp.FLOOR, times * 0.5) * 2.0, times)
    from_low = equal(cast(near_side, index_dtype), cast(below, index_dtype))
    mirrored = select(from_low, low + rest, high - rest)
    outside = select(below | (place > high), mirrored, place)
    return select(length > 0.0, outside, low)


@operator("RoiAlign", FusionKind.OPAQUE)
def roi_align(
    x: Tensor,
    rois: Tensor,
    batches: Tensor,
    *,
    output: tuple[int, int],
    samples: int,
    scale: float = 1.0,
    offset: float = 0.5,
    largest: bool = False,
) -> Tensor:
    """Regions ``rois[R, 4]`` (x, y, x, y) of images ``batches[R]`` pooled to ``[R, C, *output]`` (He et al., 2017).

    Each bin is the mean of ``samples`` times ``samples`` bilinear samples, or with ``largest`` the maximum of their
    weighted elements. ``scale`` takes a region's coordinates to those of ``x``, then ``offset`` is subtracted; without
    an offset regions are at least 1 wide.
    """
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != const(4) or batches.shape != rois.shape[:1]:
        raise BadProgram(f"{x}, {rois}, {batches} must have the shapes [N, C, H, W], [regions, 4], [regions]")
    if samples < 1 or min(output) < 1:
        raise BadProgram(f"{samples} samples for each of {output} bins: all must be at least 1")
    _require_elements(x)
    wide = accumulator(x.dtype)
    step = [te.reduce_axis((0, samples), name=name) for name in ("iy", "ix")]

    def place(region: Expr, dim: int, bin_: Expr) -> Expr:
        start, end = (cast(rois[region, const(column)], wide) * scale - offset for column in (1 - dim, 3 - dim))
        length = end - start if offset else maximum(end - start, const(1.0, wide))
        size = length * const(1.0 / output[dim], wide)
        return start + cast(bin_, wide) * size + (cast(step[dim].var, wide) + 0.5) * size * (1.0 / samples)

    def body(index: Index) -> Reduction:
        region, channel, *bins = index
        places = [place(region, dim, bin_) for dim, bin_ in enumerate(bins)]
        inside: Expr = TRUE
        taps: list[list[Tap]] = []
        for p, extent in zip(places, x.shape[2:], strict=True):
            inside = inside & (p >= -1.0) & (p <= cast(extent, wide))
            taps.append(linear_taps(_clamped(p, extent)))
        image = nearest_index(cast(batches[region], index_dtype), x.shape[0])
        if largest:
            elements = [
                row.weight * column.weight * _element(x, (image, channel), (row, column), zeros=False)
                for row in taps[0]
                for column in taps[1]
            ]
            best = elements[0]
            for element in elements[1:]:
                best = maximum(best, element)
            return te.max(select(inside, best, const(0.0, wide)), axis=step)
        value = sample(x, (image, channel), taps, zeros=False)
        return te.sum(select(inside, value, const(0.0, wide)), axis=step)

    pooled = tensor((rois.shape[0], x.shape[1], *map(const, output)), body)
    if largest:
        return narrowed(pooled, x.dtype)
    return tensor(pooled.shape, lambda index: cast(pooled[index] * (1.0 / (samples * samples)), x.dtype))


@operator("DeformConv", FusionKind.CONTRACTION)
def deformable_convolution(
    x: Tensor,
    weight: Tensor,
    offsets: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int | Expr] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
    offset_group: int = 1,
) -> Tensor:
    """A convolution whose taps are moved by ``offsets`` and weighted by ``mask`` (Dai et al., 2017; Zhu et al., 2019).

    ``offsets``: ``[N, offset_group * taps * D, outputs...]``, ``mask``: ``[N, offset_group * taps, outputs...]``.
    """
    per_group = filters_per_group(x, weight, group)
    sliding = window(x, weight.shape[2:], strides, pads, dilations)
    outputs = sliding.outputs(x.shape[2:])
    kernel, rank = weight.shape[2:], x.ndim - 2
    count = element_count(kernel)
    _require_moves(x, offsets, offset_group, count * rank, outputs, "the offsets")
    if mask is not None:
        _require_moves(x, mask, offset_group, count, outputs, "the mask")
    _require_elements(x)
    wide = accumulator(x.dtype)
    channels_per_offset = simplified(x.shape[1] // offset_group)

    def column(index: Index) -> Expr:
        batch, channel = index[:2]
        taps, point = index[2 : 2 + rank], index[2 + rank :]
        own = channel // channels_per_offset * count + flat_index(taps, kernel)
        moved: list[list[Tap]] = []
        for dim, padded in enumerate(sliding.positions(point, taps)):
            moves = cast(offsets[(batch, own * rank + dim, *point)], wide)
            moved.append(linear_taps(cast(padded - sliding.begins[dim], wide) + moves))
        value = sample(x, (batch, channel), moved, zeros=True)
        return value if mask is None else value * cast(mask[(batch, own, *point)], wide)

    columns = tensor((*x.shape[:2], *kernel, *outputs), column, name="columns")
    inner = te.reduce_axis((0, weight.shape[1]), name="ci")
    taps = sliding.taps()

    def body(index: Index) -> Reduction:
        batch, filter_, *point = index
        channel = (filter_ // per_group) * weight.shape[1] + inner.var
        tap = tuple(k.var for k in taps)
        element = columns[(batch, channel, *tap, *point)]
        return te.sum(element * cast(weight[(filter_, inner.var, *tap)], wide), axis=(inner, *taps))

    product = tensor((x.shape[0], weight.shape[0], *outputs), body)
    return narrowed(product if bias is None else add_bias(product, bias), x.dtype)


def _require_moves(x: Tensor, moves: Tensor, groups: int, for_each: ExprLike, outputs: Shape, role: str) -> None:
    channels = x.shape[1]
    if groups < 1 or (isinstance(channels, Const) and int(channels.value) % groups):
        raise BadProgram(f"the {channels} channels of {x} can't be divided into {groups} offset groups")
    wanted = (x.shape[0], simplified(as_expr(for_each) * groups), *outputs)
    if moves.ndim != len(wanted) or not all(map(same_extent, moves.shape, wanted)):
        raise BadProgram(f"{role} {moves} must have the shape [{', '.join(map(str, wanted))}]")

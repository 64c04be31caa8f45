"""Samples a grid at data-dependent positions: between elements, and beyond the ends.

A position has a float for each spatial dimension. For any value, including NaN, all indices are in range.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from itertools import product
from math import inf
from operator import add

from tilewright.base.dtypes import DType, f32
from tilewright.base.dtypes import index as index_dtype
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, choice, narrowed, tensor
from tilewright.ops.convolution import add_bias, filters_per_group
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import Shape, element_count, nearest_index, same_extent, simplified
from tilewright.ops.windows import Window, window
from tilewright.symbolic.check import Origin, checked
from tilewright.symbolic.domain import IterVar
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
from tilewright.symbolic.sizes import flat_index
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

CUBIC_A = -0.75
"""The coefficient of PyTorch's and ONNX's cubic sampling."""


@dataclass(frozen=True, slots=True)
class Tap:
    """An element of an interpolation: its position along one dimension (a float), and its weight."""

    place: Expr
    weight: Expr


Taps = Callable[[Expr], list[Tap]]


def nearest_tap(place: Expr) -> list[Tap]:
    """The nearest element; the even one of two."""
    return [Tap(unary(UnaryOp.ROUND, place), const(1.0, place.dtype))]


def linear_taps(place: Expr) -> list[Tap]:
    """The two neighbours, with linear weights."""
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
    """The sum of the elements at all combinations of ``taps``, weighted by products of their weights.

    ``leading`` are the indices before the spatial ones. Beyond the ends: 0 if ``zeros``, else the nearest element.
    """
    spatial = x.shape[len(leading) :]

    def total(chosen: tuple[Tap, ...]) -> Expr:
        if len(chosen) == len(spatial):
            return _element(x, leading, chosen, zeros)
        terms = [tap.weight * total((*chosen, tap)) for tap in taps[len(chosen)]]
        return reduce(add, terms)

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


class Mode(Enum):
    """Interpolation modes."""

    NEAREST = "nearest"
    LINEAR = "linear"
    CUBIC = "cubic"


class Padding(Enum):
    """Padding modes beyond the ends."""

    ZEROS = "zeros"
    BORDER = "border"
    """The nearest element."""
    REFLECTION = "reflection"


_TAPS: Mapping[Mode, Taps] = {Mode.NEAREST: nearest_tap, Mode.LINEAR: linear_taps, Mode.CUBIC: cubic_taps}


@operator("GridSample", FusionKind.OPAQUE)
def grid_sample(
    x: Tensor, grid: Tensor, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: bool = False
) -> Tensor:
    """``x[N, C, spatial...]`` sampled at ``grid[N, places..., D]``, with coordinates from -1 to 1, last dim first.

    ``align_corners``: -1 and 1 are centres of elements, else their outer edges (Jaderberg et al., 2015; PyTorch).
    """
    rank = x.ndim - 2
    if rank < 1 or grid.ndim != x.ndim or grid.shape[-1] != const(rank) or not same_extent(grid.shape[0], x.shape[0]):
        raise BadProgram(f"{grid} must have the shape [{x.shape[0]}, places..., {rank}] for {x}")
    kind, padding = choice(Mode, mode, "GridSample: mode"), choice(Padding, padding_mode, "GridSample: padding_mode")
    _require_elements(x)
    spatial = x.shape[2:]
    wide = accumulator(x.dtype) if x.dtype.is_float else f32
    borders = [_borders(extent, wide, align_corners) for extent in spatial]

    def locate(dim: int) -> Tensor:
        low, high = borders[dim]

        def body(index: Index) -> Expr:
            normalized = cast(grid[(*index, const(rank - 1 - dim))], wide)
            place = low + (normalized + 1.0) * (high - low) * 0.5
            # Positions near the ends stand for all farther ones, and stay finite; but cubic weights overshoot.
            return _near_ends(place, spatial[dim]) if padding is Padding.BORDER and kind is not Mode.CUBIC else place

        return tensor(grid.shape[:-1], body)

    places = [locate(dim) for dim in range(rank)]

    def body(index: Index) -> Expr:
        batch, channel, *point = index
        found: list[list[Tap]] = []
        for dim, place in enumerate(places):
            taps = _TAPS[kind](place[(batch, *point)])
            if padding is Padding.REFLECTION:
                taps = [Tap(_reflected(tap.place, *borders[dim]), tap.weight) for tap in taps]
            found.append(taps)
        return cast(sample(x, (batch, channel), found, padding is Padding.ZEROS), x.dtype)

    return tensor((*x.shape[:2], *grid.shape[1:-1]), body)


def _borders(extent: Expr, dtype: DType, align_corners: bool) -> tuple[Expr, Expr]:
    half = const(0.0 if align_corners else 0.5, dtype)
    return -half, cast(extent - 1, dtype) + half


def _clamped(place: Expr, extent: Expr) -> Expr:
    return maximum(minimum(place, cast(extent - 1, place.dtype)), const(0.0, place.dtype))


def _near_ends(place: Expr, extent: Expr) -> Expr:
    """``place`` clipped to half a step beyond the ends, where both neighbours are the last element.

    At the end itself an inner neighbour would have the weight 0, and times infinity that is NaN.
    """
    return maximum(minimum(place, cast(extent, place.dtype) - 0.5), const(-0.5, place.dtype))


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
    counts: Tensor | None = None,
    *,
    output: tuple[int, int],
    samples: int | Expr,
    scale: float = 1.0,
    offset: float = 0.5,
    largest: bool = False,
) -> Tensor:
    """Regions ``rois[R, 4]`` (x, y, x, y) of images ``batches[R]`` pooled to ``[R, C, *output]`` (He et al., 2017).

    Each bin is the mean of ``samples`` times ``samples`` bilinear samples, or with ``largest`` the maximum of their
    weighted elements. A region's coordinates are multiplied by ``scale``, then ``offset`` is subtracted; without an
    offset regions are at least 1 wide. With ``counts[R, 2]`` each region has so many samples of its own for a bin along
    x and y, at most ``samples``; bins without samples are 0.
    """
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != const(4) or batches.shape != rois.shape[:1]:
        raise BadProgram(f"{x}, {rois}, {batches} must have the shapes [N, C, H, W], [regions, 4], [regions]")
    if (isinstance(samples, int) and samples < 1) or min(output) < 1:
        raise BadProgram(f"{samples} samples for each of {output} bins: all must be at least 1")
    if counts is not None and (counts.shape != (rois.shape[0], const(2)) or not counts.dtype.is_int):
        raise BadProgram(f"{counts} must hold two integers for each of {rois}")
    _require_elements(x)
    regions = _Regions(x, rois, counts, output, as_expr(samples), scale, offset)
    zero = const(0.0, regions.dtype)

    def body(index: Index) -> Reduction:
        region, channel, *bins = index
        image = checked(batches[region], x.shape[0], Origin("RoiAlign", "batch_indices"))
        inside, taps = regions.sampled(region, bins)
        if largest:
            part = select(inside, _largest_part(x, (image, channel), taps), zero)
            return te.max(regions.if_own(region, part, const(-inf, regions.dtype)), axis=regions.axes)
        part = select(inside, sample(x, (image, channel), taps, zeros=False), zero)
        return te.sum(regions.if_own(region, part, zero), axis=regions.axes)

    def finished(index: Index) -> Expr:
        count = regions.count(index[0])
        if largest:
            return cast(select(count > 0.0, pooled[index], zero), x.dtype)
        return cast(pooled[index] * (1.0 / maximum(count, const(1.0, regions.dtype))), x.dtype)

    pooled = tensor((rois.shape[0], x.shape[1], *map(const, output)), body)
    if largest and counts is None:
        return narrowed(pooled, x.dtype)
    return tensor(pooled.shape, finished)


class _Regions:
    """Positions of the samples of regions: ``samples``, or its own number of ``counts``, along each dimension of each
    of ``output`` bins."""

    def __init__(
        self,
        x: Tensor,
        rois: Tensor,
        counts: Tensor | None,
        output: tuple[int, int],
        samples: Expr,
        scale: float,
        offset: float,
    ) -> None:
        self.dtype = accumulator(x.dtype)
        self.axes = [te.reduce_axis((0, samples), name=name) for name in ("iy", "ix")]
        """Reduction axes over the samples of a bin."""
        self._spatial = x.shape[2:]
        self._rois = rois
        self._counts = counts
        self._output = output
        self._samples = samples
        self._scale = scale
        self._offset = offset

    def count(self, region: Expr) -> Expr:
        """The samples of one bin."""
        return self._along(region, 0) * self._along(region, 1)

    def if_own(self, region: Expr, part: Expr, otherwise: Expr) -> Expr:
        """``part`` where the sample is one of the region's."""
        if self._counts is None:
            return part
        own: Expr = TRUE
        for dim, axis in enumerate(self.axes):
            own = own & (axis.var < cast(self._counts[region, const(1 - dim)], index_dtype))
        return select(own, part, otherwise)

    def _along(self, region: Expr, dim: int) -> Expr:
        """The samples of one bin along ``dim``."""
        return cast(self._samples if self._counts is None else self._counts[region, const(1 - dim)], self.dtype)

    def sampled(self, region: Expr, bins: Sequence[Expr]) -> tuple[Expr, list[list[Tap]]]:
        """Whether the sample of a bin is in the image, and the taps for its interpolation."""
        inside: Expr = TRUE
        taps: list[list[Tap]] = []
        for dim, (bin_, extent) in enumerate(zip(bins, self._spatial, strict=True)):
            place = self._place(region, dim, bin_)
            inside = inside & (place >= -1.0) & (place <= cast(extent, self.dtype))
            taps.append(linear_taps(_clamped(place, extent)))
        return inside, taps

    def _place(self, region: Expr, dim: int, bin_: Expr) -> Expr:
        """The coordinate of the sample along ``dim``."""
        columns = (const(1 - dim), const(3 - dim))
        start, end = (cast(self._rois[region, c], self.dtype) * self._scale - self._offset for c in columns)
        length = end - start if self._offset else maximum(end - start, const(1.0, self.dtype))
        size = length * const(1.0 / self._output[dim], self.dtype)
        step = cast(self.axes[dim].var, self.dtype) + 0.5
        part = 1.0 / maximum(self._along(region, dim), const(1.0, self.dtype))
        return start + cast(bin_, self.dtype) * size + step * size * part


def _largest_part(x: Tensor, prefix: Index, taps: Sequence[Sequence[Tap]]) -> Expr:
    """The largest of the four weighted elements of an interpolation."""
    pairs = product(*taps)
    return reduce(maximum, [a.weight * b.weight * _element(x, prefix, (a, b), zeros=False) for a, b in pairs])


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
    count = element_count(sliding.kernel)
    _require_moves(x, offsets, offset_group, count * (x.ndim - 2), outputs, "the offsets")
    if mask is not None:
        _require_moves(x, mask, offset_group, count, outputs, "the mask")
    _require_elements(x)
    columns = _moved_columns(x, sliding, outputs, offsets, mask, offset_group)
    result = _product_of_columns(columns, weight, sliding.taps(), outputs, per_group)
    return narrowed(result if bias is None else add_bias(result, bias), x.dtype)


def _moved_columns(
    x: Tensor, sliding: Window, outputs: Shape, offsets: Tensor, mask: Tensor | None, offset_group: int
) -> Tensor:
    """The inputs of each tap of each output (im2col): ``[N, C, taps..., outputs...]``."""
    wide, rank, count = accumulator(x.dtype), x.ndim - 2, element_count(sliding.kernel)
    channels_per_offset = simplified(x.shape[1] // offset_group)

    def column(index: Index) -> Expr:
        batch, channel = index[:2]
        taps, point = index[2 : 2 + rank], index[2 + rank :]
        own = channel // channels_per_offset * count + flat_index(taps, sliding.kernel)
        moved: list[list[Tap]] = []
        for dim, padded in enumerate(sliding.positions(point, taps)):
            moves = cast(offsets[(batch, own * rank + dim, *point)], wide)
            moved.append(linear_taps(cast(padded - sliding.begins[dim], wide) + moves))
        value = sample(x, (batch, channel), moved, zeros=True)
        return value if mask is None else value * cast(mask[(batch, own, *point)], wide)

    return tensor((*x.shape[:2], *sliding.kernel, *outputs), column, name="columns")


def _product_of_columns(
    columns: Tensor, weight: Tensor, taps: Sequence[IterVar], outputs: Shape, per_group: Expr
) -> Tensor:
    """The filters applied to the columns: ``[N, filters, outputs...]``; each group has ``per_group`` of them."""
    inner = te.reduce_axis((0, weight.shape[1]), name="ci")

    def body(index: Index) -> Reduction:
        batch, filter_, *point = index
        channel = (filter_ // per_group) * weight.shape[1] + inner.var
        tap = tuple(k.var for k in taps)
        element = columns[(batch, channel, *tap, *point)]
        return te.sum(element * cast(weight[(filter_, inner.var, *tap)], columns.dtype), axis=(inner, *taps))

    return tensor((columns.shape[0], weight.shape[0], *outputs), body)


def _require_moves(x: Tensor, moves: Tensor, groups: int, for_each: ExprLike, outputs: Shape, role: str) -> None:
    channels = x.shape[1]
    if groups < 1 or (isinstance(channels, Const) and int(channels.value) % groups):
        raise BadProgram(f"the {channels} channels of {x} can't be divided into {groups} offset groups")
    wanted = (x.shape[0], simplified(as_expr(for_each) * groups), *outputs)
    if moves.ndim != len(wanted) or not all(map(same_extent, moves.shape, wanted)):
        raise BadProgram(f"{role} {moves} must have the shape [{', '.join(map(str, wanted))}]")

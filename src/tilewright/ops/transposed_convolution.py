"""Transposed convolution without inserted zeros: output positions are grouped by phase.

Output position ``y`` gets ``x[i] * weight[k]`` wherever ``y + begin = i * stride + k * dilation``. So the active taps
are those with ``k * dilation = y + begin (mod stride)``: all outputs of a phase ``(y + begin) % stride`` have the same
taps, and neighbours among them read neighbours of the input. Each phase is an ordinary convolution of stride 1 with
some of the taps, backwards (the sub-pixel convolution of Shi et al., 2016).

Phases may have different numbers of taps (a kernel of 3, a stride of 2), or none. Filters are padded to the longest;
missing taps are zeros in storage and are left out of the sums, as ``0 * inf`` is not 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, narrowed, tensor
from tilewright.ops.convolution import add_bias
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import Shape, same_extent, simplified
from tilewright.ops.windows import Window, number
from tilewright.symbolic.expr import TRUE, Const, Expr, ExprLike, as_expr, cast, const, equal, select
from tilewright.symbolic.traversal import all_of
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


@dataclass(frozen=True, slots=True)
class Phases:
    """The phases along one spatial dimension.

    ``k * dilation = phase (mod stride)`` has solutions if the phase is a multiple of ``gcd(stride, dilation)``: every
    ``step``-th tap from ``first_tap`` on. From one to the next, the input position decreases by ``move``.
    """

    kernel: Expr
    stride: int
    dilation: int

    @property
    def step(self) -> int:
        return self.stride // gcd(self.stride, self.dilation)

    @property
    def move(self) -> int:
        return self.dilation // gcd(self.stride, self.dilation)

    @property
    def taps(self) -> Expr:
        """The maximum number of taps of a phase."""
        return simplified((self.kernel + (self.step - 1)) // self.step)

    @property
    def are_even(self) -> bool:
        """Whether all phases have equally many taps."""
        return self.step == self.stride and simplified(self.kernel % self.stride) == const(0)

    def first_tap(self, phase: Expr) -> Expr:
        """The first tap of ``phase``, if it has any."""
        if self.step == 1 or self.dilation == 1:
            return phase * 0 if self.step == 1 else phase
        return phase // (self.stride // self.step) * pow(self.move, -1, self.step) % self.step

    def tap(self, phase: Expr, back: Expr) -> Expr:
        """The tap of ``phase`` at position ``back`` from its last possible one."""
        return self.first_tap(phase) + (self.taps - 1 - back) * self.step

    def has(self, phase: Expr, back: Expr) -> Expr:
        """Whether ``tap`` exists."""
        if self.are_even:
            return TRUE
        solvable = equal(phase % (self.stride // self.step), 0) if self.step < self.stride else TRUE
        return solvable & (self.tap(phase, back) < self.kernel)

    def source(self, place: Expr, back: Expr) -> Expr:
        """The input position that the output at ``place`` (counted with the padding) multiplies by ``tap``."""
        phase = place % self.stride
        shift = (phase - self.first_tap(phase) * self.dilation) // self.stride if self.dilation > 1 else const(0)
        return place // self.stride + shift - (self.taps - 1 - back) * self.move

    @property
    def farthest(self) -> Expr:
        """The maximum distance of ``source`` before ``place // stride``."""
        return simplified(
            ((self.step - 1) * self.dilation + self.stride - 1) // self.stride + (self.taps - 1) * self.move
        )


def phases(kernel: Sequence[ExprLike], strides: Sequence[int], dilations: Sequence[int]) -> list[Phases]:
    """The phases along each spatial dimension."""
    return [Phases(as_expr(k), s, d) for k, s, d in zip(kernel, strides, dilations, strict=True)]


@operator("PhaseFilters", FusionKind.INJECTIVE)
def phase_filters(weight: Tensor, *, strides: Sequence[int], dilations: Sequence[int], group: int = 1) -> Tensor:
    """The filters of all phases: ``[group * CI, CO, kernel...]`` to ``[group * CO, strides..., CI, taps...]``.

    Taps are reversed. Missing taps are zeros.
    """
    if group < 1:
        raise BadProgram(f"group is {group}; it must be at least 1")
    channels, filters, kernel = weight.shape[0], weight.shape[1], weight.shape[2:]
    if isinstance(channels, Const) and int(channels.value) % group:
        raise BadProgram(f"the {channels} channels of the weight {weight} can't be divided into {group} groups")
    per_group = simplified(channels // group)
    rank = len(kernel)
    dims = phases(kernel, strides, dilations)

    def body(index: Index) -> Expr:
        filter_, phase, channel, back = index[0], index[1 : rank + 1], index[rank + 1], index[rank + 2 :]
        places = list(zip(dims, phase, back, strict=True))
        own = (filter_ // filters) * per_group + channel
        element = weight[(own, filter_ % filters, *(dim.tap(p, b) for dim, p, b in places))]
        return select(all_of(*(dim.has(p, b) for dim, p, b in places)), element, const(0, weight.dtype))

    shape = (simplified(filters * group), *map(const, strides), per_group, *(dim.taps for dim in dims))
    return tensor(shape, body)


@operator("PhaseConv", FusionKind.CONTRACTION)
def phase_conv(
    x: Tensor,
    filters: Tensor,
    bias: Tensor | None = None,
    *,
    kernel: Sequence[int | Expr],
    dilations: Sequence[int],
    begins: Sequence[int],
    spatial: Sequence[int | Expr],
    group: int = 1,
) -> Tensor:
    """The transposed convolution of ``x`` with the result of ``PhaseFilters`` for a weight with the extents ``kernel``.

    ``x``: ``[N, group * CI, ...]``, ``bias``: ``[group * CO]``; the result is ``[N, group * CO, *spatial]``, and starts
    ``begins`` after the first output. Up to three stages: the padded input, the sum of products, the bias.
    """
    rank = x.ndim - 2
    if rank < 1 or filters.ndim != 2 + 2 * rank:
        raise BadProgram(f"the filters {filters} of phases are not those of {x}, which has {rank} spatial dimensions")
    channels = filters.shape[rank + 1]
    if x.dtype != filters.dtype:
        raise BadProgram(f"{x} and the filters {filters} must have one dtype")
    if not same_extent(x.shape[1], channels * group):
        raise BadProgram(
            f"{x} has {x.shape[1]} channels, but the weight with group {group} takes {simplified(channels * group)}"
        )
    dims = phases(kernel, [_number(extent) for extent in filters.shape[1 : rank + 1]], dilations)
    before = [max(0, -(begin // dim.stride - _number(dim.farthest))) for begin, dim in zip(begins, dims, strict=True)]
    needed = [
        (as_expr(extent) + (begin - 1)) // dim.stride + (1 + pad)
        for extent, begin, dim, pad in zip(spatial, begins, dims, before, strict=True)
    ]
    source = _padded(x, before, tuple(map(simplified, needed)))
    taps = [te.reduce_axis((0, dim.taps), name=f"k{position}") for position, dim in enumerate(dims)]
    channel = te.reduce_axis((0, channels), name="ci")
    per_group = simplified(filters.shape[0] // group)
    depthwise = group > 1 and channels == const(1)
    wide = accumulator(x.dtype)

    def body(index: Index) -> Reduction:
        batch, filter_, *outputs = index
        places = [y + begin for y, begin in zip(outputs, begins, strict=True)]
        inner = const(0) if depthwise else channel.var
        own = inner if group == 1 else (filter_ // per_group) * channels + inner
        moves = list(zip(dims, places, (axis.var for axis in taps), strict=True))
        at = (dim.source(place, tap) + pad for (dim, place, tap), pad in zip(moves, before, strict=True))
        phase = tuple(place % dim.stride for dim, place, _ in moves)
        factor = filters[(filter_, *phase, inner, *(axis.var for axis in taps))]
        there = all_of(*(dim.has(place % dim.stride, tap) for dim, place, tap in moves))
        axes = taps if depthwise else (channel, *taps)
        return te.sum(cast(source[(batch, own, *at)], wide) * cast(factor, wide), axis=axes, where=there)

    product = tensor((x.shape[0], filters.shape[0], *map(as_expr, spatial)), body, name="conv")
    return narrowed(product if bias is None else add_bias(product, bias), x.dtype)


def _number(extent: Expr) -> int:
    if not isinstance(extent, Const):
        raise BadProgram(f"the extent {extent} of a transposed convolution's weight is known at run time only")
    return int(extent.value)


def _padded(x: Tensor, before: Sequence[int], needed: Shape) -> Tensor:
    """``x`` with zeros ``before`` it, and after it up to the extents ``needed``."""
    ones = (1,) * len(needed)
    ends = tuple(number(extent - own - pad) for extent, own, pad in zip(needed, x.shape[2:], before, strict=True))
    made, _ = Window(tuple(map(const, ones)), ones, ones, tuple(before), ends).padded(x, const(0, x.dtype), needed)
    return made


@operator("PhasesToSpace", FusionKind.VIEW, Trait.MOVES)
def phases_to_space(
    x: Tensor, *, strides: Sequence[int], offsets: Sequence[int], spatial: Sequence[int | Expr]
) -> Tensor:
    """Phases interleaved: ``[N, phases * C, ...]`` to ``[N, C, *spatial]``, without the first ``offsets`` outputs."""
    channels = simplified(x.shape[1] // prod(strides))

    def body(index: Index) -> Expr:
        batch, channel, *rest = index
        moved = [i + offset for i, offset in zip(rest, offsets, strict=True)]
        phase: Expr = const(0)
        for i, stride in zip(moved, strides, strict=True):
            phase = phase * stride + i % stride
        place = (i // stride for i, stride in zip(moved, strides, strict=True))
        return x[(batch, phase * channels + channel, *place)]

    return tensor((x.shape[0], channels, *map(as_expr, spatial)), body)

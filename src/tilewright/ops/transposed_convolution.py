"""Transposed convolution as a convolution: the phases of each stride become filters, and are interleaved afterwards.

Output position ``y`` gets ``x[i] * weight[k]`` wherever ``y + pad = i * stride + k * dilation``. So the taps that take
part are those with ``k * dilation = y + pad (mod stride)``: all outputs of a phase ``(y + pad) % stride`` see the same
taps, and neighbours among them see neighbours of the input. Each phase is an ordinary convolution of stride 1 with
every ``stride``-th tap, backwards (the sub-pixel convolution of Shi et al., 2016). Nothing is multiplied by inserted
zeros, except where stride and dilation are both above 1.
"""

from collections.abc import Sequence
from math import prod

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import Shape, place_of, simplified
from tilewright.symbolic.expr import TRUE, Const, Expr, as_expr, const, equal, select
from tilewright.tensor.ir import Tensor


def phase_taps(kernel: Shape, strides: Sequence[int], dilations: Sequence[int]) -> Shape:
    """How many taps each phase has along each spatial dimension; with stride 1, where the dilation stays, all."""
    return tuple(
        k if stride == 1 else simplified(((k - 1) * dilation + stride) // stride)
        for k, stride, dilation in zip(kernel, strides, dilations, strict=True)
    )


@operator("PhaseFilters", FusionKind.INJECTIVE)
def phase_filters(weight: Tensor, *, strides: Sequence[int], dilations: Sequence[int], group: int = 1) -> Tensor:
    """The filters of all phases: ``[group * CI, CO, kernel...]`` to ``[group * CO * phases, CI, taps...]``.

    Filter ``co * phases + p`` makes phase ``p`` of output channel ``co``; phases are in row-major order.
    """
    if group < 1:
        raise BadProgram(f"group is {group}; it must be at least 1")
    channels, filters, kernel = weight.shape[0], weight.shape[1], weight.shape[2:]
    if isinstance(channels, Const) and int(channels.value) % group:
        raise BadProgram(f"the {channels} channels of the weight {weight} can't be divided into {group} groups")
    per_group = simplified(channels // group)
    phases = prod(strides)
    taps = phase_taps(kernel, strides, dilations)

    def body(index: Index) -> Expr:
        row, channel, *backwards = index
        output = row // phases
        inside: Expr = TRUE
        source: list[Expr] = []
        for dim, phase in enumerate(place_of(row % phases, strides)):
            tap = phase + (taps[dim] - 1 - backwards[dim]) * strides[dim]
            if strides[dim] > 1:
                inside = inside & equal(tap % dilations[dim], 0) & (tap // dilations[dim] < kernel[dim])
                tap = tap // dilations[dim]
            source.append(tap)
        own = (output // filters) * per_group + channel
        return select(inside, weight[(own, output % filters, *source)], const(0, weight.dtype))

    return tensor((simplified(filters * (group * phases)), per_group, *taps), body)


@operator("PhasesToSpace", FusionKind.VIEW)
def phases_to_space(
    x: Tensor, *, strides: Sequence[int], offsets: Sequence[int], spatial: Sequence[int | Expr]
) -> Tensor:
    """Phases interleaved: ``[N, C * phases, ...]`` to ``[N, C, *spatial]``; the first ``offsets`` outputs go."""
    phases = prod(strides)

    def body(index: Index) -> Expr:
        batch, channel, *rest = index
        moved = [i + offset for i, offset in zip(rest, offsets, strict=True)]
        phase: Expr = const(0)
        for i, stride in zip(moved, strides, strict=True):
            phase = phase * stride + i % stride
        place = (i // stride for i, stride in zip(moved, strides, strict=True))
        return x[(batch, channel * phases + phase, *place)]

    return tensor((x.shape[0], simplified(x.shape[1] // phases), *map(as_expr, spatial)), body)

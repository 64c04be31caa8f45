"""Sums of a convolution's products, transposed or not: each output position adds those of its taps.

A product of filters and taps with the data has a row for each filter and tap: what each position of the data adds
through that tap. As in ``transposed_convolution``, outputs are grouped by phase: all of a phase add the same taps, and
neighbours among them add neighbours of a row.
"""

from collections.abc import Sequence
from math import prod

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, narrowed, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import simplified
from tilewright.ops.transposed_convolution import phases
from tilewright.symbolic.expr import Expr, cast, const
from tilewright.symbolic.traversal import all_of
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


@operator("TapSums", FusionKind.REDUCTION)
def tap_sums(
    x: Tensor,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    firsts: Sequence[int],
    places: Sequence[int],
) -> Tensor:
    """``[N, CO * kernel, ...]`` to ``[N, phases * CO, *places]``, phases in row-major order.

    Position ``i`` of the data adds, through tap ``k``, to place ``i + k // stride * dilation`` of phase ``k % stride``;
    the first places of the result are ``firsts``.
    """
    if x.ndim - 2 != len(kernel) or simplified(x.shape[1] % prod(kernel)) != const(0):
        raise BadProgram(f"{x} must have the shape [N, CO * {prod(kernel)}, ...] with {len(kernel)} spatial dimensions")
    dims = phases(kernel, strides, [1] * len(kernel))
    filters = simplified(x.shape[1] // prod(kernel))
    backs = [te.reduce_axis((0, dim.taps), name=f"k{position}") for position, dim in enumerate(dims)]
    wide = accumulator(x.dtype)

    def body(index: Index) -> Reduction:
        batch, channel, *place = index
        row, at, there = channel % filters, list[Expr](), list[Expr]()
        for dim, back in enumerate(backs):
            phase = channel // (filters * prod(strides[dim + 1 :])) % strides[dim]
            tap, source = phase + back.var * strides[dim], place[dim] + firsts[dim] - back.var * dilations[dim]
            row = row * kernel[dim] + tap
            at.append(source)
            there += [tap < kernel[dim], source >= 0, source < x.shape[dim + 2]]
        return te.sum(cast(x[(batch, row, *at)], wide), axis=backs, where=all_of(*there))

    shape = (x.shape[0], simplified(filters * prod(strides)), *map(const, places))
    return narrowed(tensor(shape, body), x.dtype)

"""What the windows of a convolution read, tap by tap: then the convolution is one with a single tap."""

from collections.abc import Sequence

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.windows import window
from tilewright.symbolic.expr import Expr, const, select
from tilewright.symbolic.traversal import all_of
from tilewright.tensor.ir import Tensor


@operator("WindowTaps", FusionKind.INJECTIVE)
def window_taps(
    x: Tensor, *, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> Tensor:
    """``x [N, C, spatial...]`` to ``[N, C, kernel..., outputs...]``: the elements that each tap of a window multiplies,
    0 in the padding. ``pads``: all begins, then all ends."""
    rank = x.ndim - 2
    if not len(kernel) == len(strides) == len(dilations) == len(pads) // 2 == rank:
        raise BadProgram(f"WindowTaps of {x}: it takes an entry for each of {rank} spatial dimensions, two of pads")
    sliding = window(x, tuple(map(const, kernel)), strides, pads, dilations)
    outputs = sliding.outputs(x.shape[2:])

    def body(index: Index) -> Expr:
        taps, places = index[2 : rank + 2], index[rank + 2 :]
        at = [i - begin for i, begin in zip(sliding.positions(places, taps), pads[:rank], strict=True)]
        inside = [i >= 0 for i, begin in zip(at, pads[:rank], strict=True) if begin > 0]
        inside += [i < extent for i, end, extent in zip(at, pads[rank:], x.shape[2:], strict=True) if end > 0]
        value = x[(*index[:2], *at)]
        return select(all_of(*inside), value, const(0, x.dtype)) if inside else value

    return tensor((*x.shape[:2], *map(const, kernel), *outputs), body)

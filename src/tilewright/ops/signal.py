"""Operators on signals and sequences."""

from tilewright.base.errors import BadProgram, Unsupported
from tilewright.ops.build import Index, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import normalize_axis
from tilewright.symbolic.check import Origin, checked
from tilewright.symbolic.expr import Const, Expr, as_expr, select
from tilewright.tensor.ir import Tensor


@operator("Frames", FusionKind.INJECTIVE)
def frames(x: Tensor, *, length: int, step: int) -> Tensor:
    """``[batch, samples, parts]`` to ``[batch, frames, length, parts]``: a frame starts every ``step`` samples.

    Raises ``Unsupported`` if the number of samples is known only at run time.
    """
    if x.ndim != 3 or length < 1 or step < 1:
        raise BadProgram(f"Frames of {length} every {step} of {x}: three dimensions and positive numbers are needed")
    if not isinstance(x.shape[1], Const):
        raise Unsupported(f"Frames: extent {x.shape[1]} of {x} is known at run time only")
    count = max((int(x.shape[1].value) - length) // step + 1, 0)
    shape = (x.shape[0], as_expr(count), as_expr(length), x.shape[2])
    return tensor(shape, lambda i: x[i[0], i[1] * step + i[2], i[3]])


@operator("ReverseSequence", FusionKind.INJECTIVE)
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """The first ``lengths[b]`` elements along ``time_axis`` of each batch reversed; a length is 0 to the extent."""
    axes = tuple(normalize_axis(axis, x.ndim) for axis in (batch_axis, time_axis))
    if sorted(axes) != [0, 1] or lengths.shape != (x.shape[axes[0]],) or not lengths.dtype.is_int:
        raise BadProgram(f"ReverseSequence of {x} by {lengths}: axes {axes} must be the first two, with a length each")
    batch, time = axes

    def body(index: Index) -> Expr:
        length = checked(lengths[index[batch]], x.shape[time] + 1, Origin("ReverseSequence", "sequence_lens"))
        at = select(index[time] < length, length - 1 - index[time], index[time])
        return x[tuple(at if p == time else i for p, i in enumerate(index))]

    return tensor(x.shape, body)

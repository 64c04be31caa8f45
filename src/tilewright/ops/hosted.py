"""Operators that run between native parts of a model: what they make decides the shapes of what follows.

``READ_SIZES`` reads numbers as run-time extents: the model goes on with shapes that depend on them. An extent is handed
on in the shape of an array without elements, of ``[extent, 0]``: its witness. ``VIEW`` decides nothing: an array has
bits, and an expression has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.dtypes import DType, boolean
from tilewright.base.errors import BadProgram
from tilewright.ops.operator import FusionKind, Operator
from tilewright.symbolic.expr import ZERO, Expr, as_expr
from tilewright.tensor import build as te
from tilewright.tensor.ir import Tensor


@dataclass(frozen=True, slots=True)
class HostOperator(Operator):
    """An operator without native code of its own; no pass but ``passes.parts`` sees its nodes.

    Its te function only says which types its results have.
    """

    def __hash__(self) -> int:
        return hash(self.name)


def _witnesses(x: Tensor, *, sizes: Sequence[int | Expr]) -> tuple[Tensor, ...]:
    """The witness of each of ``sizes``, which are the elements of ``x``: integers, in row-major order."""
    if not x.dtype.is_int:
        raise BadProgram(f"sizes are integers, and {x} holds {x.dtype}")
    return tuple(te.placeholder((as_expr(size), ZERO), boolean) for size in sizes)


def _witness(x: Tensor, *, axis: int) -> Tensor:
    """The witness of the extent of ``x`` along ``axis``."""
    return te.placeholder((x.shape[axis], ZERO), boolean)


def _view(x: Tensor, *, to: DType) -> Tensor:
    """The bytes of ``x`` as elements of another type of the same size."""
    if x.dtype.itemsize != to.itemsize:
        raise BadProgram(f"the elements of {x} do not have the {to.itemsize} bytes of {to}")
    return te.placeholder(x.shape, to)


READ_SIZES = HostOperator("host.ReadSizes", _witnesses, FusionKind.OPAQUE)
"""The elements of an integer tensor as extents."""
WITNESS = HostOperator("host.Witness", _witness, FusionKind.OPAQUE)
"""One extent of a tensor."""
VIEW = HostOperator("host.View", _view, FusionKind.OPAQUE)
"""A tensor's bytes as elements of another type."""

"""Helpers for the operators' te programs: bodies over an index tuple, and accumulation dtypes."""

from collections.abc import Callable, Collection
from enum import Enum
from typing import TypeAlias, TypeVar

from tilewright.base.dtypes import DType, f32
from tilewright.base.errors import BadProgram
from tilewright.loops.extern import for_range
from tilewright.loops.ir import LoopKind, Stmt
from tilewright.ops.shapes import Shape
from tilewright.symbolic.expr import Expr, Var, cast
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

Index: TypeAlias = tuple[Expr, ...]
Chosen = TypeVar("Chosen", bound=Enum)


def tensor(
    shape: Shape, body: Callable[[Index], Expr | Reduction], name: str | None = None, dims: Collection[Var] = ()
) -> Tensor:
    """The tensor whose element at ``index`` is ``body(index)``: ``te.compute`` for any rank."""

    def at(*index: Expr) -> Expr | Reduction:
        return body(index)

    return te.compute(shape, at, name, dims)


def accumulator(dtype: DType) -> DType:
    """The dtype for sums of ``dtype``: f32 for 16-bit floats, else the same."""
    return f32 if dtype.is_float and dtype.bits < 32 else dtype


def choice(kind: type[Chosen], name: str, role: str) -> Chosen:
    """The member for the attribute value ``name``. Raises ``BadProgram``, with ``role``, if there is none."""
    for each in kind:
        if each.value == name:
            return each
    raise BadProgram(f"{role} is {name!r}; it can be {', '.join(str(each.value) for each in kind)}")


def narrowed(x: Tensor, dtype: DType) -> Tensor:
    """``x`` rounded to ``dtype``; unchanged if it has that dtype."""
    return x if x.dtype == dtype else tensor(x.shape, lambda index: cast(x[index], dtype))


def for_each(
    extents: Shape, body: Callable[[Index], Stmt], kind: LoopKind = LoopKind.SERIAL, outer: Index = ()
) -> Stmt:
    """Loops (for the body of an extern) that run ``body`` at every index of a box."""
    if not extents:
        return body(outer)
    return for_range(
        extents[0], lambda i: for_each(extents[1:], body, kind, (*outer, i)), name=f"row{len(outer)}", kind=kind
    )

"""Numbers without subnormal ones, which processors round to bfloat16 by an instruction that takes these for 0."""

from tilewright.symbolic.expr import Expr, Select, binary, const, select, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp

SMALLEST_NORMAL = 2.0**-126
"""Of f32 and bf16."""


def without_subnormals(a: Expr) -> Expr:
    """``a`` (f32), with 0 in place of subnormal numbers."""
    is_small = binary(BinaryOp.LT, unary(UnaryOp.ABS, a), const(SMALLEST_NORMAL, a.dtype))
    return select(is_small, const(0.0, a.dtype), a)


def is_without_subnormals(a: Expr) -> bool:
    """Whether ``a`` is a result of ``without_subnormals``."""
    return isinstance(a, Select) and a == without_subnormals(a.b)

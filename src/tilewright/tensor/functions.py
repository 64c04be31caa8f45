"""The scalar functions of tensor expressions: ``te.exp(A[i])``."""

from collections.abc import Callable

from tilewright.symbolic.expr import Expr, ExprLike, binary, maximum, minimum, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp


def _unary(op: UnaryOp) -> Callable[[ExprLike], Expr]:
    def function(a: ExprLike) -> Expr:
        return unary(op, a)

    function.__name__ = function.__qualname__ = op.value
    function.__doc__ = f"``{op.value}(a)``, in the dtype of ``a``."
    return function


def _binary(op: BinaryOp) -> Callable[[ExprLike, ExprLike], Expr]:
    def function(a: ExprLike, b: ExprLike) -> Expr:
        return binary(op, a, b)

    function.__name__ = function.__qualname__ = op.name.lower()
    function.__doc__ = f"``{op.value}`` of two values of one dtype."
    return function


abs = _unary(UnaryOp.ABS)
floor = _unary(UnaryOp.FLOOR)
ceil = _unary(UnaryOp.CEIL)
round = _unary(UnaryOp.ROUND)
trunc = _unary(UnaryOp.TRUNC)
flush = _unary(UnaryOp.FLUSH)
sqrt = _unary(UnaryOp.SQRT)
exp = _unary(UnaryOp.EXP)
exp2 = _unary(UnaryOp.EXP2)
expm1 = _unary(UnaryOp.EXPM1)
log = _unary(UnaryOp.LOG)
log1p = _unary(UnaryOp.LOG1P)
tanh = _unary(UnaryOp.TANH)
erf = _unary(UnaryOp.ERF)
sigmoid = _unary(UnaryOp.SIGMOID)
sin = _unary(UnaryOp.SIN)
cos = _unary(UnaryOp.COS)
tan = _unary(UnaryOp.TAN)
asin = _unary(UnaryOp.ASIN)
acos = _unary(UnaryOp.ACOS)
atan = _unary(UnaryOp.ATAN)
sinh = _unary(UnaryOp.SINH)
cosh = _unary(UnaryOp.COSH)
asinh = _unary(UnaryOp.ASINH)
acosh = _unary(UnaryOp.ACOSH)
atanh = _unary(UnaryOp.ATANH)
isnan = _unary(UnaryOp.ISNAN)
isinf = _unary(UnaryOp.ISINF)

power = _binary(BinaryOp.POW)
atan2 = _binary(BinaryOp.ATAN2)
truncdiv = _binary(BinaryOp.TRUNCDIV)
truncmod = _binary(BinaryOp.TRUNCMOD)
fmod = truncmod


def rsqrt(a: ExprLike) -> Expr:
    """``1 / sqrt(a)``, each rounded."""
    return 1 / sqrt(a)


def isfinite(a: ExprLike) -> Expr:
    """Whether ``a`` is neither infinite nor NaN."""
    return ~(isnan(a) | isinf(a))


def clip(a: ExprLike, least: ExprLike, most: ExprLike) -> Expr:
    """``a`` clipped: the maximum with ``least``, then the minimum with ``most``; NaN if one of them is."""
    return minimum(maximum(a, least), most)

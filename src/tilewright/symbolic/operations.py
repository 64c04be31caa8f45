"""The operations of scalar expressions, and tables of them; ``expr`` has their semantics."""

from enum import Enum

from tilewright.base.dtypes import DType


class BinaryOp(Enum):
    """Operations on two operands of one dtype; the value is the printed symbol."""

    __hash__ = object.__hash__  # Enum's own hash is computed in Python from the name: a tenth of all compile time

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    FLOORDIV = "//"
    MOD = "%"
    TRUNCDIV = "truncdiv"
    TRUNCMOD = "truncmod"
    MIN = "min"
    MAX = "max"
    POW = "pow"
    ATAN2 = "atan2"
    AND = "&"
    OR = "|"
    XOR = "^"
    SHL = "<<"
    SHR = ">>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    EQ = "=="
    NE = "!="


COMPARISONS = frozenset({BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE, BinaryOp.EQ, BinaryOp.NE})
NEGATED: dict[BinaryOp, BinaryOp] = {
    BinaryOp.LT: BinaryOp.GE,
    BinaryOp.LE: BinaryOp.GT,
    BinaryOp.GT: BinaryOp.LE,
    BinaryOp.GE: BinaryOp.LT,
    BinaryOp.EQ: BinaryOp.NE,
    BinaryOp.NE: BinaryOp.EQ,
}
"""What holds where a comparison does not, but for floats that are NaN."""


class UnaryOp(Enum):
    """Operations on one operand, which keep its dtype (except the two tests)."""

    __hash__ = object.__hash__

    NEG = "neg"
    NOT = "not"
    ABS = "abs"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"
    TRUNC = "trunc"
    FLUSH = "flush"
    SQRT = "sqrt"
    EXP = "exp"
    EXP2 = "exp2"
    EXPM1 = "expm1"
    LOG = "log"
    LOG1P = "log1p"
    TANH = "tanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ISNAN = "isnan"
    ISINF = "isinf"


PRECEDENCE: dict[BinaryOp, int] = {
    **dict.fromkeys(COMPARISONS, 1),
    BinaryOp.OR: 2,
    BinaryOp.XOR: 3,
    BinaryOp.AND: 4,
    BinaryOp.SHL: 5,
    BinaryOp.SHR: 5,
    BinaryOp.ADD: 6,
    BinaryOp.SUB: 6,
    BinaryOp.MUL: 7,
    BinaryOp.DIV: 7,
    BinaryOp.FLOORDIV: 7,
    BinaryOp.MOD: 7,
}
"""Precedence of infix operators: as in Python, so that printed text reads like the te source."""

_FLOAT_ONLY = frozenset({BinaryOp.DIV, BinaryOp.ATAN2})
_INTEGER_ONLY = frozenset({BinaryOp.SHL, BinaryOp.SHR, BinaryOp.FLOORDIV, BinaryOp.TRUNCDIV})
_BITS_ONLY = frozenset({BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR})
_ANY = COMPARISONS | _BITS_ONLY


def binary_has_meaning(op: BinaryOp, dtype: DType) -> bool:
    """Whether ``op`` is defined on two operands of ``dtype``."""
    if dtype.is_int:
        return op not in _FLOAT_ONLY
    if dtype.is_bool:
        return op in _ANY
    return op not in _INTEGER_ONLY and op not in _BITS_ONLY


def unary_has_meaning(op: UnaryOp, dtype: DType) -> bool:
    """Whether ``op`` is defined on an operand of ``dtype``."""
    if op in (UnaryOp.NEG, UnaryOp.ABS):
        return not dtype.is_bool
    if op is UnaryOp.NOT:
        return not dtype.is_float
    return dtype.is_float

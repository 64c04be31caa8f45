"""The operations of scalar expressions; what they mean is said in ``expr``."""

from enum import Enum


class BinaryOp(Enum):
    """Operations on two operands of one dtype; the value is how it prints."""

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python: it was a tenth of all compile time

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

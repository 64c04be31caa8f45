"""The operations of a statement, by kind: what ``statements.py`` counts, and what arithmetic intensity is of."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Select, Unary, Var
from tilewright.symbolic.operations import COMPARISONS, BinaryOp, UnaryOp
from tilewright.symbolic.traversal import walk


class Mode(Enum):
    """Which definition features have."""

    REPAIRED = "repaired"
    """That of the paper."""
    COMPAT = "compat"
    """Multiply-adds count as two operations, and the position of all annotations is "mixed", as in the code that was
    released with the paper."""


class Operation(Enum):
    """The kinds, in the order of the features."""

    __hash__ = object.__hash__

    FLOAT_MAD = "float_mad"
    """A sum or difference of which an operand is a product, and that product."""
    FLOAT_ADDSUB = "float_addsub"
    FLOAT_MUL = "float_mul"
    FLOAT_DIVMOD = "float_divmod"
    FLOAT_CMP = "float_cmp"
    FLOAT_MATH = "float_math"
    FLOAT_OTHER = "float_other"
    INT_MAD = "int_mad"
    INT_ADDSUB = "int_addsub"
    INT_MUL = "int_mul"
    INT_DIVMOD = "int_divmod"
    INT_CMP = "int_cmp"
    INT_MATH = "int_math"
    INT_OTHER = "int_other"
    BOOL = "bool"
    SELECT = "select"


@dataclass(frozen=True, slots=True)
class Operations:
    """How many of each kind, in the order of ``Operation``."""

    counts: tuple[int, ...]

    @property
    def flops(self) -> int:
        """Operations on floats; a multiply-add is two."""
        return self.counts[0] + sum(self.counts[:7])

    def times(self, factor: int) -> "Operations":
        """All of them ``factor`` times."""
        return Operations(tuple([count * factor for count in self.counts]))

    def plus(self, other: "Operations") -> "Operations":
        """These and ``other``."""
        return Operations(tuple([a + b for a, b in zip(self.counts, other.counts, strict=True)]))


NO_OPERATIONS = Operations((0,) * len(Operation))
_ADDSUB = (Operation.FLOAT_ADDSUB, Operation.INT_ADDSUB)
_MUL = (Operation.FLOAT_MUL, Operation.INT_MUL)
_DIVMOD = (Operation.FLOAT_DIVMOD, Operation.INT_DIVMOD)
_CMP = (Operation.FLOAT_CMP, Operation.INT_CMP)
_MATH = (Operation.FLOAT_MATH, Operation.INT_MATH)
_OTHER = (Operation.FLOAT_OTHER, Operation.INT_OTHER)
_QUOTIENTS = (BinaryOp.DIV, BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD)
_BINARY = {
    **dict.fromkeys(BinaryOp, _MATH),
    **dict.fromkeys((*COMPARISONS, BinaryOp.MIN, BinaryOp.MAX), _CMP),
    **dict.fromkeys(_QUOTIENTS, _DIVMOD),
    **dict.fromkeys((BinaryOp.ADD, BinaryOp.SUB), _ADDSUB),
    BinaryOp.MUL: _MUL,
}
"""What operations on floats, and on integers, are."""
_FUSED = {
    Operation.FLOAT_ADDSUB: (Operation.FLOAT_MUL, Operation.FLOAT_MAD),
    Operation.INT_ADDSUB: (Operation.INT_MUL, Operation.INT_MAD),
}


@lru_cache(maxsize=4096)
def operations_in(value: Expr, mode: Mode) -> Operations:
    """Those of ``value``, with the arithmetic of the indices that it reads at, as it is written."""
    counts = dict.fromkeys(Operation, 0)
    for node in walk(value):
        operation = _operation(node)
        if operation is None:
            continue
        counts[operation] += 1
        if mode is Mode.REPAIRED and operation in _FUSED and any(map(_is_product, node.operands())):
            product, both = _FUSED[operation]
            counts[operation] -= 1
            counts[product] -= 1
            counts[both] += 1
    return Operations(tuple(counts.values()))


def _is_product(node: Expr) -> bool:
    return isinstance(node, Binary) and node.op is BinaryOp.MUL


def _operation(node: Expr) -> Operation | None:
    """What ``node`` does; None if that costs nothing."""
    match node:
        case Const() | Var() | Read() | Cast():
            return None
        case Select():
            return Operation.SELECT
        case Binary(op, a, _) if not a.dtype.is_bool or op in COMPARISONS:
            return _of(a, _BINARY[op])
        case Unary(op, a) if not a.dtype.is_bool:
            return _of(a, _ADDSUB if op is UnaryOp.NEG else _MATH)
        case Binary() | Unary():
            return Operation.BOOL
        case _:
            return _of(node, _OTHER)


def _of(operand: Expr, pair: tuple[Operation, Operation]) -> Operation:
    return pair[0] if operand.dtype.is_float else pair[1]

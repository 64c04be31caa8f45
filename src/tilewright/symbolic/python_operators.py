"""Python's operators as applications of ``BinaryOp`` and ``UnaryOp``: ``a + 1`` is ``a.binary(BinaryOp.ADD, 1)``.

``==`` and ``!=`` are left: they compare expressions as objects. What builds expressions of them is in ``expr.py``.
"""

from typing import Protocol, TypeVar

from tilewright.symbolic.operations import BinaryOp, UnaryOp

Other = TypeVar("Other", contravariant=True)
Result = TypeVar("Result", covariant=True)


class Operand(Protocol[Other, Result]):
    """What the operators need of the class that inherits them."""

    def binary(self, op: BinaryOp, other: Other) -> Result:
        """``self op other``."""
        ...

    def reflected(self, op: BinaryOp, other: Other) -> Result:
        """``other op self``."""
        ...

    def unary(self, op: UnaryOp) -> Result:
        """``op(self)``."""
        ...


class PythonOperators:
    """Inherited by every ``Operand``."""

    __slots__ = ()

    def __add__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.ADD, other)

    def __radd__(self: Operand[Other, Result], other: Other) -> Result:
        return self.reflected(BinaryOp.ADD, other)

    def __sub__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.SUB, other)

    def __rsub__(self: Operand[Other, Result], other: Other) -> Result:
        return self.reflected(BinaryOp.SUB, other)

    def __mul__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.MUL, other)

    def __rmul__(self: Operand[Other, Result], other: Other) -> Result:
        return self.reflected(BinaryOp.MUL, other)

    def __truediv__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.DIV, other)

    def __rtruediv__(self: Operand[Other, Result], other: Other) -> Result:
        return self.reflected(BinaryOp.DIV, other)

    def __floordiv__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.FLOORDIV, other)

    def __rfloordiv__(self: Operand[Other, Result], other: Other) -> Result:
        return self.reflected(BinaryOp.FLOORDIV, other)

    def __mod__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.MOD, other)

    def __rmod__(self: Operand[Other, Result], other: Other) -> Result:
        return self.reflected(BinaryOp.MOD, other)

    def __and__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.AND, other)

    def __or__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.OR, other)

    def __xor__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.XOR, other)

    def __lshift__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.SHL, other)

    def __rshift__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.SHR, other)

    def __lt__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.LT, other)

    def __le__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.LE, other)

    def __gt__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.GT, other)

    def __ge__(self: Operand[Other, Result], other: Other) -> Result:
        return self.binary(BinaryOp.GE, other)

    def __neg__(self: Operand[Other, Result]) -> Result:
        return self.unary(UnaryOp.NEG)

    def __invert__(self: Operand[Other, Result]) -> Result:
        return self.unary(UnaryOp.NOT)

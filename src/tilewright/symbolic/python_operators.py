"""Python's operators as applications of ``BinaryOp`` and ``UnaryOp``: ``a + 1`` is ``a.binary(BinaryOp.ADD, 1)``.

``==`` and ``!=`` compare expressions as objects; ``equal`` and ``not_equal`` are in ``expr.py``.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from tilewright.symbolic.operations import BinaryOp, UnaryOp

Other = TypeVar("Other", contravariant=True)
Result = TypeVar("Result", covariant=True)


class Operand(Protocol[Other, Result]):
    """The methods that the operators need of a subclass."""

    def binary(self, op: BinaryOp, other: Other) -> Result:
        """``self op other``."""
        ...

    def reflected(self, op: BinaryOp, other: Other) -> Result:
        """``other op self``."""
        ...

    def unary(self, op: UnaryOp) -> Result:
        """``op(self)``."""
        ...


def _binary(op: BinaryOp) -> Callable[[Operand[Other, Result], Other], Result]:
    return lambda self, other: self.binary(op, other)


def _reflected(op: BinaryOp) -> Callable[[Operand[Other, Result], Other], Result]:
    return lambda self, other: self.reflected(op, other)


def _unary(op: UnaryOp) -> Callable[[Operand[Other, Result]], Result]:
    return lambda self: self.unary(op)


class PythonOperators:
    """Python's operators, inherited by every ``Operand``."""

    __slots__ = ()

    __add__ = _binary(BinaryOp.ADD)
    __radd__ = _reflected(BinaryOp.ADD)
    __sub__ = _binary(BinaryOp.SUB)
    __rsub__ = _reflected(BinaryOp.SUB)
    __mul__ = _binary(BinaryOp.MUL)
    __rmul__ = _reflected(BinaryOp.MUL)
    __truediv__ = _binary(BinaryOp.DIV)
    __rtruediv__ = _reflected(BinaryOp.DIV)
    __floordiv__ = _binary(BinaryOp.FLOORDIV)
    __rfloordiv__ = _reflected(BinaryOp.FLOORDIV)
    __mod__ = _binary(BinaryOp.MOD)
    __rmod__ = _reflected(BinaryOp.MOD)
    __and__ = _binary(BinaryOp.AND)
    __or__ = _binary(BinaryOp.OR)
    __xor__ = _binary(BinaryOp.XOR)
    __lshift__ = _binary(BinaryOp.SHL)
    __rshift__ = _binary(BinaryOp.SHR)
    __lt__ = _binary(BinaryOp.LT)
    __le__ = _binary(BinaryOp.LE)
    __gt__ = _binary(BinaryOp.GT)
    __ge__ = _binary(BinaryOp.GE)
    __neg__ = _unary(UnaryOp.NEG)
    __invert__ = _unary(UnaryOp.NOT)

"""Python's operators build the expressions that they say, in the order of their operands."""

import operator
from collections.abc import Callable

import pytest

from tilewright.base.dtypes import f32, index
from tilewright.base.errors import BadProgram
from tilewright.symbolic.expr import Arithmetic, Binary, Const, Expr, Unary, Var, const
from tilewright.symbolic.operations import BinaryOp, UnaryOp

BOTH_WAYS: list[tuple[BinaryOp, Callable[[object, object], object]]] = [
    (BinaryOp.ADD, operator.add),
    (BinaryOp.SUB, operator.sub),
    (BinaryOp.MUL, operator.mul),
    (BinaryOp.FLOORDIV, operator.floordiv),
    (BinaryOp.MOD, operator.mod),
]
ONE_WAY: list[tuple[BinaryOp, Callable[[object, object], object]]] = [
    (BinaryOp.AND, operator.and_),
    (BinaryOp.OR, operator.or_),
    (BinaryOp.XOR, operator.xor),
    (BinaryOp.SHL, operator.lshift),
    (BinaryOp.SHR, operator.rshift),
    (BinaryOp.LT, operator.lt),
    (BinaryOp.LE, operator.le),
    (BinaryOp.GT, operator.gt),
    (BinaryOp.GE, operator.ge),
]
X, Y = Var("x"), Var("y")


@pytest.mark.parametrize(("op", "python"), BOTH_WAYS + ONE_WAY, ids=str)
def test_two_operands(op: BinaryOp, python: Callable[[object, object], object]) -> None:
    assert python(X, Y) == Binary(op, X, Y)
    assert python(X, 7) == Binary(op, X, const(7))


@pytest.mark.parametrize(("op", "python"), BOTH_WAYS, ids=str)
def test_a_number_may_come_first(op: BinaryOp, python: Callable[[object, object], object]) -> None:
    assert python(7, X) == Binary(op, const(7), X)


def test_division_is_of_floats() -> None:
    x = Var("x", f32)
    assert x / 2 == Binary(BinaryOp.DIV, x, const(2, f32))
    assert 2 / x == Binary(BinaryOp.DIV, const(2, f32), x)


def test_one_operand() -> None:
    assert Unary(UnaryOp.NEG, X) == -X
    assert Unary(UnaryOp.NOT, X) == ~X


def test_what_stands_for_no_scalar() -> None:
    with pytest.raises(BadProgram, match="stands for no scalar expression"):
        _ = Arithmetic() + 1


def test_expressions_of_two_classes_differ() -> None:
    """Expressions of two classes are never equal, whatever their operands."""
    same: list[Expr] = [X, Const(0, index), Unary(UnaryOp.NEG, X), Binary(BinaryOp.ADD, X, X)]
    assert len(set(same)) == len(same)

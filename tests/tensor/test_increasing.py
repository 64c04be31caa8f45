"""Numbers with an order that some functions keep: nothing else is true of them than of all such functions."""

import numpy as np
import pytest

from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor.domains import PRIME, Increasing, Modular

DOMAIN = Increasing(3)
KEPT = (UnaryOp.EXP, UnaryOp.TANH, UnaryOp.SIGMOID, UnaryOp.ERF)
NUMBERS = DOMAIN.random((1000,), 0)


def signed(residues: np.ndarray) -> np.ndarray:
    """Residues as integers of either sign, by Python's rule."""
    return np.array([int(r) - PRIME if int(r) > PRIME // 2 else int(r) for r in residues.reshape(-1)])


def test_the_order_is_that_of_integers() -> None:
    other = DOMAIN.random((1000,), 1)
    for op, wanted in ((BinaryOp.MAX, np.maximum), (BinaryOp.MIN, np.minimum)):
        assert np.array_equal(signed(DOMAIN.binary(op, NUMBERS, other)), wanted(signed(NUMBERS), signed(other)))


@pytest.mark.parametrize("op", KEPT)
def test_functions_never_decrease(op: UnaryOp) -> None:
    made = signed(DOMAIN.unary(op, NUMBERS))[np.argsort(signed(NUMBERS))]
    assert np.all(np.diff(made) >= 0)
    assert len(set(made.tolist())) > 900


def test_they_are_no_sums_nor_equal() -> None:
    exp, tanh = (DOMAIN.unary(op, NUMBERS) for op in KEPT[:2])
    assert np.mean(exp == tanh) < 0.01
    doubled = DOMAIN.unary(UnaryOp.EXP, DOMAIN.binary(BinaryOp.ADD, NUMBERS, NUMBERS))
    assert np.mean(doubled == DOMAIN.binary(BinaryOp.ADD, exp, exp)) < 0.01


def test_other_functions_keep_no_order() -> None:
    made = signed(DOMAIN.unary(UnaryOp.SIN, NUMBERS))[np.argsort(signed(NUMBERS))]
    assert 300 < np.sum(np.diff(made) < 0) < 700


@pytest.mark.parametrize("infinity", [float("inf"), float("-inf")])
def test_infinities_are_the_ends(infinity: float) -> None:
    end = DOMAIN.constant(infinity)
    op = BinaryOp.MAX if infinity < 0 else BinaryOp.MIN
    assert np.array_equal(DOMAIN.binary(op, NUMBERS, np.broadcast_to(end, NUMBERS.shape)), NUMBERS)


def test_arithmetic_is_that_of_the_field() -> None:
    field, other = Modular(3), DOMAIN.random((1000,), 1)
    for op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV):
        assert np.array_equal(DOMAIN.binary(op, NUMBERS, other), field.binary(op, NUMBERS, other))

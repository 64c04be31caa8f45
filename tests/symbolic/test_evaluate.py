"""The meaning of every operation, against Python's integers and NumPy's floats."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.symbolic.reference import X, Y, Z, indices, points, value
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.symbolic import Expr
from tilewright.symbolic.evaluate import compile_exprs, evaluate_binary, evaluate_cast, evaluate_unary
from tilewright.symbolic.expr import Read, Source, Var, cast, const, equal, maximum, select, unary
from tilewright.symbolic.folding import wrap
from tilewright.symbolic.operations import BinaryOp, UnaryOp

INTEGERS = [t for t in dtypes.ALL if t.is_int]
FLOATS = [t for t in dtypes.ALL if t.is_float]


def truncdiv(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def power(a: int, b: int) -> int:
    if b >= 0:
        return a**b
    return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)


PYTHON = {
    BinaryOp.ADD: lambda a, b, bits: a + b,
    BinaryOp.SUB: lambda a, b, bits: a - b,
    BinaryOp.MUL: lambda a, b, bits: a * b,
    BinaryOp.FLOORDIV: lambda a, b, bits: a // b if b else 0,
    BinaryOp.MOD: lambda a, b, bits: a % b if b else 0,
    BinaryOp.TRUNCDIV: lambda a, b, bits: truncdiv(a, b),
    BinaryOp.TRUNCMOD: lambda a, b, bits: a - truncdiv(a, b) * b if b else 0,
    BinaryOp.MIN: lambda a, b, bits: min(a, b),
    BinaryOp.MAX: lambda a, b, bits: max(a, b),
    BinaryOp.AND: lambda a, b, bits: a & b,
    BinaryOp.OR: lambda a, b, bits: a | b,
    BinaryOp.XOR: lambda a, b, bits: a ^ b,
    BinaryOp.SHL: lambda a, b, bits: a << b if 0 <= b < bits else 0,
    BinaryOp.SHR: lambda a, b, bits: a >> b if 0 <= b < bits else -1 if a < 0 else 0,
    BinaryOp.LT: lambda a, b, bits: a < b,
    BinaryOp.LE: lambda a, b, bits: a <= b,
    BinaryOp.GT: lambda a, b, bits: a > b,
    BinaryOp.GE: lambda a, b, bits: a >= b,
    BinaryOp.EQ: lambda a, b, bits: a == b,
    BinaryOp.NE: lambda a, b, bits: a != b,
}


def samples(dtype: DType) -> list[int]:
    edges = {0, 1, 2, 3, 5, 7, 8, dtype.bits - 1, dtype.bits, 100, int(dtype.max), int(dtype.max) - 1, int(dtype.min)}
    return sorted(edges | ({-1, -2, -3, -7, -8, int(dtype.min) + 1} if dtype.is_signed else set[int]()))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", PYTHON, ids=lambda op: op.name)
def test_integers_follow_python_and_wrap_around(op: BinaryOp, dtype: DType):
    pairs = [(a, b) for a in samples(dtype) for b in samples(dtype)]
    a, b = (np.array(column, dtype.numpy) for column in zip(*pairs, strict=True))
    found = evaluate_binary(op, a, b, dtype)
    exact = [PYTHON[op](x, y, dtype.bits) for x, y in pairs]
    if found.dtype == np.bool_:
        assert found.tolist() == exact
    else:
        assert found.dtype == dtype.numpy
        assert found.tolist() == [wrap(x, dtype) for x in exact]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_powers(dtype: DType):
    pairs = [(a, b) for a in samples(dtype) for b in samples(dtype) if b <= 100]
    a, b = (np.array(column, dtype.numpy) for column in zip(*pairs, strict=True))
    small = np.array([y > -100 for _, y in pairs])
    found = evaluate_binary(BinaryOp.POW, a, b, dtype)[small]
    assert found.tolist() == [wrap(power(x, y), dtype) for x, y in pairs if y > -100]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_unary(dtype: DType):
    values = samples(dtype)
    a = np.array(values, dtype.numpy)
    assert evaluate_unary(UnaryOp.NEG, a).tolist() == [wrap(-x, dtype) for x in values]
    assert evaluate_unary(UnaryOp.NOT, a).tolist() == [wrap(~x, dtype) for x in values]
    assert evaluate_unary(UnaryOp.ABS, a).tolist() == [wrap(abs(x), dtype) for x in values]


SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.5, 3.5, 0.1, 1e-8, 65504.0, 3e38, -1e30, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_minimum_and_maximum_give_nan_where_an_operand_is_nan(dtype: DType):
    with np.errstate(over="ignore"):
        a = np.array(SPECIAL, np.float64).astype(dtype.numpy)
    for op in (BinaryOp.MIN, BinaryOp.MAX):
        found = evaluate_binary(op, a[:, None], a[None, :], dtype).astype(np.float64)
        nan = np.isnan(a.astype(np.float64))
        assert np.array_equal(np.isnan(found), nan[:, None] | nan[None, :])


@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16], ids=str)
@pytest.mark.parametrize("op", [BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV], ids=lambda op: op.name)
def test_narrow_floats_are_rounded_once(op: BinaryOp, dtype: DType):
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=4000).astype(dtype.numpy) for _ in range(2))
    with np.errstate(divide="ignore"):
        exact = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[op.value](
            a.astype(np.float64), b.astype(np.float64)
        )
    found = evaluate_binary(op, a, b, dtype)
    assert found.dtype == dtype.numpy
    # f32 has more than twice the digits, so rounding to it first changes nothing.
    assert np.array_equal(found, exact.astype(np.float32).astype(dtype.numpy))


def test_float_remainders_have_the_sign_of_the_rule():
    a = np.array([7.5, -7.5, 7.5, -7.5], np.float32)
    b = np.array([2.0, 2.0, -2.0, -2.0], np.float32)
    assert evaluate_binary(BinaryOp.MOD, a, b, dtypes.f32).tolist() == [1.5, 0.5, -0.5, -1.5]
    assert evaluate_binary(BinaryOp.TRUNCMOD, a, b, dtypes.f32).tolist() == [1.5, -1.5, 1.5, -1.5]


ELEMENTARY = {
    UnaryOp.EXP: math.exp,
    UnaryOp.LOG1P: math.log1p,
    UnaryOp.EXPM1: math.expm1,
    UnaryOp.TANH: math.tanh,
    UnaryOp.ERF: math.erf,
    UnaryOp.SIGMOID: lambda x: 1 / (1 + math.exp(-x)),
    UnaryOp.SIN: math.sin,
    UnaryOp.ATAN: math.atan,
    UnaryOp.ASINH: math.asinh,
    UnaryOp.SQRT: math.sqrt,
    UnaryOp.ABS: abs,
    UnaryOp.NEG: lambda x: -x,
    UnaryOp.FLOOR: math.floor,
    UnaryOp.CEIL: math.ceil,
    UnaryOp.TRUNC: math.trunc,
    UnaryOp.ROUND: round,
}


@pytest.mark.parametrize("op", ELEMENTARY, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_elementary_functions_are_rounded_from_the_exact_value(op: UnaryOp, dtype: DType):
    a = np.array([0.0, 0.25, 0.5, 1.5, 2.5, 3.25, 7.0], np.float64).astype(dtype.numpy)
    exact = np.array([ELEMENTARY[op](float(x)) for x in a], np.float64)
    found = evaluate_unary(op, a)
    assert found.dtype == dtype.numpy
    if dtype == dtypes.f64:
        assert np.allclose(found, exact, rtol=1e-15, atol=0)
    else:
        assert np.array_equal(found, exact.astype(np.float32).astype(dtype.numpy))


def test_sigmoid_and_tests_of_floats():
    a = np.array([-1000.0, 1000.0, -0.0, math.inf, -math.inf, math.nan], np.float32)
    found = evaluate_unary(UnaryOp.SIGMOID, a)
    assert found[:5].tolist() == [0.0, 1.0, 0.5, 1.0, 0.0] and np.isnan(found[5])
    assert evaluate_unary(UnaryOp.ISNAN, a).tolist() == [False] * 5 + [True]
    assert evaluate_unary(UnaryOp.ISINF, a).tolist() == [False, False, False, True, True, False]


def test_flush_keeps_signs_and_normal_numbers():
    a = np.array([2.0**-126, 2.0**-127, -(2.0**-149), -0.0, math.inf, 1.5], np.float32)
    found = evaluate_unary(UnaryOp.FLUSH, a)
    assert found.tolist() == [2.0**-126, 0.0, 0.0, 0.0, math.inf, 1.5]
    assert np.signbit(found).tolist() == [False, False, True, True, False, False]
    assert np.isnan(evaluate_unary(UnaryOp.FLUSH, np.array([math.nan], np.float32))[0])


def clamp(x: float, dtype: DType) -> int:
    if math.isnan(x):
        return 0
    if math.isinf(x):
        return int(dtype.max if x > 0 else dtype.min)
    return max(int(dtype.min), min(int(dtype.max), math.trunc(x)))


@pytest.mark.parametrize("source", FLOATS, ids=str)
@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_casts_of_floats_truncate_and_saturate(source: DType, target: DType):
    values = [*SPECIAL, 127.5, 128.0, 255.9, -128.9, -129.0, 2.0**31, 2.0**63, -(2.0**63), 2.0**64, 9.2e18, -0.9]
    with np.errstate(over="ignore"):
        a = np.array(values, np.float64).astype(source.numpy)
    found = evaluate_cast(a, target)
    assert found.dtype == target.numpy
    assert found.tolist() == [clamp(float(x), target) for x in a]


@pytest.mark.parametrize("source", INTEGERS, ids=str)
@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_casts_of_integers_wrap_around(source: DType, target: DType):
    a = np.array(samples(source), source.numpy)
    assert evaluate_cast(a, target).tolist() == [wrap(x, target) for x in samples(source)]


def test_other_casts():
    a = np.array([0.0, -0.0, 0.5, math.nan], np.float32)
    assert evaluate_cast(a, dtypes.boolean).tolist() == [False, False, True, True]
    assert evaluate_cast(np.array([True, False]), dtypes.bf16).tolist() == [1.0, 0.0]
    assert evaluate_cast(np.array([3.14159], np.float32), dtypes.bf16) == np.array([3.140625], ml_dtypes.bfloat16)
    assert evaluate_cast(np.array([70000]), dtypes.f16).tolist() == [math.inf]


@given(st.lists(indices((X, Y, Z)), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_compiled_expressions_agree_with_the_reference(exprs: list[Expr]):
    where = points({X: 5, Y: 4, Z: 3}, {})
    found = compile_exprs(exprs, [X, Y, Z])(where[X], where[Y], where[Z])
    for expr, array in zip(exprs, found, strict=True):
        assert array.shape == where[X].shape
        assert np.all(array == value(expr, where))


def test_a_population_of_values():
    x = Var("x", dtypes.f32)
    small = select(equal(X % 2, 0) & (x > 0.0), x * 2.0, cast(X, dtypes.f32))
    run = compile_exprs([small, maximum(x, 1.0), unary(UnaryOp.NOT, x > 0.0), const(3)], [X, x])
    chosen, largest, negated, three = run(np.arange(4), np.array([0.5, 0.5, -1.0, math.nan], np.float32))
    assert chosen.tolist() == [1.0, 1.0, 2.0, 3.0] and chosen.dtype == np.float32
    assert largest[:3].tolist() == [1.0, 1.0, 1.0] and np.isnan(largest[3])
    assert negated.tolist() == [False, False, True, True]
    assert three.tolist() == [3, 3, 3, 3]


def test_shared_subexpressions_are_computed_once():
    total: Expr = X
    for _ in range(60):
        total = total + total
    assert compile_exprs([total], [X])(np.array([1]))[0].tolist() == [1 << 60]


def test_bad_input():
    class Array(Source):
        name = "A"
        dtype = dtypes.f32
        shape = ()

    with pytest.raises(BadProgram, match="reads A"):
        compile_exprs([Read(Array(), ())], [])
    with pytest.raises(BadProgram, match="j is not among the variables"):
        compile_exprs([X + Y], [X])
    with pytest.raises(TypeError, match="2 arrays are needed"):
        compile_exprs([X + Y], [X, Y])(1)
    with pytest.raises(BadProgram, match="no meaning for bool"):
        evaluate_unary(UnaryOp.NEG, np.array([True]))
    with pytest.raises(BadProgram, match="no meaning for i32"):
        evaluate_binary(BinaryOp.DIV, np.array([1], np.int32), np.array([1], np.int32), dtypes.i32)

"""For the tests of this folder: an independent evaluator (NumPy over all points) and random index expressions."""

import itertools
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tilewright.symbolic.expr import Binary, Const, Expr, Select, Unary, Var, as_expr
from tilewright.symbolic.operations import BinaryOp, UnaryOp

X, Y, Z, N = Var("i"), Var("j"), Var("k"), Var("n")

Values: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.bool_]
Points: TypeAlias = dict[Var, npt.NDArray[np.int64]]


def _floordiv(a: Values, b: Values) -> Values:
    return np.where(b == 0, 0, np.floor(a / np.where(b == 0, 1, b)).astype(np.int64))


_OPS = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.FLOORDIV: _floordiv,
    BinaryOp.MOD: lambda a, b: np.where(b == 0, 0, a - _floordiv(a, b) * b),
    BinaryOp.TRUNCDIV: lambda a, b: np.where(b == 0, 0, np.trunc(a / np.where(b == 0, 1, b)).astype(np.int64)),
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.GT: np.greater,
    BinaryOp.GE: np.greater_equal,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
}


def value(expr: Expr, env: Points) -> Values:
    """``expr`` at all points (small numbers: divisions go by way of floats)."""
    match expr:
        case Const(literal):
            return np.asarray(literal)
        case Var():
            return env[expr]
        case Unary(UnaryOp.NEG, a):
            return -value(a, env)
        case Unary(UnaryOp.NOT, a):
            return ~value(a, env)
        case Unary(UnaryOp.ABS, a):
            return abs(value(a, env))
        case Binary(op, a, b):
            return _OPS[op](value(a, env), value(b, env))
        case Select(condition, a, b):
            return np.where(value(condition, env), value(a, env), value(b, env))
        case _:
            raise AssertionError(expr)


def points(extents: Mapping[Var, int | Expr], dims: Mapping[Var, int]) -> Points:
    """All points: dims from 0 to their bound, loop variables (outermost first) within their extents."""
    found = [dict(zip(dims, sizes, strict=True)) for sizes in itertools.product(*(range(b + 1) for b in dims.values()))]
    for var, extent in extents.items():
        sized = [(env, int(value(as_expr(extent), {v: np.asarray(x) for v, x in env.items()}))) for env in found]
        found = [{**env, var: x} for env, size in sized for x in range(size)]
    return {var: np.array([env[var] for env in found]) for var in (*dims, *extents)}


def indices(variables: tuple[Var, ...], depth: int = 4) -> st.SearchStrategy[Expr]:
    """Random expressions of dtype ``index``, built without the folding of the operators."""
    literals = st.integers(-9, 16).map(as_expr)
    small = st.sampled_from([as_expr(x) for x in (1, 2, 3, 4, 6, 8)])
    leaves = st.one_of(st.sampled_from(variables), st.sampled_from(variables), literals)
    divisors = st.one_of(small, small, small, st.sampled_from(variables), literals)

    def extend(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        sums = st.builds(Binary, st.sampled_from([BinaryOp.ADD, BinaryOp.ADD, BinaryOp.SUB]), inner, inner)
        products = st.builds(Binary, st.just(BinaryOp.MUL), inner, divisors)
        division = st.builds(Binary, st.sampled_from([BinaryOp.FLOORDIV, BinaryOp.MOD]), inner, divisors)
        extremes = st.builds(Binary, st.sampled_from([BinaryOp.MIN, BinaryOp.MAX]), inner, inner)
        choices = st.builds(Select, comparisons(inner), inner, inner)
        others = st.one_of(
            st.builds(Unary, st.sampled_from([UnaryOp.NEG, UnaryOp.ABS]), inner),
            st.builds(Binary, st.just(BinaryOp.TRUNCDIV), inner, divisors),
        )
        return st.one_of(sums, sums, products, division, division, extremes, choices, others)

    return st.recursive(leaves, extend, max_leaves=2 ** (depth - 1))


_COMPARISONS = [BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE, BinaryOp.EQ, BinaryOp.NE]


def comparisons(operands: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(Binary, st.sampled_from(_COMPARISONS), operands, operands)


def conditions(operands: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """Comparisons, joined."""
    return st.recursive(
        comparisons(operands),
        lambda inner: st.one_of(
            st.builds(Binary, st.sampled_from([BinaryOp.AND, BinaryOp.OR]), inner, inner),
            st.builds(Unary, st.just(UnaryOp.NOT), inner),
        ),
        max_leaves=3,
    )

"""Proofs about quasi-affine expressions with a run-time extent, against the integer set library."""

import islpy as isl
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.symbolic.reference import N, X, Y
from tilewright.symbolic import Bounds, Expr, equivalent, prove, simplify
from tilewright.symbolic.expr import Binary, Const, Var, as_expr, maximum, minimum
from tilewright.symbolic.operations import BinaryOp

PLACE = Bounds({X: (N + 7) // 8, Y: 8}, {N: None})
DOMAIN = isl.Set("[n] -> { [i, j] : 0 <= 8i < n + 7 - (n + 7) mod 8 and 0 <= j < 8 and n >= 0 }")
SPACE = isl.LocalSpace.from_space(DOMAIN.get_space())


def function(expr: Expr) -> isl.PwAff:
    """``expr`` in the library's own terms."""
    match expr:
        case Const(value):
            return isl.PwAff.from_aff(isl.Aff.zero_on_domain(SPACE).set_constant_val(isl.Val(int(value))))
        case Var():
            kind = isl.dim_type.param if expr == N else isl.dim_type.set
            return isl.PwAff.from_aff(isl.Aff.var_on_domain(SPACE, kind, 1 if expr == Y else 0))
        case Binary(BinaryOp.FLOORDIV, a, Const(value)):
            return function(a).scale_down_val(isl.Val(int(value))).floor()
        case Binary(BinaryOp.MOD, a, Const(value)):
            return function(a).mod_val(isl.Val(int(value)))
        case Binary(op, a, b):
            x, y = function(a), function(b)
            return {
                BinaryOp.ADD: x.add,
                BinaryOp.SUB: x.sub,
                BinaryOp.MUL: x.mul,
                BinaryOp.MIN: x.min,
                BinaryOp.MAX: x.max,
            }[op](y)
        case _:
            raise AssertionError(expr)


def always_below(a: Expr, b: Expr) -> bool:
    return DOMAIN.is_subset(function(a).lt_set(function(b)))


def always_equal(a: Expr, b: Expr) -> bool:
    return DOMAIN.is_subset(function(a).eq_set(function(b)))


LEAVES = st.one_of(st.sampled_from([X, Y, N, X * 8 + Y]), st.integers(-9, 9).map(as_expr))
FACTORS = st.sampled_from([1, 2, 3, 4, 8]).map(as_expr)
QUASI_AFFINE = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Binary, st.sampled_from([BinaryOp.ADD, BinaryOp.SUB]), inner, inner),
        st.builds(Binary, st.sampled_from([BinaryOp.MUL, BinaryOp.FLOORDIV, BinaryOp.MOD]), inner, FACTORS),
        st.builds(Binary, st.sampled_from([BinaryOp.MIN, BinaryOp.MAX]), inner, inner),
    ),
    max_leaves=5,
)


@given(QUASI_AFFINE)
@settings(max_examples=150, deadline=None)
def test_simplified_expressions_are_equal_on_the_whole_unbounded_domain(expr: Expr):
    assert always_equal(expr, simplify(expr, PLACE))


@given(QUASI_AFFINE, QUASI_AFFINE)
@settings(max_examples=150, deadline=None)
def test_proofs_hold_on_the_whole_unbounded_domain(a: Expr, b: Expr):
    if prove(a < b, PLACE):
        assert always_below(a, b)
    if equivalent(a, b, PLACE):
        assert always_equal(a, b)


PROVABLE = [
    (X * 8, N),
    (minimum(N - X * 8, 8) - 1, as_expr(8)),
    (as_expr(0), minimum(N - X * 8, 8)),
    (X * 8 + minimum(Y, N - X * 8 - 1), N),
    ((X * 8 + Y) // 2, (N + 7) // 8 * 4),
    ((X * 8 + Y) // 16, (N + 15) // 16),
    (maximum(X * 8 + Y - N, 0), as_expr(8)),
    (N % 8 - 8, Y - Y % 8),
]


def test_proofs_that_schedules_need_are_found():
    for a, b in PROVABLE:
        assert always_below(a, b), (a, b)
        assert prove(a < b, PLACE), (a, b)

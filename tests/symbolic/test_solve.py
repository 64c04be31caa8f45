"""Limits of guards, against brute force over all points."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.symbolic.reference import N, X, Y, Z
from tilewright.symbolic import Bounds, Expr
from tilewright.symbolic.expr import Const, as_expr, equal
from tilewright.symbolic.simplify import simplify
from tilewright.symbolic.solve import solve_false_from, solve_lower, solve_upper
from tilewright.symbolic.traversal import substitute

TAIL = X * 8 + Y < N


def number(limit: Expr | None) -> int | None:
    assert limit is None or isinstance(limit, Const)
    return None if limit is None else int(limit.value)


def test_the_tail_of_a_split_loop():
    bounds = Bounds({X: 13, Y: 8})
    guard = X * 8 + Y < 100
    assert number(solve_upper(guard, X, bounds)) == 12
    assert number(solve_false_from(guard, X, bounds)) == 13
    assert solve_lower(guard, X, bounds) is None


def test_limits_are_expressions_over_run_time_extents():
    bounds = Bounds({X: (N + 7) // 8, Y: 8})
    assert str(solve_upper(TAIL, X, bounds)) == "n // 8"
    assert str(solve_false_from(TAIL, X, bounds)) == "(n + 7) // 8"


def test_the_borders_of_a_padded_convolution():
    bounds = Bounds({X: 56, Z: 3})
    assert number(solve_lower(X + Z - 1 >= 0, X, bounds)) == 1
    assert number(solve_upper(X + Z - 1 < 56, X, bounds)) == 55


def test_guards_that_say_nothing_about_the_variable():
    bounds = Bounds({X: 56, Y: 8, Z: 3})
    assert solve_upper(Y < 4, X, bounds) is None
    assert solve_upper(equal(X, Y), X, bounds) is None
    assert number(solve_upper(Y < 8, X, bounds)) == 56
    assert number(solve_lower(Y < 8, X, bounds)) == 0
    assert number(solve_upper(Y < 0, X, bounds)) == 0


LINEAR = st.builds(
    lambda a, b, c, d, less: X * a + Y * b - Z * c < d if less else X * a - Y * b + Z * c >= d,
    st.integers(-5, 5),
    st.integers(-4, 4),
    st.integers(-4, 4),
    st.integers(-30, 60),
    st.booleans(),
)


@given(LINEAR, st.integers(1, 9), st.integers(1, 6), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_limits_of_sums_are_the_best_possible(guard: Expr, size_i: int, size_j: int, size_k: int):
    bounds = Bounds({X: size_i, Y: size_j, Z: size_k})

    def holds(x: int, y: int, z: int) -> bool:
        return simplify(substitute(guard, {X: as_expr(x), Y: as_expr(y), Z: as_expr(z)}), Bounds()) == Const(
            True, guard.dtype
        )

    rows = [[holds(x, y, z) for y in range(size_j) for z in range(size_k)] for x in range(size_i)]
    always, never = [all(row) for row in rows], [not any(row) for row in rows]

    def clip(limit: int | None, otherwise: int) -> int:
        return otherwise if limit is None else max(0, min(limit, size_i))

    upper = clip(number(solve_upper(guard, X, bounds)), 0)
    lower = clip(number(solve_lower(guard, X, bounds)), size_i)
    stop = clip(number(solve_false_from(guard, X, bounds)), size_i)
    assert upper == next((x for x in range(size_i) if not always[x]), size_i)
    assert lower == next((x + 1 for x in reversed(range(size_i)) if not always[x]), 0)
    assert stop == next((x + 1 for x in reversed(range(size_i)) if not never[x]), 0)

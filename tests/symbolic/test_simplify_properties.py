"""Whatever the simplifier does to random expressions, brute force over all points finds the same values."""

import itertools

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.profiles import examples
from tests.symbolic.reference import N, X, Y, Z, comparisons, conditions, indices, points, value
from tilewright.base.dtypes import index
from tilewright.symbolic import Bounds, equivalent, interval, linear_form, prove, simplify
from tilewright.symbolic.expr import FALSE, TRUE, Expr, Var, as_expr

STATIC: dict[Var, int | Expr] = {X: 5, Y: 8, Z: 3}
SYMBOLIC: dict[Var, int | Expr] = {X: N, Y: 4, Z: as_expr(4) - (Y % 3)}
CEILED: dict[Var, int | Expr] = {X: (N + 3) // 4, Y: 4, Z: N}
DIMS: dict[Var, int] = {N: 6}


class Nest:
    """Bounds, and all the points that they stand for."""

    def __init__(self, extents: dict[Var, int | Expr], dims: dict[Var, int | None], sizes: dict[Var, int]) -> None:
        self.bounds = Bounds(extents, dims)
        self.points = points(extents, sizes)
        self.variables = (*extents, *sizes)

    def __repr__(self) -> str:
        return repr(self.bounds)


NESTS = st.sampled_from(
    [
        Nest(STATIC, {}, {}),
        Nest(SYMBOLIC, {N: 6}, DIMS),
        Nest(SYMBOLIC, {}, DIMS),
        Nest(CEILED, {N: None}, DIMS),
    ]
)


def again(expr: Expr, bounds: Bounds) -> Expr:
    """``expr`` simplified with nothing remembered."""
    return simplify(expr, Bounds(bounds.extents, bounds.dims))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Nest, Expr]:
    nest = draw(NESTS)
    return nest, draw(indices(nest.variables))


@st.composite
def condition_cases(draw: st.DrawFn) -> tuple[Nest, Expr]:
    nest = draw(NESTS)
    return nest, draw(conditions(indices(nest.variables, 3)))


@given(cases())
@examples(50, by_night=400)
def test_simplify_keeps_the_value_and_is_idempotent(case: tuple[Nest, Expr]):
    nest, expr = case
    bounds, where = nest.bounds, nest.points
    simple = simplify(expr, bounds)
    assert np.all(value(expr, where) == value(simple, where)), str(simple)
    assert again(simple, bounds) == simple


@given(cases())
@examples(40, by_night=300)
def test_interval_is_sound(case: tuple[Nest, Expr]):
    nest, expr = case
    bounds, where = nest.bounds, nest.points
    lo, hi = interval(expr, bounds)
    found = value(expr, where)
    assert (lo is None or np.all(lo <= found)) and (hi is None or np.all(found <= hi))


@given(cases())
@examples(40, by_night=300)
def test_linear_form_is_the_expression(case: tuple[Nest, Expr]):
    nest, expr = case
    bounds, where = nest.bounds, nest.points
    form = linear_form(expr, bounds)
    total = form.constant + sum(value(atom, where) * factor for atom, factor in form.terms)
    assert np.all(value(expr, where) == total)


@given(condition_cases())
@examples(40, by_night=300)
def test_conditions_keep_their_value(case: tuple[Nest, Expr]):
    nest, condition = case
    bounds, where = nest.bounds, nest.points
    simple = simplify(condition, bounds)
    assert np.all(value(condition, where) == value(simple, where)), str(simple)
    assert prove(condition, bounds) == (simple == TRUE)
    assert again(simple, bounds) == simple


@given(condition_cases(), st.data())
@examples(25, by_night=200)
def test_facts_are_used_soundly(case: tuple[Nest, Expr], data: st.DataObject):
    nest, fact = case
    bounds, where = nest.bounds, nest.points
    expr = data.draw(st.one_of(comparisons(indices(nest.variables, 3)), indices(nest.variables, 3)))
    inside = bounds.assuming(fact)
    simple = simplify(expr, inside)
    lo, hi = interval(expr, inside)
    known = value(fact, where)
    found = value(expr, where)
    assert np.all(~known | (found == value(simple, where))), str(simple)
    if expr.dtype == index:
        assert np.all(~known | ((lo is None or lo <= found) & (hi is None or found <= hi)))


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.permutations([0, 1, 2]), st.data())
@settings(max_examples=100, deadline=None)
def test_fused_indices_are_recovered(a: int, b: int, c: int, order: list[int], data: st.DataObject):
    extents = [a, b, c]
    axes = (X, Y, Z)
    fused = (X * b + Y) * c + Z
    bounds = Bounds({X: a, Y: b, Z: c})
    for digit, axis in ((fused // (b * c), X), (fused // c % b, Y), (fused % c, Z)):
        assert simplify(digit, bounds) == simplify(axis, bounds)
    whole = Var("f")
    digits = [whole // (b * c), whole // c % b, whole % c]
    rebuilt = (digits[0] * b + digits[1]) * c + digits[2]
    assert simplify(rebuilt, Bounds({whole: a * b * c})) == simplify(whole, Bounds({whole: a * b * c}))
    shuffled = data.draw(st.permutations([X * (b * c), Y * c, Z * 1]))
    assert simplify(shuffled[0] + shuffled[1] + shuffled[2], bounds) == simplify(fused, bounds)
    assert len(set(order)) == len(extents) == len(axes)


@given(st.lists(st.tuples(st.integers(-4, 4), st.sampled_from([X, Y, Z, N])), min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_equal_sums_become_the_same_expression(terms: list[tuple[int, Var]], data: st.DataObject):
    bounds = Bounds(SYMBOLIC, DIMS)
    shuffled = data.draw(st.permutations(terms))
    divisor = data.draw(st.sampled_from([1, 2, 4]))

    def total(order: list[tuple[int, Var]]) -> Expr:
        result = as_expr(0)
        for factor, var in order:
            result = result + var * factor
        return result // divisor

    assert simplify(total(terms), bounds) == simplify(total(shuffled), bounds)


@given(cases(), st.data())
@examples(25, by_night=200)
def test_equivalent_is_never_wrong(case: tuple[Nest, Expr], data: st.DataObject):
    nest, expr = case
    bounds, where = nest.bounds, nest.points
    other = data.draw(indices(nest.variables, 3))
    if equivalent(expr, other, bounds):
        assert np.all(value(expr, where) == value(other, where))


@given(st.lists(st.integers(1, 9), min_size=3, max_size=3), st.integers(0, 80), conditions(indices((X, Y, Z), 2)))
@settings(max_examples=60, deadline=None)
def test_linear_guards_are_decided_exactly(extents: list[int], limit: int, fact: Expr):
    """For one sum over a box, proof is complete: it says what brute force says."""
    box = dict(zip((X, Y, Z), extents, strict=True))
    guard = limit > X * 7 + Y * 3 - Z
    truth = [limit > x * 7 + y * 3 - z for x, y, z in itertools.product(*map(range, extents))]
    simple = simplify(guard, Bounds(box))
    assert (simple == TRUE) == all(truth)
    assert (simple == FALSE) == (not any(truth))
    assume(fact not in (TRUE, FALSE))
    assert simplify(guard & fact, Bounds(box)) in (simplify(fact, Bounds(box)), FALSE) or not all(truth)

"""Index expressions as sums: the same number, and digits that stand beside each other joined."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.backend.cpu.offsets import flat_form, linear_form
from tilewright.base.dtypes import f32
from tilewright.loops.ir import Buffer
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.symbolic.expr import Const, Expr, Var, const

X, V = Var("i"), Var("v")


def value(expr: Expr, i: int, v: int) -> int:
    (found,) = compile_exprs([expr], (X, V))(np.array(i), np.array(v))
    return int(found)


@st.composite
def indices(draw: st.DrawFn) -> Expr:
    x = X * draw(st.integers(-9, 9)) + V * draw(st.integers(-3, 3)) + draw(st.integers(-20, 20))
    base = draw(st.integers(1, 15))
    other = draw(st.sampled_from([base, base + 1]))
    step = draw(st.sampled_from([base, 2 * base, 7]))
    return (X + x // base) * step + (x % other) * draw(st.sampled_from([1, 2])) - V


@given(indices(), st.integers(-30, 30), st.integers(-30, 30))
def test_the_sum_is_the_same_number(expr: Expr, i: int, v: int) -> None:
    form = linear_form(expr)
    total = form.constant + sum(factor * value(atom, i, v) for atom, factor in form.terms)
    assert total == value(expr, i, v)


def test_digits_beside_each_other_are_the_number() -> None:
    x = X * 8 + V
    buffer = Buffer("b", f32, tuple(map(const, (5, 196, 14, 14))))
    form = flat_form(buffer, (const(0), const(3), X * 4 + x // 14, x % 14))
    assert dict(form.terms) == {X: 64, V: 1}
    assert form.constant == 3 * 196
    assert all(isinstance(extent, Const) for extent in buffer.shape)


def test_digits_of_three_dimensions() -> None:
    x = X * 64 + V
    form = linear_form((x // 35) * 35 + ((x // 7) % 5) * 7 + x % 7)
    assert dict(form.terms) in ({X: 64, V: 1}, {(x // 35): 35, ((x // 7) % 5): 7, (x % 7): 1})


def test_other_digits_stay() -> None:
    x = X * 8 + V
    assert len(linear_form((x // 14) * 14 + x % 7).terms) == 2
    assert len(linear_form((x // 14) * 13 + x % 14).terms) == 2
    assert len(linear_form((x // 14) * 14 + (x + 1) % 14).terms) == 2

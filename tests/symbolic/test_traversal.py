"""What expressions know of themselves, and rewrites, against a plain walk."""

from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.dtypes import f32, index
from tilewright.loops.ir import Buffer
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Binary, Const, Expr, Read, Var, const, maximum, select
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import reads_in, substitute, transform, transform_reads, walk

X, Y, Z = Var("x"), Var("y"), Var("z")
TABLE = Buffer("table", index, (const(16),))
OTHER = Buffer("other", index, (const(16),))


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> Expr:
    if depth == 0:
        return draw(st.sampled_from((X, Y, Z, const(0), const(3))))
    a, b = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    made = (a + b, a * b, a // 4, maximum(a, b), select(a < b, a, b), Read(TABLE, (a,)), Read(OTHER, (b,)))
    return draw(st.sampled_from(made))


@given(expressions())
def test_variables_and_reads_are_those_of_a_walk(expr: Expr) -> None:
    nodes = list(walk(expr))
    assert expr.variables == {node for node in nodes if isinstance(node, Var)}
    assert list(reads_in(expr)) == [node for node in nodes if isinstance(node, Read)]
    assert expr.has_reads == any(isinstance(node, Read) for node in nodes)


@given(expressions())
def test_rewrites_that_skip_parts_equal_those_that_see_all(expr: Expr) -> None:
    values = {X: Y + 1, Y: const(2)}

    def renamed(node: Expr) -> Expr | None:
        return values.get(node) if isinstance(node, Var) else None

    def moved(node: Expr) -> Expr | None:
        return Read(OTHER, node.indices) if isinstance(node, Read) and node.source == TABLE else None

    assert substitute(expr, values) == transform(expr, renamed)
    assert transform_reads(expr, moved) == transform(expr, moved)


def test_what_a_rewrite_leaves_alone_stays_the_same_object() -> None:
    left, right = X * 8 + 1, Read(TABLE, (Y,)) + 1
    whole = left + right
    assert substitute(whole, {Z: const(0)}) is whole
    changed = substitute(whole, {Y: const(0)})
    assert isinstance(changed, Binary) and changed.a is left
    assert transform_reads(left, lambda node: const(0)) is left


def test_literals_differ_by_dtype_and_by_sign_of_zero() -> None:
    assert Const(0.0, f32) != Const(-0.0, f32)
    assert Const(float("nan"), f32) == Const(float("nan"), f32)
    assert const(1) != const(1, f32)


def test_bounds_inside_a_loop_are_shared_and_right() -> None:
    outside = Bounds({X: 4})
    assert outside.extended({Y: 8}) is outside.extended({Y: 8})
    assert outside.extended({Y: 8}) != outside.extended({Y: 9})
    assert outside.extended({X: 2}).high(X) == 1
    assert outside.extended({Y: Z}, {Z: 5}).high(Y) == 4
    assert Bounds({X: 4}, facts=(Binary(BinaryOp.LT, X, const(3)),)).extended({Y: 8}).high(X) == 2

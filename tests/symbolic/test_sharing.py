"""The sizes of expressions as trees; of shared and of deep ones, too."""

from tilewright.symbolic.expr import Expr, Select, Var, equal, select
from tilewright.symbolic.sharing import Size, size_of

X, Y = Var("x"), Var("y")


def test_leaves_and_operations_are_counted() -> None:
    assert size_of(X) == Size(1, 1)
    assert size_of(X * Y + X) == Size(5, 3)
    assert size_of(select(equal(X, Y), X, Y + 1)) == Size(8, 3)
    assert size_of(X, X * Y) == Size(4, 2)
    assert size_of() == Size(0, 0)


def test_what_is_shared_counts_each_time() -> None:
    value: Expr = X
    for _ in range(100):
        value = value + value
    assert size_of(value) == Size((1 << 101) - 1, 101)
    assert not size_of(value).is_allowed
    assert len(str(value)) < 200


def test_depth_takes_no_recursion() -> None:
    value: Expr = X
    for _ in range(100_000):
        value = Select(equal(X, Y), value, Y)
    assert size_of(value).depth == 100_002

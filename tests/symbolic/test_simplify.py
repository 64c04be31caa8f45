"""What comes out, written down."""

import pytest

from tilewright.base import dtypes
from tilewright.symbolic import Bounds, Expr, Var, equivalent, linear_form, prove, simplify
from tilewright.symbolic.expr import (
    FALSE,
    Binary,
    Const,
    Read,
    Source,
    as_expr,
    cast,
    const,
    equal,
    maximum,
    minimum,
    not_equal,
    select,
    unary,
)
from tilewright.symbolic.operations import BinaryOp, UnaryOp

i, j, k, m, n, x, y = (Var(name) for name in "ijkmnxy")
STATIC = Bounds({i: 100, j: 8, k: 4, x: 1000, y: 1000})
SYMBOLIC = Bounds({i: m, j: n})
CEILED = Bounds({i: (n + 7) // 8, j: 8}, {n: None})
DIMS = Bounds({}, {m: None, n: None})


class Array(Source):
    def __init__(self, name: str, dtype: dtypes.DType) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = (as_expr(64), as_expr(64))

    def __getitem__(self, indices: tuple[Expr | int, ...]) -> Read:
        return Read(self, tuple(as_expr(index) for index in indices))


LONG, INT, FLOAT = Array("L", dtypes.i64), Array("I", dtypes.i32), Array("F", dtypes.f32)

CANONICAL = [
    # Digits.
    ((i * 8 + j) // 8, STATIC, "i"),
    ((i * 8 + j) % 8, STATIC, "j"),
    (x // 8 * 8 + x % 8, STATIC, "x"),
    (x // 4 // 2, STATIC, "x // 8"),
    (x % 8 % 4, STATIC, "x % 4"),
    ((x * 6 + y) // 3, STATIC, "x * 2 + y // 3"),
    ((x * 6 + 4) % 3, STATIC, "1"),
    ((i * 4 + k) // 8, STATIC, "i // 2"),
    ((i * 4 + k) % 8, STATIC, "i % 2 * 4 + k"),
    (x % 32 // 8, STATIC, "x // 8 % 4"),
    (x // 8 % 4 * 8 + x % 8, STATIC, "x % 32"),
    (x // 32 * 32 + x // 8 % 4 * 8 + x % 8, STATIC, "x"),
    (x - x // 8 * 8, STATIC, "x % 8"),
    (x - x % 8, STATIC, "x // 8 * 8"),
    (x + x * -1 % 8, STATIC, "(x + 7) // 8 * 8"),
    (x + x % 2, STATIC, "(x + 1) // 2 * 2"),
    (x - x % 2, STATIC, "x // 2 * 2"),
    (x + x % 3, STATIC, "x + x % 3"),
    ((n // 4 + n // 4 % 2) // 2, DIMS, "(n + 4) // 8"),
    (n // 4 + n // 4 * -1 % 7, DIMS, "(n + 24) // 28 * 7"),
    ((n // 4 * -1 % 7 + n // 4) // 7 * 7 - n // 4 * -1 % 7, DIMS, "n // 4"),
    ((x * 3 + 7) // 1, STATIC, "x * 3 + 7"),
    (x // 1000, STATIC, "0"),
    ((x - 1) // 8, STATIC, "(x + 7) // 8 - 1"),
    ((8 - x) // 8, STATIC, "1 - (x + 7) // 8"),
    ((x + 3) // -4, STATIC, "(x + 2) // 4 * -1 - 1"),
    ((x % 8 + y) % 4, STATIC, "(x + y) % 4"),
    # Symbols.
    ((i * n + j) // n, SYMBOLIC, "i"),
    ((i * n + j) % n, SYMBOLIC, "j"),
    ((i * n + n - 1 - j) // n, SYMBOLIC, "i"),
    (j // n, SYMBOLIC, "0"),
    ((j - n) // n, SYMBOLIC, "-1"),
    (x // (n * 8) * 8 + x // n % 8, Bounds({x: n * 64}), "x // n"),
    ((i * m * n + j * m + k) // m % n, Bounds({i: n, j: n, k: m}), "j"),
    ((i * n * 4 + j) // (n * 8), Bounds({i: m, j: n * 4}), "i // 2"),
    ((n - 1) // 8 + 1, DIMS, "(n + 7) // 8"),
    (i * (n + 1) + j, SYMBOLIC, "i * n + i + j"),
    ((i * (n + 1) + j) // (n + 1), Bounds({i: m, j: n + 1}), "i"),
    (i * n * m + m * j - n * i * m, SYMBOLIC, "j * m"),
    (x // 0 + x % 0, STATIC, "0"),
    # Loops that run once.
    (i * 8 + j, Bounds({i: 1, j: 8}), "j"),
    # Minimum and maximum.
    (minimum(x, 2000), STATIC, "x"),
    (minimum(i * 8, j * 8) // 8, STATIC, "min(i, j)"),
    (minimum(n - i * 8, 8) + i * 8, CEILED, "i * 8 + min(n - i * 8, 8)"),
    (maximum(minimum(x, 5), 7), STATIC, "7"),
    (minimum(minimum(x, y), minimum(y, x)), STATIC, "min(x, y)"),
    (maximum(x + 1, y + 1), STATIC, "max(x, y) + 1"),
    (minimum(minimum(x, y) * 2 + 1, i), STATIC, "min(min(i, x * 2 + 1), y * 2 + 1)"),
    # Conditions.
    (i * 8 + j < 800, STATIC, "True"),
    (i * 8 + j < 796, STATIC, "i * 8 + j < 796"),
    (i * 8 + j < 96, STATIC, "i < 12"),
    (x * 8 < 100, STATIC, "x < 13"),
    (as_expr(3) <= x, STATIC, "x >= 3"),
    (x - y > -3, STATIC, "y < x + 3"),
    (x - y > 3, STATIC, "y + 3 < x"),
    (~(x < 5), STATIC, "x >= 5"),
    (~((x < 5) | (y >= 7)), STATIC, "(x >= 5) & (y < 7)"),
    ((x < 5) & (x < 10), STATIC, "x < 5"),
    ((x < 5) & (x > 10), STATIC, "False"),
    ((x < 5) | (x < 1000), STATIC, "True"),
    (equal(i * 8 + 4, y * 4), STATIC, "i * 2 == y - 1"),
    (equal(x * 2, 7), STATIC, "False"),
    (not_equal(x, 1000), STATIC, "True"),
    (equal((x * 8 + 4) % 4, 0), STATIC, "True"),
    (equal((i * n + j) % n, j), SYMBOLIC, "True"),
    # Guards inform their sides.
    (select(x < 5, minimum(x, 5), minimum(x, 5)), STATIC, "min(x, 5)"),
    (select(x < 5, minimum(x, 5), 7), STATIC, "select(x < 5, x, 7)"),
    (select(x < 5, select(x < 9, x, 3), y), STATIC, "select(x < 5, x, y)"),
    # Other integer operations.
    ((x << 3) >> 1, STATIC, "x * 4"),
    (unary(UnaryOp.ABS, x - 1000), STATIC, "1000 - x"),
    (Binary(BinaryOp.TRUNCDIV, x + 8, as_expr(8)), STATIC, "x // 8 + 1"),
    (cast(cast(x, dtypes.i32), dtypes.index) + 1, STATIC, "x + 1"),
    (cast(cast(x, dtypes.i8), dtypes.index), STATIC, "i64(i8(x))"),
]


@pytest.mark.parametrize(("expr", "bounds", "text"), CANONICAL, ids=lambda value: str(value))
def test_canonical_form(expr: Expr, bounds: Bounds, text: str):
    simple = simplify(expr, bounds)
    assert str(simple).replace("(", "").replace(")", "") == text.replace("(", "").replace(")", "")
    assert simplify(simple, bounds) == simple


def test_what_does_not_change_is_returned_as_it_was():
    expr = FLOAT[i, j] * 2.0 + FLOAT[j, i]
    assert simplify(expr, STATIC) is expr


PROVEN = [
    (i * 8 + j < n * 8, STATIC.extended({i: n})),
    (i * n + j < m * n, SYMBOLIC),
    ((i * n + j) // n < m, SYMBOLIC),
    (x // n < m, Bounds({x: n * m})),
    (x % n < n, Bounds({x: m, y: n})),
    (x % n <= x, Bounds({x: m, y: n})),
    (minimum(n - i * 8, 8) + i * 8 <= n, CEILED),
    (minimum(n - i * 8, 8) > 0, CEILED),
    ((n + 7) // 8 * 8 >= n, DIMS),
    ((n + 7) // 8 * 8 < n + 8, DIMS),
    (n // 8 * 8 <= n, DIMS),
    ((i * m + j) * 4 + k < n * m * 4, Bounds({i: n, j: m, k: 4})),
    (x // (m * 4) < n, Bounds({x: n * m * 4})),
    (n * m >= n, SYMBOLIC),
    (maximum(minimum(x, m - 1), 0) < m, SYMBOLIC.extended({x: 7})),
    (equal(minimum(x, y) + maximum(x, y) - maximum(y, x), minimum(y, x)), STATIC),
    (select(x < n, x, 0) < n, Bounds({x: 100, y: n})),
    (i * 8 + j < 100, STATIC.assuming(i * 8 + j < 100)),
    (i < 13, STATIC.assuming(i * 8 + j < 100)),
    ((i * 8 + j) * n + k < n * 100, Bounds({i: 13, j: 8, k: n}).assuming(i * 8 + j < 100)),
    (x + y < n + m, Bounds({x: 100, y: 100}).assuming(x < n, y < m)),
    (n <= 64, Bounds({}, {n: 64})),
    (i < 64, Bounds({i: n}, {n: 64})),
    (j <= i + 8, Bounds({i: n, j: i + 1})),
    (i * 4 + k < minimum(n, 8) * 4, Bounds({i: minimum(n, 8), k: 4})),
    (m <= n, Bounds({}, {n: None, m: None}).assuming(equal(m, n // 2))),
    (cast(INT[i, j], dtypes.index) * 8 + j <= (1 << 34) + 7, STATIC),
    (maximum(minimum(LONG[i, j], 63), 0) * 8 + j < 512, STATIC),
]


@pytest.mark.parametrize(("condition", "bounds"), PROVEN, ids=lambda value: str(value))
def test_proven(condition: Expr, bounds: Bounds):
    assert prove(condition, bounds)


NOT_PROVEN = [
    (i * 8 + j < n * 8 - 1, STATIC.extended({i: n})),
    (x < n, DIMS),
    (i < n, SYMBOLIC),
    (n > 0, DIMS),
    (i * 8 + j < 99, STATIC.assuming(i * 8 + j < 100)),
    (n // 8 * 8 >= n, DIMS),
    # i64 data may wrap around.
    (LONG[i, j] + 1 > LONG[i, j], STATIC),
    (LONG[i, j] * 2 // 2 <= 1 << 62, STATIC),
    (maximum(LONG[i, j] + 1, 0) >= LONG[i, j] + 1, STATIC),
]


@pytest.mark.parametrize(("condition", "bounds"), NOT_PROVEN, ids=lambda value: str(value))
def test_not_proven(condition: Expr, bounds: Bounds):
    assert not prove(condition, bounds)


def test_data_may_wrap_around():
    a = LONG[i, j]
    for expr in ((a * 8 + j) // 8, (a + 1) % 2, (a * 4) // 4):
        assert simplify(expr, STATIC) == expr
    assert str(simplify(a + 1 - a, STATIC)) == "1"
    clamped = minimum(maximum(a, 0), 63)
    assert simplify((clamped * 8 + j) // 8, STATIC) == simplify(clamped, STATIC)


def test_narrow_integers_only_fold_literals():
    a = INT[i, j]
    for expr in (a + 1 - 1, (a * 8) // 8, a - a, minimum(a, a + 1)):
        assert simplify(expr, STATIC) == expr
    wrapped = Binary(BinaryOp.ADD, const(2**31 - 1, dtypes.i32), const(1, dtypes.i32))
    assert simplify(wrapped, STATIC) == Const(-(2**31), dtypes.i32)


def test_floats_keep_their_shape_and_indices_are_simplified():
    value = (FLOAT[(i * 8 + j) // 8, j] + 1.0) - 1.0
    assert str(simplify(value, STATIC)) == "F[i, j] + f32(1.0) - f32(1.0)"
    nan_aware = ~(FLOAT[i, j] < 0.0)
    assert simplify(nan_aware, STATIC) == nan_aware


def test_guarded_reads_stay_guarded():
    guarded = (i - 3 >= 0) & (FLOAT[i - 3, j] > 0.0)
    assert str(simplify(guarded, STATIC)) == "(i >= 3) & (F[i - 3, j] > f32(0.0))"
    padded = select(i < 64, FLOAT[minimum(i, 63), j], 0.0)
    assert str(simplify(padded, STATIC)) == "select(i < 64, F[i, j], f32(0.0))"


def test_equivalent():
    assert equivalent((i * 8 + j) * 4 + k, j * 4 + k + i * 32, STATIC)
    assert equivalent(maximum(x, y), -minimum(-x, -y), STATIC)
    assert equivalent(select(x < y, x, y), minimum(x, y), STATIC)
    assert not equivalent(x // 8, (x + 7) // 8, STATIC)
    assert not equivalent(cast(x, dtypes.i32), x, STATIC)


def test_linear_form():
    form = linear_form((i * 8 + j) // 8 * 4 + x // 3 * 2 - i * n + 5, STATIC)
    assert form.constant == 5
    assert {str(atom): factor for atom, factor in form.terms} == {"i": 4, "x // 3": 2, "i * n": -1}
    assert form.coefficient(i) == 4
    assert form.coefficient(y) == 0


def test_bounds_are_values():
    assert Bounds({i: 8}) == Bounds({i: as_expr(8)})
    assert hash(Bounds({i: n}, {n: 4})) == hash(Bounds({i: n}, {n: 4}))
    assert Bounds({i: 8}).extended({j: 4}) == Bounds({i: 8, j: 4})
    assert Bounds({i: 8}).assuming(i < 4, i < 4) != Bounds({i: 8})
    assert repr(Bounds({i: n}, {n: 4}).assuming(i < 3)) == "Bounds(0 <= i < n, 0 <= n <= 4, i < 3)"
    assert simplify(i < 3, Bounds({i: n}).assuming(i >= 3)) == FALSE

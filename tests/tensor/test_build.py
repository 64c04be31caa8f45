from collections.abc import Callable

import pytest

from tilewright.base.dtypes import bf16, f16, f32, f64, i32, index, u8
from tilewright.base.errors import BadProgram
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const, Expr, Var, const
from tilewright.tensor import build as te
from tilewright.tensor import functions as fn
from tilewright.tensor.ir import Compute, Reduction, Scan, Tensor
from tilewright.tensor.scan import recurrent_operations, scan

A = te.placeholder((8, 4), name="A")
N = te.var("n")


def op(tensor: Tensor) -> Compute:
    assert isinstance(tensor.op, Compute)
    return tensor.op


def test_axes_are_called_as_the_parameters() -> None:
    b = te.compute((8, 4), lambda row, column: A[row, column] * 2.0, name="B")
    assert [axis.name for axis in op(b).axes] == ["row", "column"]
    assert (b.dtype, b.shape, str(op(b).bodies[0])) == (f32, (const(8), const(4)), "A[row, column] * f32(2.0)")
    starred = te.compute((8, 4), lambda *index: A[index])
    assert [axis.name for axis in op(starred).axes] == ["i0", "i1"]


def test_axes_do_not_take_the_name_of_an_extent() -> None:
    b = te.compute((N, 4), lambda n, i: n * N + i, name="B")
    assert str(op(b).bodies[0]) == "n_1 * n + i"
    columns = te.reduce_axis((0, 4), name="k")
    c = te.compute((8,), lambda k: te.sum(A[k, columns], axis=columns))
    assert [axis.name for axis in op(c).axes] == ["k_1"]


def test_shapes_are_ints_and_expressions() -> None:
    x = te.placeholder((N, N + 1, 3))
    assert [str(extent) for extent in x.shape] == ["n", "n + 1", "3"]
    assert te.placeholder(()).ndim == 0
    assert str(te.compute((), lambda: A[0, 0])[()]) == "_[]"


def test_reduction() -> None:
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute((8,), lambda i: te.sum(A[i, k], axis=k, where=k < 3), name="C")
    (reduction,) = [op(c).reduction]
    assert isinstance(reduction, Reduction) and op(c).reduce_axis == (k,)
    assert (str(reduction.sources[0]), str(reduction.condition)) == ("A[i, k]", "k < 3")
    assert k.kind is IterKind.REDUCE


def test_reduction_axes_without_a_name_differ() -> None:
    a, b = te.reduce_axis((0, 4)), te.reduce_axis((0, 4))
    assert a != b
    te.compute((), lambda: te.sum(A[a, b], axis=(a, b)))


def test_identities() -> None:
    def identity(reduction: Reduction) -> Expr:
        return reduction.reducer.identities[0]

    k = te.reduce_axis((0, 4), name="k")
    for dtype in (f32, bf16, i32, u8):
        x = te.placeholder((4,), dtype)
        assert identity(te.sum(x[k], axis=k)) == const(0, dtype)
        assert identity(te.prod(x[k], axis=k)) == const(1, dtype)
        assert identity(te.max(x[k], axis=k)) == Const(dtype.min, dtype)
        assert identity(te.min(x[k], axis=k)) == Const(dtype.max, dtype)


def test_tuples_give_several_outputs() -> None:
    low, high = te.compute((8,), lambda i: (A[i, 0], A[i, 1].astype(f64)), name=("low", "high"))
    assert (low.op, low.output, high.output, high.dtype) == (high.op, 0, 1, f64)
    assert (low.name, high.name) == ("low", "high")
    k = te.reduce_axis((0, 4), name="k")
    position, value = te.compute((8,), lambda i: te.argmax((k.var, A[i, k]), axis=k), name="best")
    assert (position.dtype, value.dtype) == (index, f32)
    assert (position.name, value.name) == ("best_0", "best_1")


def test_own_reducer() -> None:
    k = te.reduce_axis((0, 4), name="k")
    exclusive_or = te.comm_reducer(lambda x, y: x ^ y, lambda dtype: 0, name="xor")
    x = te.placeholder((4,), i32, "x")
    reduction = op(te.compute((), lambda: exclusive_or(x[k], axis=k))).reduction
    assert reduction is not None and str(reduction.reducer.results[0]) == "x@ ^ y@"
    with pytest.raises(BadProgram, match="combine may use its two arguments only"):
        te.comm_reducer(lambda a, b: a + b + x[0], lambda dtype: 0)(x[k], axis=k)
    with pytest.raises(BadProgram, match=r"combine gives .* of i64 for a value of i32"):
        te.comm_reducer(lambda a, b: a.astype(index), lambda dtype: 0)(x[k], axis=k)
    with pytest.raises(BadProgram, match="2 values are reduced, but combine gives 1"):
        te.comm_reducer(lambda a, b: a[0], lambda s, t: (0, 0))((x[k], x[k]), axis=k)


K = te.reduce_axis((0, 4), name="k")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: te.compute((8,), lambda i, j: A[i, j]), r"_ has 1 dimensions, but its body takes 2 axes: \(i, j\)"),
        (lambda: te.compute((8,), lambda i: A[i]), "A has 2 dimensions, but is read with 1 indices"),
        (lambda: te.compute((8,), lambda i: A[A[i, 0], 0]), "index 0 of A is f32"),
        (lambda: te.compute((8,), lambda i: A[i, K]), "B?`k` is no axis, .* must be listed in `axis=`"),
        (lambda: te.compute((8,), lambda i: te.sum(A[i, K], axis=K) * 2.0), "split into two computes"),
        (lambda: te.compute((8,), lambda i: A[i, 0] + te.max(A[i, K], axis=K)), "split into two computes"),
        (lambda: te.compute((8,), lambda i: fn.exp(te.sum(A[i, K], axis=K))), "split into two computes"),
        (lambda: te.compute((8,), lambda i: (te.sum(A[i, K], axis=K), A[i, 0])), "split into two computes"),
        (lambda: te.compute((8,), lambda i: A[i, 0] + i), r"`A\[i@, 0\] \+ i@` mixes f32 and i64"),
        (lambda: te.compute((8,), lambda i: 0.5), r"give it a dtype: te.const\(0.5, dtype\)"),
        (lambda: te.compute((-1,), lambda i: A[i, 0], name="B"), "dimension 0 of B is -1; extents are not negative"),
        (lambda: te.compute((8,), lambda i: (A[i, 0], A[i, 1]), name=("a",)), "2 outputs have 1 names"),
        (lambda: te.placeholder((te.const(2.0, f32),), name="B"), r"dimension 0 of B is f32\(2.0\)"),
        (lambda: te.reduce_axis((1, 4)), "add the offset in the body"),
        (lambda: te.reduce_axis((0, -4), name="k"), "reduction axis k is -4"),
        (lambda: te.var("2n"), "can't name a run-time extent"),
        (lambda: te.sum(A[0, K], axis=op(te.compute((4,), lambda i: A[0, i])).axis), "axis i is spatial"),
        (lambda: te.sum(A[K, K], axis=(K, K)), "an axis is listed twice"),
        (lambda: te.sum(A[0, K], axis=K, where=A[0, K]), "`where` is f32, not bool"),
        (lambda: te.sum(A[0, K] > 0.0, axis=K), r"`\+` has no meaning for bool"),
        (lambda: te.compute((8,), lambda i: A[i, 0] if i < 4 else A[i, 1]), "use te.select"),
    ],
)
def test_mistakes_are_explained(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(BadProgram, match=message):
        build()


def test_extents_of_ancestors_may_be_used() -> None:
    x = te.placeholder((8, N), f16, "x")
    k = te.reduce_axis((0, N), name="k")
    total = te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name="total")
    mean = te.compute((8,), lambda i: total[i] / N.astype(f16), name="mean")
    assert str(op(mean).bodies[0]) == "total[i] / f16(n)"
    with pytest.raises(BadProgram, match="`n` is no axis"):
        te.compute((8,), lambda i: A[i, 0] / N.astype(f32))


STATE = te.placeholder((8, 4), name="S")
START = te.compute((1, 4), lambda t, i: A[t, i], name="start")


def test_scan() -> None:
    def body(t: Expr, i: Expr) -> Expr:
        return STATE[t - 1, i] + A[t, i]

    update = te.compute((8, 4), body, name="next")
    total = scan(START, update, STATE, name="total")
    assert isinstance(total.op, Scan) and total.shape == STATE.shape
    assert recurrent_operations(total.op) == [update.op]


def bad_scan(update: Tensor, start: Tensor = START, state: Tensor = STATE) -> None:
    scan(start, update, state, name="s")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: bad_scan(te.compute((8, 4), lambda t, i: STATE[t, i] * 2.0)), "reads the state at row t, not below t"),
        (lambda: bad_scan(te.compute((8, 3), lambda t, i: STATE[t - 1, i])), "shapes must be"),
        (lambda: bad_scan(te.compute((8, 4), lambda t, i: i)), "differ in dtype"),
        (lambda: bad_scan(STATE, te.compute((9, 4), lambda t, i: A[0, i])), "init has 9 rows of 8"),
        (lambda: bad_scan(STATE, te.compute((N, 4), lambda t, i: A[0, i])), "init has n rows of 8"),
        (lambda: bad_scan(A, START, START), "is no placeholder"),
        (lambda: scan([START], [A, A], [STATE]), "1 inits, 2 updates and 1 states"),
        (lambda: scan([START, START], [A, A], [STATE, STATE]), "a state is listed twice"),
        (lambda: bad_scan(two_steps(lambda x, t, i: x[i, t])), "first axis of flipped must be time"),
        (lambda: bad_scan(two_steps(lambda x, t, i: x[7 - t, i], (8, 4))), "within a step only row t is there"),
    ],
)
def test_scans_that_can_not_be(build: object, message: str) -> None:
    assert callable(build)
    with pytest.raises(BadProgram, match=message):
        build()


def two_steps(read: object, shape: tuple[int, int] = (4, 8)) -> Tensor:
    assert callable(read)
    is_flipped = shape == (4, 8)
    inner = te.compute(
        shape,
        lambda a, b: STATE[b - 1, a] if is_flipped else STATE[a - 1, b],
        name="flipped" if is_flipped else "inner",
    )
    return te.compute((8, 4), lambda t, i: read(inner, t, i), name="outer")


def test_functions_cover_all_unary_operations() -> None:
    assert str(fn.sigmoid(A[0, 0])) == "sigmoid(A[0, 0])"
    assert str(fn.power(A[0, 0], 2.0)) == "pow(A[0, 0], f32(2.0))"
    with pytest.raises(BadProgram, match="`exp` has no meaning for i64"):
        fn.exp(Var("i"))


def nested(levels: int) -> Callable[[Expr], Expr]:
    def body(i: Expr) -> Expr:
        value = A[i, 0]
        for _ in range(levels):
            value = fn.sin(value)
        return value

    return body


def shared(levels: int) -> Callable[[Expr], Expr]:
    def body(i: Expr) -> Expr:
        value = A[i, 0]
        for _ in range(levels):
            value = value + value
        return value

    return body


@pytest.mark.parametrize(
    "body", [nested(1000), nested(100_000), shared(60), lambda i: A[shared(60)(i).astype(index), 0]]
)
def test_bodies_that_are_too_large_are_refused(body: Callable[[Expr], Expr]) -> None:
    """Passes see expressions as trees, and walk them recursively."""
    with pytest.raises(BadProgram, match=r"the body of B is .* make parts of it a te\.compute of their own"):
        te.compute((8,), lambda i: body(i), name="B")
    with pytest.raises(BadProgram, match="the body of B"):
        k = te.reduce_axis((0, 8), name="k")
        te.compute((), lambda: te.sum(body(k.var), axis=k), name="B")


def test_bodies_of_some_depth_are_not() -> None:
    assert len(str(te.compute((8,), nested(100), name="B").op.bodies[0])) < 1000


def test_extents_that_are_too_large_are_refused() -> None:
    extent = N
    for _ in range(40):
        extent = extent * extent
    with pytest.raises(BadProgram, match="dimension 0 of _ is"):
        te.placeholder((extent,))


def test_errors_do_not_write_out_what_is_shared() -> None:
    huge = shared(60)(const(0))
    with pytest.raises(BadProgram, match=r"<an expression of \d+ operations and operands, up to 62 inside each other>"):
        huge + const(1, u8)

"""The evaluator against NumPy, and against a point-by-point evaluation."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tilewright.base import dtypes
from tilewright.base.errors import BadFeed, BadProgram, OutOfBounds, Unsupported
from tilewright.symbolic.expr import Expr, const
from tilewright.symbolic.traversal import all_of
from tilewright.tensor import array_reduction
from tilewright.tensor import build as te
from tilewright.tensor import evaluate as evaluation
from tilewright.tensor.evaluate import evaluate
from tilewright.tensor.ir import Extern, Opaque, Tensor
from tilewright.tensor.scan import scan

Array = NDArray[np.generic]
random = np.random.default_rng(5)


def one(tensor: Tensor, feeds: Mapping[Tensor, Array]) -> Array:
    (result,) = evaluate([tensor], feeds)
    return result


def normal(*shape: int) -> NDArray[np.float32]:
    return random.standard_normal(shape).astype(np.float32)


@pytest.fixture(params=["whole", "chunks"], autouse=True)
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything also in chunks of very few elements."""
    if request.param == "chunks":
        monkeypatch.setattr(evaluation, "CHUNK", 7)
        monkeypatch.setattr(evaluation, "OPERAND", 13)


A = te.placeholder((4, 5), name="A")
B = te.placeholder((5, 6), name="B")


def test_elementwise() -> None:
    a = normal(4, 5)
    c = te.compute((4, 5), lambda i, j: A[i, j] * A[3 - i, j] + 1.0)
    np.testing.assert_array_equal(one(c, {A: a}), a * a[::-1] + np.float32(1))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda i, j: A[j, i], lambda a: a[:4, :4].T),
        (lambda i, j: A[i, j + 1], lambda a: a[:4, 1:5]),
        (lambda i, j: A[3 - i, (j * 2) % 5], lambda a: a[::-1][:, [0, 2, 4, 1]]),
        (lambda i, j: A[i, i], lambda a: np.broadcast_to(np.diag(a[:, :4])[:, None], (4, 4))),
        (lambda i, j: A[2, j], lambda a: np.broadcast_to(a[2, :4], (4, 4))),
        (lambda i, j: A[(i + j) // 2, j], lambda a: a[(np.arange(4)[:, None] + np.arange(4)) // 2, np.arange(4)]),
        (
            lambda i, j: A[i, (i + j) % 5],
            lambda a: a[np.arange(4)[:, None], (np.arange(4)[:, None] + np.arange(4)) % 5],
        ),
    ],
)
def test_reads(body: object, expected: object) -> None:
    a = normal(4, 5)
    np.testing.assert_array_equal(one(te.compute((4, 4), body), {A: a}), expected(a))


def test_gather_rows() -> None:
    ids = te.placeholder((2, 3), dtypes.i64, "ids")
    rows = te.compute((2, 3, 5), lambda i, j, k: A[ids[i, j], k])
    mixed = te.compute((2, 3, 5), lambda i, j, k: A[(ids[i, j] + k) % 4, k])
    a, at = normal(4, 5), np.array([[3, 0, 1], [2, 2, 3]])
    np.testing.assert_array_equal(one(rows, {A: a, ids: at}), a[at])
    k = np.arange(5)
    np.testing.assert_array_equal(one(mixed, {A: a, ids: at}), a[(at[..., None] + k) % 4, k])


def test_guards_are_lazy_and_bounds_are_checked() -> None:
    a = normal(4, 5)
    padded = te.compute(
        (6, 7), lambda i, j: te.select(all_of(i >= 1, i < 5, j >= 1, j < 6), A[i - 1, j - 1], const(0.0, dtypes.f32))
    )
    np.testing.assert_array_equal(one(padded, {A: a}), np.pad(a, 1))
    chained = te.compute((4,), lambda i: (i < 3) & (A[i + 1, 0] > 0.0))
    np.testing.assert_array_equal(one(chained, {A: a}), [*(a[1:, 0] > 0), False])
    with pytest.raises(OutOfBounds, match="index 4 of dimension 0"):
        one(te.compute((5,), lambda i: A[i, 0]), {A: a})
    with pytest.raises(OutOfBounds):
        one(te.compute((4,), lambda i: te.select(i < 3, A[i + 2, 0], A[i, 0])), {A: a})


def test_matrix_products() -> None:
    k = te.reduce_axis((0, 5), "k")
    a, b = normal(4, 5), normal(5, 6)
    product = te.compute((4, 6), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k))
    np.testing.assert_allclose(one(product, {A: a, B: b}), a @ b, rtol=1e-5, atol=1e-6)
    trace = te.compute((), lambda: te.sum(A[k % 4, k] * B[k, k % 6], axis=k))
    np.testing.assert_allclose(one(trace, {A: a, B: b}), sum(a[x % 4, x] * b[x, x % 6] for x in range(5)), rtol=1e-5)
    outer = te.compute((4, 6), lambda i, j: te.sum(A[i, k] * B[0, j], axis=k))
    np.testing.assert_allclose(one(outer, {A: a, B: b}), np.outer(a.sum(1), b[0]), rtol=1e-5, atol=1e-6)


def test_convolution() -> None:
    x, w = te.placeholder((2, 3, 7, 8), name="x"), te.placeholder((4, 3, 3, 2), name="w")
    c, r, s = (te.reduce_axis((0, extent), name) for extent, name in ((3, "c"), (3, "r"), (2, "s")))
    y = te.compute((2, 4, 3, 7), lambda n, o, i, j: te.sum(x[n, c, i * 2 + r, j + s] * w[o, c, r, s], axis=(c, r, s)))
    data, kernel = normal(2, 3, 7, 8), normal(4, 3, 3, 2)
    expected = np.zeros((2, 4, 3, 7))
    for i in range(3):
        for j in range(7):
            window = data[:, :, 2 * i : 2 * i + 3, j : j + 2]
            expected[:, :, i, j] = np.einsum("ncrs,ocrs->no", window, kernel)
    np.testing.assert_allclose(one(y, {x: data, w: kernel}), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.i8, dtypes.u32, dtypes.f16, dtypes.bf16])
def test_reductions(name: str, dtype: dtypes.DType) -> None:
    x = te.placeholder((3, 9), dtype, "x")
    k = te.reduce_axis((0, 9), "k")
    reduced = te.compute((3,), lambda i: getattr(te, name)(x[i, k], axis=k, where=k < 8))
    data = random.integers(0, 5, (3, 9)).astype(dtype.numpy)
    expected = getattr(np, name)(data[:, :8].astype(np.float64), axis=1)
    wrapped = expected.astype(np.int64).astype(dtype.numpy) if dtype.is_int else expected
    np.testing.assert_allclose(one(reduced, {x: data}).astype(np.float64), wrapped.astype(np.float64), rtol=0.05)


def test_a_reduction_over_nothing_is_the_identity() -> None:
    x, y = te.placeholder((3, 0), name="x"), te.placeholder((0, 2), name="y")
    k = te.reduce_axis((0, 0), "k")
    feeds = {x: normal(3, 0), y: normal(0, 2)}
    assert one(te.compute((3,), lambda i: te.max(x[i, k], axis=k)), feeds).tolist() == [-np.inf] * 3
    assert one(te.compute((3, 2), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k)), feeds).tolist() == [[0, 0]] * 3


def test_argmax_of_ties_and_nan() -> None:
    k = te.reduce_axis((0, 5), "k")
    index, value = te.compute((4,), lambda i: te.argmax((k, A[i, k]), axis=k))
    a = np.array([[0, 3, 3, 1, 2], [5, 5, 5, 5, 5], [1, np.nan, 9, np.nan, 2], [-1, -2, -np.inf, -1, -3]], np.float32)
    assert one(index, {A: a}).tolist() == [1, 0, 1, 0]
    np.testing.assert_array_equal(one(value, {A: a}), [3, 5, np.nan, -1])


def test_scans() -> None:
    steps = te.placeholder((6, 3), name="steps")
    state = te.placeholder((6, 3), name="state")
    init = te.compute((1, 3), lambda _, j: steps[0, j])
    update = te.compute((6, 3), lambda t, j: state[t - 1, j] + steps[t, j])
    data = normal(6, 3)
    np.testing.assert_allclose(one(scan(init, update, state), {steps: data}), np.cumsum(data, axis=0), rtol=1e-5)


def test_scan_of_several_states_and_stages() -> None:
    """Fibonacci numbers scaled by a row sum, with an operation between state and update."""
    x = te.placeholder((7, 2), name="x")
    a, b = te.placeholder((7, 2), name="a"), te.placeholder((7, 2), name="b")
    k = te.reduce_axis((0, 2), "k")
    total = te.compute((7,), lambda t: te.sum(a[t - 1, k] * x[t, k], axis=k))
    next_a = te.compute((7, 2), lambda t, j: b[t - 1, j] + total[t])
    next_b = te.compute((7, 2), lambda t, j: a[t - 2, j] - x[t, j])
    init = te.compute((2, 2), lambda t, j: x[t, j])
    first, second = scan([init, init], [next_a, next_b], [a, b])
    data = normal(7, 2)
    p, q = data.copy(), data.copy()
    for t in range(2, 7):
        p[t] = q[t - 1] + (p[t - 1] * data[t]).sum()
        q[t] = p[t - 2] - data[t]
    np.testing.assert_allclose(one(first, {x: data}), p, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one(second, {x: data}), q, rtol=1e-4, atol=1e-5)


def test_run_time_extents_are_found_in_the_feeds() -> None:
    n = te.var("n")
    x = te.placeholder((n, 3), name="x")
    y = te.compute((n + 1, 3), lambda i, j: te.select(i < n, x[i, j] * n.astype(dtypes.f32), const(1.0, dtypes.f32)))
    data = normal(4, 3)
    np.testing.assert_array_equal(one(y, {x: data}), np.concatenate([data * 4, np.ones((1, 3))]))


def test_what_does_not_fit_is_refused() -> None:
    b = te.compute((4,), lambda i: A[i, 0])
    with pytest.raises(BadFeed, match="no value is given for the input A"):
        evaluate([b], {})
    with pytest.raises(BadFeed, match="float64"):
        evaluate([b], {A: np.zeros((4, 5))})
    with pytest.raises(BadFeed, match="5 is 5"):
        evaluate([b], {A: np.zeros((4, 6), np.float32)})
    with pytest.raises(BadProgram, match="variable n"):
        evaluate([te.compute((te.var("n"),), lambda i: i)], {})
    extern = Extern("sort", (A,), ("S",), ((const(4), const(5)),), (dtypes.f32,), Opaque())
    sort = Tensor(extern, 0, "S", dtypes.f32, A.shape)
    with pytest.raises(Unsupported, match="sort has a body in loop IR"):
        evaluate([sort], {A: normal(4, 5)})
    a = normal(4, 5)
    (result,) = evaluate([sort], {A: a}, extern=lambda _, arrays: [np.sort(arrays[0])])
    np.testing.assert_array_equal(result, np.sort(a))


def test_an_intermediate_tensor_may_be_fed() -> None:
    b = te.compute((4,), lambda i: A[i, 0])
    c = te.compute((4,), lambda i: b[i] + b[i])
    assert one(c, {b: np.ones(4, np.float32)}).tolist() == [2] * 4


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_random_index_arithmetic(data: st.DataObject) -> None:
    """Against one evaluation per point, in Python integers."""
    x = te.placeholder((5, 6), dtypes.i64, "x")
    array = np.arange(30).reshape(5, 6) * 7 - 50

    def index(i: Expr, j: Expr, extent: int) -> tuple[Expr, str]:
        a, b, c = (data.draw(st.integers(-3, 3)) for _ in range(3))
        d = data.draw(st.integers(1, 3))
        return (i * a + j * b + c) // d % extent, f"(i * {a} + j * {b} + {c}) // {d} % {extent}"

    texts: list[str] = []

    def body(i: Expr, j: Expr) -> Expr:
        pairs = [index(i, j, extent) for extent in (5, 6)]
        texts.extend(text for _, text in pairs)
        return x[pairs[0][0], pairs[1][0]]

    (result,) = evaluate([te.compute((3, 4), body)], {x: array})
    row, column = texts
    expected = [
        [array[eval(row, {"i": i, "j": j}), eval(column, {"i": i, "j": j})] for j in range(4)] for i in range(3)
    ]
    np.testing.assert_array_equal(result, expected)


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=40))
@settings(max_examples=40, deadline=None)
def test_own_reducers_combine_in_order(values: list[int]) -> None:
    """First element wins: associative, not commutative, so that the order of neighbours shows."""
    x = te.placeholder((len(values),), dtypes.i64, "x")
    k = te.reduce_axis((0, len(values)), "k")
    nothing = -1000
    first = te.comm_reducer(lambda a, b: te.select(a > nothing, a, b), lambda dtype: const(nothing, dtype), "first")
    (result,) = evaluate([te.compute((), lambda: first(x[k], axis=k))], {x: np.array(values)})
    assert result == values[0]
    assert array_reduction.factors(te.compute((), lambda: te.sum(x[k], axis=k)).op.reduction) is None

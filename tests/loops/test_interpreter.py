import ml_dtypes
import numpy as np
import pytest

from tests.loops import workloads
from tilewright.base.dtypes import bf16, f16, f32, i8
from tilewright.base.errors import BadFeed, BadProgram, OutOfBounds
from tilewright.loops.dissolve import dissolve
from tilewright.loops.interpreter import Order, interpret
from tilewright.loops.lower import lower
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Intrinsic, Program
from tilewright.loops.verify import verify
from tilewright.symbolic.expr import maximum
from tilewright.tensor import build as te

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def run(program: Program, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs; and the program verifies, and gives the same without blocks and in other orders."""
    verify(program)
    result = interpret(program, arrays)
    without_blocks = Program(program.name, program.params, dissolve(program.body), program.dims, program.outputs)
    for other, order in ((without_blocks, Order.ASCENDING), (program, Order.REVERSED), (program, Order.SHUFFLED)):
        for name, value in interpret(other, arrays, order=order).items():
            np.testing.assert_array_equal(value, result[name])
    return result


@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 1), (0, 3, 2), (3, 2, 0)])
def test_matmul(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = normal(m, k), normal(k, n)
    np.testing.assert_allclose(run(lower(workloads.matmul(m, n, k)), A=a, B=b)["C"], a @ b, rtol=1e-5, atol=1e-6)


def test_matmul_of_run_time_extents() -> None:
    program = lower(workloads.matmul(te.var("m"), 4, te.var("k")), dims={"m": 8})
    assert [(dim.var.name, dim.bound) for dim in program.dims] == [("m", 8), ("k", None)]
    for m, k in ((0, 3), (5, 1), (3, 0)):
        a, b = normal(m, k), normal(k, 4)
        np.testing.assert_allclose(run(program, A=a, B=b)["C"], a @ b, rtol=1e-5, atol=1e-6)
    with pytest.raises(BadFeed, match="m is 9"):
        interpret(program, {"A": normal(9, 2), "B": normal(2, 4)})
    with pytest.raises(BadFeed, match="k is 2, but B says 3"):
        interpret(program, {"A": normal(2, 2), "B": normal(3, 4)})


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (1, 1), (5, 2)])
def test_padded_convolution(kernel: int, stride: int) -> None:
    x, w = normal(2, 5, 5), normal(3, 2, kernel, kernel)
    pad = kernel // 2
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))[:, ::stride, ::stride]
    expected = np.maximum(np.einsum("cyxij,fcij->fyx", windows, w), 0)
    program = lower(workloads.conv2d_padded(5, 2, 3, kernel, stride))
    np.testing.assert_allclose(run(program, X=x, W=w)["relu"], expected, rtol=1e-4, atol=1e-5)


def test_argmax_takes_the_lowest_index_and_nan_first() -> None:
    a = np.array([[1, 3, 3, 2], [-np.inf] * 4, [0, np.nan, 5, np.nan]], np.float32)
    result = run(lower(workloads.argmax(3, 4)), A=a)
    np.testing.assert_array_equal(result["position"], np.argmax(a, 1))
    np.testing.assert_array_equal(result["value"], [3, -np.inf, np.nan])


def test_welford() -> None:
    a = normal(3, 7)
    result = run(lower(workloads.welford(3, 7)), A=a)
    np.testing.assert_allclose(result["mean"], a.mean(1), rtol=1e-5)
    np.testing.assert_allclose(result["m2"] / result["count"], a.var(1), rtol=1e-4)


def test_simultaneous_stores_read_the_old_values() -> None:
    text = """
program swap(A: f32[1], B: f32[1]) -> (C: f32[1], D: f32[1]):
  C[0] = A[0]
  D[0] = B[0]
  C[0], D[0] = D[0], C[0]
"""
    result = interpret(parse_program(text), {"A": np.float32([1]), "B": np.float32([2])})
    assert (result["C"], result["D"]) == (2, 1)


def test_prefix_sum() -> None:
    x = normal(6, 3)
    np.testing.assert_allclose(run(lower(workloads.cumsum(6, 3)), X=x)["total"], np.cumsum(x, 0), rtol=1e-5)
    np.testing.assert_array_equal(run(lower(workloads.cumsum(1, 3)), X=x[:1])["total"], x[:1])


def test_lstm() -> None:
    steps, hidden = 4, 3
    x, w = normal(steps, 4, hidden), normal(4, hidden, hidden)
    h, c = np.zeros((steps, hidden)), np.zeros((steps, hidden))
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    for t in range(1, steps):
        gates = x[t] + np.einsum("k,gki->gi", h[t - 1], w)
        c[t] = sigmoid(gates[0]) * np.tanh(gates[1]) + sigmoid(gates[2]) * c[t - 1]
        h[t] = sigmoid(gates[3]) * np.tanh(c[t])
    result = run(lower(workloads.lstm(steps, hidden)), X=x, W=w)
    np.testing.assert_allclose(result["lstm_0"], h, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result["lstm_1"], c, rtol=1e-4, atol=1e-5)


def test_extern_sort() -> None:
    x = RANDOM.integers(-9, 9, 6).astype(np.int32)
    np.testing.assert_array_equal(run(lower(workloads.insertion_sort(6)), X=x)["sorted"], np.sort(x))


def test_where_and_identities() -> None:
    a = te.placeholder((4,), name="A")
    k, none = te.reduce_axis((0, 4)), te.reduce_axis((0, 0))
    positive = te.compute((), lambda: te.sum(a[k], axis=k, where=a[k] > 0.0), name="positive")
    highest = te.compute((), lambda: te.max(a[none + 7], axis=none), name="highest")
    product = te.compute((), lambda: te.prod(a[k], axis=(k, none)), name="product")
    # Out of range where the condition fails: it is not read.
    shifted = te.compute((), lambda: te.sum(a[k + 2], axis=k, where=k + 2 < 4), name="shifted")
    array = np.float32([1, -2, 3, -4])
    result = run(lower([positive, highest, product, shifted]), A=array)
    assert [float(result[name]) for name in ("positive", "highest", "product", "shifted")] == [4, -np.inf, 1, -1]


@pytest.mark.parametrize(("dtype", "numpy"), [(f16, np.float16), (bf16, ml_dtypes.bfloat16)])
def test_narrow_floats_round_after_each_operation(dtype: te.DType, numpy: type) -> None:
    x, y = te.placeholder((8,), dtype, "x"), te.placeholder((8,), dtype, "y")
    z = te.compute((8,), lambda i: x[i] * y[i] + x[i] / maximum(y[i], 1.0), name="z")
    a, b = normal(8).astype(numpy), normal(8).astype(numpy)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    quotient = (wide_a / np.maximum(wide_b, 1)).astype(numpy).astype(np.float32)
    expected = ((wide_a * wide_b).astype(numpy).astype(np.float32) + quotient).astype(numpy)
    np.testing.assert_array_equal(run(lower(z), x=a, y=b)["z"], expected)


def test_small_integers_wrap() -> None:
    x = te.placeholder((3,), i8, "x")
    y = te.compute((3,), lambda i: x[i] * 3, name="y")
    array = np.int8([100, -100, 5])
    np.testing.assert_array_equal(run(lower(y), x=array)["y"], array * np.int8(3))


def refused(text: str, message: str, error: type[Exception] = BadProgram, **arrays: np.ndarray) -> None:
    with pytest.raises(error, match=message):
        interpret(parse_program(text), arrays)


def test_out_of_bounds_names_block_buffer_and_index() -> None:
    a = te.placeholder((4,), name="A")
    program = lower(te.compute((4,), lambda i: a[(i * 3 + 1) % 5], name="B"))
    with pytest.raises(OutOfBounds, match=r"block B: A\[4\] is read, outside of its shape \[4\]"):
        interpret(program, {"A": normal(4)})


def test_reads_of_elements_never_written() -> None:
    refused(
        """
program f() -> (C: f32[2]):
  alloc T: f32[2]
  T[0] = f32(1.0)
  for i in range(2):
    C[i] = T[i]
""",
        r"reads T\[1\], which was never written",
    )


def test_outputs_are_complete() -> None:
    refused("program f() -> (C: f32[2]):\n  C[0] = f32(1.0)", r"nothing writes the output element C\[1\]")


def test_points_are_executed_once() -> None:
    text = """
program f() -> (C: i64[4]):
  for i in range(4):
    for j in range(2):
      block C(v = i // 2 + j: spatial 4) where i + j < 9:
        writes C[v]
        C[v] = v
"""
    refused(text, "block C: point v = 0 is executed twice")
    refused(text.replace("i // 2 + j", "i + j"), "block C: point v = 1 is executed twice")
    refused(text.replace("i // 2 + j", "i + j * 4"), "axis v is 4, but its extent is 4")


REDUCTION = """
program f(A: f32[4]) -> (C: f32[1]):
  for k in range(4):
    block C(vk = {binding}: reduce 4) where {predicate}:
      reads A[vk], C[0]
      writes C[0]
      init:
        C[0] = f32(0.0)
      C[0] = C[0] + A[vk]
"""


def test_reductions_start_at_zero_and_are_complete() -> None:
    a = normal(4)
    refused(REDUCTION.format(binding="3 - k", predicate="True"), "reduction starts at vk = 3", A=a)
    refused(REDUCTION.format(binding="k", predicate="k < 3"), "3 of 4 reduction points", A=a)
    good = parse_program(REDUCTION.format(binding="k", predicate="True"))
    np.testing.assert_allclose(interpret(good, {"A": a})["C"], a.sum(), rtol=1e-5)


def test_points_may_be_computed_again_for_another_buffer() -> None:
    text = """
program f(A: f32[4]) -> (C: f32[3]):
  for i in range(3):
    alloc T: f32[4]
    for j in range(2):
      block T(v = i + j: spatial 4):
        reads A[v]
        writes T[v]
        T[v] = A[v]
    block C(w = i: spatial 3):
      reads T[w +: 2]
      writes C[w]
      C[w] = T[w] + T[w + 1]
"""
    a = normal(4)
    program = parse_program(text)
    np.testing.assert_allclose(run(program, A=a)["C"], a[:-1] + a[1:], rtol=1e-6)


def test_accesses_stay_in_the_declared_regions() -> None:
    text = """
program f(A: f32[4]) -> (C: f32[2]):
  for i in range(2):
    block C(v = i: spatial 2):
      reads A[v]
      writes C[v]
      C[v] = A[v * 2]
"""
    refused(text, r"block C: A\[2\] is read, outside of the declared regions", A=normal(4))


def test_ordered_axes_ascend() -> None:
    text = """
program f() -> (C: i64[3]):
  for t in range(3):
    block C(v = 2 - t: ordered 3):
      writes C[v]
      C[v] = v
"""
    refused(text, "ordered axes must ascend")


def test_other_orders_show_races() -> None:
    text = """
program f(A: f32[3]) -> (C: f32[3]):
  C[0] = A[0]
  for i in parallel(2):
    C[i + 1] = C[i] + A[i + 1]
"""
    program = parse_program(text)
    interpret(program, {"A": normal(3)})
    with pytest.raises(BadProgram, match="never written"):
        interpret(program, {"A": normal(3)}, order=Order.REVERSED)


def test_intrinsic_runs_its_description_on_regions() -> None:
    description = parse_program(
        """
program dot4(a: f32[4], b: f32[4]) -> (c: f32[1]):
  for k in range(4):
    block dot(vk = k: reduce 4):
      reads a[vk], b[vk], c[0]
      writes c[0]
      c[0] = c[0] + a[vk] * b[vk]
"""
    )
    text = """
program f(A: f32[3, 8], B: f32[8]) -> (C: f32[3]):
  for i in range(3):
    C[i] = f32(0.0)
    for k in range(2):
      intrinsic dot4(A[i, k * 4 +: 4], B[k * 4 +: 4], C[i])
"""
    program = parse_program(text, [Intrinsic("dot4", description)])
    verify(program)
    a, b = normal(3, 8), normal(8)
    np.testing.assert_allclose(interpret(program, {"A": a, "B": b})["C"], a @ b, rtol=1e-4, atol=1e-5)


def test_kernels_are_called_by_name() -> None:
    kernel = lower(workloads.matmul(te.var("m"), 3, 3), name="matmul")
    main = parse_program(
        """
program main[m](A: f32[m, 3], B: f32[3, 3]) -> (C: f32[m, 3]):
  alloc T: f32[m, 3]
  kernel matmul(A, B, T)
  kernel matmul(T, B, C)
"""
    )
    a, b = normal(2, 3), normal(3, 3)
    result = interpret(main, {"A": a, "B": b}, programs={"matmul": kernel})
    np.testing.assert_allclose(result["C"], a @ b @ b, rtol=1e-4, atol=1e-5)
    with pytest.raises(BadProgram, match="matmul is called, but is not in programs="):
        interpret(main, {"A": a, "B": b})


def test_feeds_are_checked() -> None:
    program = lower(workloads.matmul(2, 2, 2))
    with pytest.raises(BadFeed, match="no array is given for B"):
        interpret(program, {"A": normal(2, 2)})
    with pytest.raises(BadFeed, match="can't be float64"):
        interpret(program, {"A": normal(2, 2).astype(np.float64), "B": normal(2, 2)})
    with pytest.raises(BadFeed, match="has no parameter D"):
        interpret(program, {"A": normal(2, 2), "B": normal(2, 2), "D": normal(1)})


def test_f32_is_the_default_dtype() -> None:
    assert te.placeholder((1,)).dtype == f32


def test_an_axis_without_points_is_not_initialized() -> None:
    text = """
program f[n](A: f32[n, 4]) -> (C: f32[n]):
  for k in range(4):
    for i in range(n):
      block C(vi = 0: spatial n, vk = k: reduce 4):
        reads C[vi], A[vi, vk]
        writes C[vi]
        init:
          C[vi] = f32(0.0)
        C[vi] = C[vi] + A[vi, vk]
"""
    program = parse_program(text)
    without_blocks = Program("f", program.params, dissolve(program.body), program.dims)
    for rows in (0, 1):
        a = normal(rows, 4)
        for each in (program, without_blocks):
            np.testing.assert_allclose(interpret(each, {"A": a})["C"], a.sum(1), rtol=1e-4, atol=1e-5)


def test_indices_wrap_around() -> None:
    largest = 2**63 - 1
    sums = te.compute((3,), lambda i: i + largest, name="sums")
    assert run(lower([sums]))["sums"].tolist() == [largest, -largest - 1, -largest]

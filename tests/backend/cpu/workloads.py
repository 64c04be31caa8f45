"""The programs that random schedules rewrite: small, and each with something that compilers get wrong.

Floats are fed with small whole numbers, so that sums of products are exact in any order; where a program divides or
takes ``exp``, it carries a tolerance.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tilewright.base import dtypes
from tilewright.base.dtypes import DType, f16, f32, f64, i8, i32, u8
from tilewright.loops.extern import extern, for_range, store
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Buffer, Stmt
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.symbolic.expr import Expr, ExprLike, const, maximum, select
from tilewright.tensor import build as te
from tilewright.tensor.functions import exp, sigmoid, sqrt, tanh
from tilewright.tensor.ir import Tensor
from tilewright.tensor.scan import scan

Array = NDArray[np.generic]
Outputs = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class Workload:
    """A program to schedule; ``tolerance`` is relative to the largest value of an output, 0 for equal bits."""

    name: str
    build: Callable[[], Outputs]
    tolerance: float = 0.0

    @property
    def program(self) -> Program:
        return _lowered(self)

    @property
    def feeds(self) -> dict[str, Array]:
        return _fed(self)

    @property
    def expected(self) -> dict[str, Array]:
        return _interpreted(self)


@cache
def _lowered(workload: Workload) -> Program:
    return lower(workload.build(), workload.name)


@cache
def _fed(workload: Workload) -> dict[str, Array]:
    generator = np.random.default_rng(7)
    return {p.name: _values(generator, p) for p in _lowered(workload).inputs}


@cache
def _interpreted(workload: Workload) -> dict[str, Array]:
    return interpret(workload.program, workload.feeds)


def _values(generator: np.random.Generator, buffer: Buffer) -> Array:
    shape = tuple(int(str(extent)) for extent in buffer.shape)
    low, high = (0, 2) if buffer.dtype.is_bool else (0, 5) if not buffer.dtype.is_signed else (-4, 5)
    return generator.integers(low, high, shape).astype(buffer.dtype.numpy)


# Contractions --------------------------------------------------------------------------------------------------------


def _matmul(m: int, k: int, n: int, dtype: DType = f32) -> Callable[[], Tensor]:
    def build() -> Tensor:
        a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
        return _product(a, b, "C")

    return build


def _product(a: Tensor, b: Tensor, name: str) -> Tensor:
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name)


def _dense() -> Tensor:
    """Matmul, bias, ReLU."""
    a, b = te.placeholder((7, 5), name="A"), te.placeholder((5, 11), name="B")
    bias = te.placeholder((11,), name="bias")
    product = _product(a, b, "C")
    biased = te.compute((7, 11), lambda i, j: product[i, j] + bias[j], "biased")
    return te.compute((7, 11), lambda i, j: maximum(biased[i, j], 0.0), "relu")


def _batched_transposed() -> Tensor:
    """``sum_k A[b, k, i] * B[b, j, k]``: strided in both."""
    a, b = te.placeholder((2, 5, 4), name="A"), te.placeholder((2, 7, 5), name="B")
    k = te.reduce_axis((0, 5), "k")
    return te.compute((2, 4, 7), lambda n, i, j: te.sum(a[n, k, i] * b[n, j, k], axis=k), "C")


def _dot_i8() -> Tensor:
    a, b = te.placeholder((6, 8), u8, "A"), te.placeholder((5, 8), i8, "B")
    k = te.reduce_axis((0, 8), "k")
    return te.compute((6, 5), lambda i, j: te.sum(a[i, k].astype(i32) * b[j, k].astype(i32), axis=k), "C")


def _tiled_matmul() -> Tensor:
    """Extents that small tiles divide, for intrinsics; an elementwise operation after it."""
    a, b = te.placeholder((8, 4), name="A"), te.placeholder((4, 8), name="B")
    product = _product(a, b, "C")
    return te.compute((8, 8), lambda i, j: product[i, j] * 2.0, "D")


def _chained_matmuls() -> Tensor:
    a, b, c = (te.placeholder((5, 5), name=name) for name in "ABE")
    return _product(_product(a, b, "C"), c, "F")


# Windows -------------------------------------------------------------------------------------------------------------


def _padded(x: Tensor, height: int, width: int) -> Tensor:
    """One row and column of zeros around the two last dimensions."""

    def value(c: Expr, h: Expr, w: Expr) -> Expr:
        inside = (h >= 1) & (h < height + 1) & (w >= 1) & (w < width + 1)
        return select(inside, x[c, h - 1, w - 1], 0.0)

    return te.compute((x.shape[0], height + 2, width + 2), value, "P")


def _conv2d() -> Tensor:
    x, w = te.placeholder((2, 5, 6), name="X"), te.placeholder((3, 2, 3, 3), name="W")
    p = _padded(x, 5, 6)
    c, r, s = te.reduce_axis((0, 2), "c"), te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    return te.compute((3, 5, 6), lambda o, h, v: te.sum(p[c, h + r, v + s] * w[o, c, r, s], axis=(c, r, s)), "Y")


def _strided_depthwise() -> Tensor:
    x, w = te.placeholder((3, 5, 7), name="X"), te.placeholder((3, 3, 3), name="W")
    p = _padded(x, 5, 7)
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    y = te.compute((3, 3, 4), lambda c, h, v: te.sum(p[c, h * 2 + r, v * 2 + s] * w[c, r, s], axis=(r, s)), "Y")
    return te.compute((3, 3, 4), lambda c, h, v: maximum(y[c, h, v], 0.0), "Z")


def _conv1d() -> Tensor:
    x, w = te.placeholder((13,), name="X"), te.placeholder((4,), name="W")
    p = te.compute((16,), lambda i: select((i >= 2) & (i < 15), x[i - 2], 0.0), "P")
    r = te.reduce_axis((0, 4), "r")
    return te.compute((13,), lambda i: te.sum(p[i + r] * w[r], axis=r), "Y")


def _max_pool() -> Tensor:
    x = te.placeholder((2, 11), name="X")
    r = te.reduce_axis((0, 3), "r")
    return te.compute((2, 5), lambda c, i: te.max(x[c, i * 2 + r], axis=r), "Y")


# Other reductions ----------------------------------------------------------------------------------------------------


def _argmax() -> tuple[Tensor, ...]:
    x = te.placeholder((5, 13), name="X")
    k = te.reduce_axis((0, 13), "k")
    return te.compute((5,), lambda i: te.argmax((k.var, x[i, k]), axis=k), ("index", "value"))


def _welford() -> tuple[Tensor, ...]:
    x = te.placeholder((3, 11), f64, "X")
    k = te.reduce_axis((0, 11), "k")
    one, zero = const(1.0, f64), const(0.0, f64)

    def combine(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[ExprLike, ...]:
        count, delta = a[0] + b[0], b[1] - a[1]
        share = select(count > 0.0, b[0] / maximum(count, 1.0), 0.0)
        return count, a[1] + delta * share, a[2] + b[2] + delta * delta * a[0] * share

    welford = te.comm_reducer(combine, lambda *_: (0, 0, 0), name="welford")
    return te.compute((3,), lambda i: welford((one, x[i, k], zero), axis=k), ("count", "mean", "m2"))


def _guarded_sum() -> Tensor:
    """A triangle: the condition depends on both kinds of axes."""
    x = te.placeholder((9, 9), i32, "X")
    k = te.reduce_axis((0, 9), "k")
    return te.compute((9,), lambda i: te.sum(x[i, k], axis=k, where=k <= i), "S")


def _any_row() -> Tensor:
    """Booleans, and a minimum over them as integers."""
    x, y = te.placeholder((7, 5), i32, "X"), te.placeholder((7, 5), dtypes.boolean, "Y")
    both = te.compute((7, 5), lambda i, j: (x[i, j] > 0) & ~y[i, j], "both")
    k = te.reduce_axis((0, 5), "k")
    return te.compute((7,), lambda i: te.max(both[i, k].astype(i32), axis=k), "any")


def _softmax() -> Tensor:
    x = te.placeholder((3, 7), name="X")
    k, m = te.reduce_axis((0, 7), "k"), te.reduce_axis((0, 7), "l")
    top = te.compute((3,), lambda i: te.max(x[i, k], axis=k), "top")
    raised = te.compute((3, 7), lambda i, j: exp(x[i, j] - top[i]), "raised")
    total = te.compute((3,), lambda i: te.sum(raised[i, m], axis=m), "total")
    return te.compute((3, 7), lambda i, j: raised[i, j] / total[i], "Y")


def _layer_norm() -> tuple[Tensor, ...]:
    """Two outputs; both reductions over what an elementwise block makes."""
    x = te.placeholder((4, 6), name="X")
    k, m = te.reduce_axis((0, 6), "k"), te.reduce_axis((0, 6), "l")
    mean = te.compute((4,), lambda i: te.sum(x[i, k] * 0.125, axis=k), "mean")
    centred = te.compute((4, 6), lambda i, j: x[i, j] - mean[i], "centred")
    square = te.compute((4,), lambda i: te.sum(centred[i, m] * centred[i, m], axis=m), "square")
    return te.compute((4, 6), lambda i, j: centred[i, j] / sqrt(square[i] + 1.0), "Y"), square


# Recurrences ---------------------------------------------------------------------------------------------------------


def _cumsum() -> Tensor:
    x, state = te.placeholder((7, 5), i32, "X"), te.placeholder((7, 5), i32, "S")
    init = te.compute((1, 5), lambda _t, i: x[0, i], "init")
    update = te.compute((7, 5), lambda t, i: state[t - 1, i] + x[t, i], "update")
    doubled = scan(init, update, state, "total")
    return te.compute((7, 5), lambda t, i: doubled[t, i] * 2, "Y")


def _recurrent_cell() -> Tensor:
    """A cell whose state goes through a matrix, as an LSTM's does."""
    x, u = te.placeholder((4, 3), name="X"), te.placeholder((3, 3), name="U")
    state = te.placeholder((4, 3), name="H")
    init = te.compute((1, 3), lambda _t, i: tanh(x[0, i]), "init")
    k = te.reduce_axis((0, 3), "k")
    gates = te.compute((4, 3), lambda t, i: te.sum(state[t - 1, k] * u[k, i], axis=k), "gates")
    update = te.compute((4, 3), lambda t, i: sigmoid(gates[t, i] + x[t, i]), "update")
    return scan(init, update, state, "hidden")


def _gated_cell() -> Tensor:
    """A cell whose product is followed by a step of its own, so that this one may join the product's tiles."""
    x, u = te.placeholder((5, 2, 6), name="X"), te.placeholder((3, 6), name="U")
    state = te.placeholder((5, 2, 3), name="H")
    init = te.compute((1, 2, 3), lambda _t, b, i: x[0, b, i], "init")
    k = te.reduce_axis((0, 3), "k")
    product = te.compute((5, 2, 6), lambda t, b, i: te.sum(state[t - 1, b, k] * u[k, i], axis=k), "product")
    gates = te.compute((5, 2, 6), lambda t, b, i: product[t, b, i] + x[t - 1, b, i], "gates")
    update = te.compute((5, 2, 3), lambda t, b, i: sigmoid(gates[t, b, i]) * tanh(gates[t, b, i + 3]), "update")
    return scan(init, update, state, "hidden")


# Elementwise and movement --------------------------------------------------------------------------------------------


def _elementwise() -> Tensor:
    """A chain with broadcasts, of run length 2 * 3 * 5."""
    x, y, z = te.placeholder((2, 3, 5), name="X"), te.placeholder((3, 1), name="Y"), te.placeholder((5,), name="Z")
    a = te.compute((2, 3, 5), lambda i, j, k: x[i, j, k] * y[j, 0], "a")
    b = te.compute((2, 3, 5), lambda i, j, k: a[i, j, k] + z[k], "b")
    c = te.compute((2, 3, 5), lambda i, j, k: maximum(b[i, j, k], a[i, j, k]), "c")
    return te.compute((2, 3, 5), lambda i, j, k: c[i, j, k] - 1.0, "d")


def _transpose_add() -> Tensor:
    x = te.placeholder((9, 6), name="X")
    t = te.compute((6, 9), lambda i, j: x[j, i], "T")
    return te.compute((6, 9), lambda i, j: t[i, j] + t[5 - i, 8 - j], "Y")


def _mixed_dtypes() -> Tensor:
    x, y = te.placeholder((13,), f16, "X"), te.placeholder((13,), i8, "Y")
    a = te.compute((13,), lambda i: x[i] * 2.0 + y[i].astype(f16), "a")
    b = te.compute((13,), lambda i: a[i].astype(f64) * 0.5, "b")
    return te.compute((13,), lambda i: b[i].astype(i32) % 3 + (y[i] // 2).astype(i32), "c")


def _reversed_twice() -> Tensor:
    """A body of loops of its own, between two elementwise operations."""
    x = te.placeholder((11,), i32, "X")
    a = te.compute((11,), lambda i: x[i] + 1, "a")

    def body(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        (source,), (target,) = inputs, outputs
        return for_range(11, lambda i: store(target, i, source[10 - i]))

    (flipped,) = extern([(11,)], [a], body, dtype=[i32], name="flip")
    return te.compute((11,), lambda i: flipped[i] * a[i], "Y")


def _gather() -> Tensor:
    table, rows = te.placeholder((6, 4), name="table"), te.placeholder((5,), u8, "rows")
    picked = te.compute((5, 4), lambda i, j: table[rows[i].astype(dtypes.index), j], "picked")
    return te.compute((5, 4), lambda i, j: picked[i, j] + 1.0, "Y")


_ROUNDED = 1e-5

WORKLOADS = (
    Workload("matmul_prime", _matmul(7, 5, 11)),
    Workload("matmul_ones", _matmul(1, 1, 1)),
    Workload("matmul_row", _matmul(1, 13, 3, f64)),
    Workload("matmul_empty_sum", _matmul(5, 0, 3)),
    Workload("matmul_no_rows", _matmul(0, 4, 3)),
    Workload("matmul_half", _matmul(3, 6, 5, f16)),
    Workload("dense", _dense),
    Workload("tiled_matmul", _tiled_matmul),
    Workload("chained_matmuls", _chained_matmuls),
    Workload("batched_transposed", _batched_transposed),
    Workload("dot_i8", _dot_i8),
    Workload("conv1d", _conv1d),
    Workload("conv2d", _conv2d),
    Workload("strided_depthwise", _strided_depthwise),
    Workload("max_pool", _max_pool),
    Workload("argmax", _argmax),
    Workload("welford", _welford, 1e-12),
    Workload("guarded_sum", _guarded_sum),
    Workload("any_row", _any_row),
    Workload("softmax", _softmax, _ROUNDED),
    Workload("layer_norm", _layer_norm, _ROUNDED),
    Workload("cumsum", _cumsum),
    Workload("recurrent_cell", _recurrent_cell, _ROUNDED),
    Workload("gated_cell", _gated_cell, _ROUNDED),
    Workload("elementwise", _elementwise),
    Workload("transpose_add", _transpose_add),
    Workload("mixed_dtypes", _mixed_dtypes),
    Workload("reversed_twice", _reversed_twice),
    Workload("gather", _gather),
)

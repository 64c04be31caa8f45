"""Small te programs that several tests lower and run."""

from tilewright.base.dtypes import DType, f32, i32
from tilewright.loops.extern import alloc, extern, for_range, if_then, seq, store
from tilewright.loops.ir import Buffer, Stmt
from tilewright.symbolic.expr import Expr, maximum
from tilewright.tensor import build as te
from tilewright.tensor import functions as fn
from tilewright.tensor.ir import Tensor
from tilewright.tensor.scan import scan


def matmul(m: int | Expr, n: int | Expr, k: int | Expr, dtype: DType = f32) -> Tensor:
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    axis = te.reduce_axis((0, k), name="k")
    return te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")


def conv2d_padded(size: int, channels: int, filters: int, kernel: int, stride: int) -> Tensor:
    """Half padding, then the convolution, then ReLU."""
    pad = kernel // 2
    x = te.placeholder((channels, size, size), name="X")
    w = te.placeholder((filters, channels, kernel, kernel), name="W")
    inside = lambda y: (y >= pad) & (y < size + pad)  # noqa: E731
    padded = te.compute(
        (channels, size + 2 * pad, size + 2 * pad),
        lambda c, y, z: te.select(inside(y) & inside(z), x[c, y - pad, z - pad], 0.0),
        name="padded",
    )
    c = te.reduce_axis((0, channels), name="rc")
    ky, kx = te.reduce_axis((0, kernel), name="ky"), te.reduce_axis((0, kernel), name="kx")
    out = (size - 1) // stride + 1
    conv = te.compute(
        (filters, out, out),
        lambda f, y, z: te.sum(padded[c, y * stride + ky, z * stride + kx] * w[f, c, ky, kx], axis=(c, ky, kx)),
        name="conv",
    )
    return te.compute((filters, out, out), lambda f, y, z: maximum(conv[f, y, z], 0.0), name="relu")


def argmax(rows: int, columns: int) -> tuple[Tensor, ...]:
    a = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis((0, columns), name="k")
    return te.compute((rows,), lambda i: te.argmax((k.var, a[i, k]), axis=k), name=("position", "value"))


def welford(rows: int, columns: int) -> tuple[Tensor, ...]:
    """Count, mean and sum of squared differences in one pass (Chan et al., 1979)."""

    def combine(x: tuple[Expr, ...], y: tuple[Expr, ...]) -> tuple[Expr, ...]:
        count = x[0] + y[0]
        safe = maximum(count, 1.0)
        delta = y[1] - x[1]
        return count, x[1] + delta * (y[0] / safe), x[2] + y[2] + delta * delta * (x[0] * y[0] / safe)

    reducer = te.comm_reducer(combine, lambda a, b, c: (0.0, 0.0, 0.0), name="welford")
    a = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis((0, columns), name="k")
    one, zero = te.const(1.0, f32), te.const(0.0, f32)
    return te.compute((rows,), lambda i: reducer((one, a[i, k], zero), axis=k), name=("count", "mean", "m2"))


def cumsum(steps: int | Expr, width: int) -> Tensor:
    x = te.placeholder((steps, width), name="X")
    state = te.placeholder((steps, width), name="S")
    start = te.compute((1, width), lambda t, i: x[t, i], name="start")
    update = te.compute((steps, width), lambda t, i: state[t - 1, i] + x[t, i], name="next")
    return scan(start, update, state, name="total")


def lstm(steps: int, hidden: int) -> tuple[Tensor, ...]:
    """Hidden and cell states; the gates' inputs are given, their recurrent part is computed step by step."""
    x = te.placeholder((steps, 4, hidden), name="X")
    w = te.placeholder((4, hidden, hidden), name="W")
    h, c = te.placeholder((steps, hidden), name="H"), te.placeholder((steps, hidden), name="Cell")
    zeros = [te.compute((1, hidden), lambda t, i: te.const(0.0, f32), name=name) for name in ("h0", "c0")]
    k = te.reduce_axis((0, hidden), name="k")
    back = te.compute((steps, 4, hidden), lambda t, g, i: te.sum(h[t - 1, k] * w[g, k, i], axis=k), name="back")
    gates = te.compute((steps, 4, hidden), lambda t, g, i: x[t, g, i] + back[t, g, i], name="gates")
    cell = te.compute(
        (steps, hidden),
        lambda t, i: fn.sigmoid(gates[t, 0, i]) * fn.tanh(gates[t, 1, i]) + fn.sigmoid(gates[t, 2, i]) * c[t - 1, i],
        name="next_c",
    )
    out = te.compute((steps, hidden), lambda t, i: fn.sigmoid(gates[t, 3, i]) * fn.tanh(cell[t, i]), name="next_h")
    return scan(zeros, [out, cell], [h, c], name="lstm")


def insertion_sort(count: int) -> Tensor:
    """Ascending; written as loops, with a buffer of its own."""
    x = te.placeholder((count,), i32, name="X")

    def body(ins: tuple[Buffer, ...], outs: tuple[Buffer, ...]) -> Stmt:
        (source,), (result,) = ins, outs

        def swap(held: Buffer) -> Stmt:
            def step(j: Expr) -> Stmt:
                here = count - 1 - j
                down = if_then(
                    result[here - 1] > result[here],
                    seq(
                        store(held, (), result[here]),
                        store(result, here, result[here - 1]),
                        store(result, here - 1, held[()]),
                    ),
                )
                return if_then(here >= 1, down)

            return for_range(count, lambda i: for_range(count, step, name="j"))

        copy = for_range(count, lambda i: store(result, i, source[i]), name="copied")
        return seq(copy, alloc((), i32, swap, name="held"))

    return extern([(count,)], [x], body, [i32], name="sorted")[0]

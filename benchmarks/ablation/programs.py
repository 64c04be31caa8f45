"""The programs of the ablation of sketches, as tensor expressions in float32."""

from collections.abc import Callable

from tilewright import te
from tilewright.loops.program import Program
from tilewright.tune.recorded import named


def convolution(size: int, inner: int, outer: int) -> te.Tensor:
    """Of points, batch 1; nothing follows."""
    x, w = te.placeholder((inner, size, size), name="x"), te.placeholder((outer, inner), name="w")
    c = te.reduce_axis((0, inner), "c")
    return te.compute((outer, size, size), lambda o, i, j: te.sum(x[c, i, j] * w[o, c], axis=c), name="convolved")


def separable(size: int, inner: int, outer: int) -> te.Tensor:
    """A depthwise convolution of kernel 3 with ReLU, and a pointwise one."""
    x, w = te.placeholder((inner, size, size), name="x"), te.placeholder((inner, 3, 3), name="w")
    v = te.placeholder((outer, inner), name="v")
    padded = te.compute(
        (inner, size + 2, size + 2),
        lambda k, i, j: te.if_then_else((i >= 1) & (i <= size) & (j >= 1) & (j <= size), x[k, i - 1, j - 1], 0.0),
        name="padded",
    )
    r, s, c = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s"), te.reduce_axis((0, inner), "c")
    shape = (inner, size, size)
    depth = te.compute(
        shape, lambda k, i, j: te.sum(padded[k, i + r, j + s] * w[k, r, s], axis=(r, s)), name="depthwise"
    )
    relu = te.compute(shape, lambda k, i, j: te.maximum(depth[k, i, j], 0.0), name="relu")
    return te.compute((outer, size, size), lambda o, i, j: te.sum(relu[c, i, j] * v[o, c], axis=c), name="pointwise")


def softmax(rows: int, columns: int) -> te.Tensor:
    """Over the rows of scores."""
    x = te.placeholder((rows, columns), name="x")
    m, n = te.reduce_axis((0, columns), "m"), te.reduce_axis((0, columns), "n")
    largest = te.compute((rows,), lambda i: te.max(x[i, m], axis=m), name="largest")
    weights = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - largest[i]), name="weights")
    total = te.compute((rows,), lambda i: te.sum(weights[i, n], axis=n), name="total")
    return te.compute((rows, columns), lambda i, j: weights[i, j] / total[i], name="softmax")


def product(rows: int, columns: int, depth: int) -> te.Tensor:
    """Of two matrices."""
    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    k = te.reduce_axis((0, depth), "k")
    return te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")


PROGRAMS: dict[str, Callable[[], te.Tensor]] = {
    "convolution": lambda: convolution(7, 512, 2048),
    "separable": lambda: separable(28, 96, 128),
    "softmax": lambda: softmax(512, 512),
    "product": lambda: product(256, 256, 256),
}
"""`convolution`: the last one of ResNet-50, as in the paper."""


def naive(output: te.Tensor) -> Program:
    """Without a schedule, as records name it."""
    return named(te.create_schedule(output).program)

"""The programs as tensor expressions, in float32 and for fixed sizes.

Each is a function of its sizes; its placeholders have the names of the arguments of the functions of the same name in
in_numpy.py and in_torch.py. With the sizes of the table a run takes 0.1 to 20 ms on one core.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tilewright import te

from . import in_numpy
from .in_numpy import Array

Outputs: TypeAlias = tuple[te.Tensor, ...]

LEAST_SIZE = 2
"""Of a program that is made smaller."""
CAPSULE = 4
"""Rows and columns of a capsule."""
ROWS = 4
"""Of a triangular matrix that is solved for."""


def capsules(size: int, inner: int, outer: int) -> Outputs:
    """A convolution of 4x4 matrices, kernel 3, stride 2: C2D capsules (Barham and Isard, HotOS 2019)."""
    x = te.placeholder((2 * size + 1, 2 * size + 1, inner, CAPSULE, CAPSULE), name="x")
    w = te.placeholder((3, 3, inner, outer, CAPSULE, CAPSULE), name="w")
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    c, k = te.reduce_axis((0, inner), "c"), te.reduce_axis((0, CAPSULE), "k")
    made = te.compute(
        (size, size, outer, CAPSULE, CAPSULE),
        lambda y, x_, o, i, j: te.sum(x[2 * y + r, 2 * x_ + s, c, i, k] * w[r, s, c, o, k, j], axis=(r, s, c, k)),
        name="capsules",
    )
    return (made,)


def norms(rows: int, columns: int) -> Outputs:
    """The 2-norm of each row, and of the whole matrix."""
    x = te.placeholder((rows, columns), name="x")
    j, a, b = te.reduce_axis((0, columns), "j"), te.reduce_axis((0, rows), "a"), te.reduce_axis((0, columns), "b")
    squares = te.compute((rows,), lambda i: te.sum(x[i, j] * x[i, j], axis=j), name="squares")
    total = te.compute((), lambda: te.sum(x[a, b] * x[a, b], axis=(a, b)), name="total")
    of_rows = te.compute((rows,), lambda i: te.sqrt(squares[i]), name="of_rows")
    return of_rows, te.compute((), lambda: te.sqrt(total[()]), name="of_all")


def dilated_conv3d(size: int, inner: int, outer: int) -> Outputs:
    """A convolution over volumes, kernel 3, dilation 2, without padding."""
    x = te.placeholder((inner, size + 4, size + 4, size + 4), name="x")
    w = te.placeholder((outer, inner, 3, 3, 3), name="w")
    c, axes = te.reduce_axis((0, inner), "c"), [te.reduce_axis((0, 3), name) for name in "rst"]
    r, s, t = axes
    made = te.compute(
        (outer, size, size, size),
        lambda o, z, y, x_: te.sum(x[c, z + 2 * r, y + 2 * s, x_ + 2 * t] * w[o, c, r, s, t], axis=(c, *axes)),
        name="convolved",
    )
    return (made,)


def attention_scores(length: int, heads: int, depth: int) -> Outputs:
    """Queries and keys `[length, heads, depth]` are transposed and multiplied; softmax over the keys."""
    q = te.placeholder((length, heads, depth), name="q")
    k = te.placeholder((length, heads, depth), name="k")
    queries = te.compute((heads, length, depth), lambda h, i, d: q[i, h, d] * depth**-0.5, name="queries")
    keys = te.compute((heads, depth, length), lambda h, d, j: k[j, h, d], name="keys")
    d = te.reduce_axis((0, depth), "d")
    shape = (heads, length, length)
    scores = te.compute(shape, lambda h, i, j: te.sum(queries[h, i, d] * keys[h, d, j], axis=d), name="scores")
    m, n = te.reduce_axis((0, length), "m"), te.reduce_axis((0, length), "n")
    largest = te.compute((heads, length), lambda h, i: te.max(scores[h, i, m], axis=m), name="largest")
    weights = te.compute(shape, lambda h, i, j: te.exp(scores[h, i, j] - largest[h, i]), name="weights")
    total = te.compute((heads, length), lambda h, i: te.sum(weights[h, i, n], axis=n), name="total")
    return (te.compute(shape, lambda h, i, j: weights[h, i, j] / total[h, i], name="softmax"),)


def lstm_cell(batch: int, inner: int, hidden: int) -> Outputs:
    """A step of an LSTM: eight products in two, gates in the order input, forget, cell, output; the new `h`, `c`."""
    x = te.placeholder((batch, inner), name="x")
    h = te.placeholder((batch, hidden), name="h")
    c = te.placeholder((batch, hidden), name="c")
    w = te.placeholder((4, hidden, inner), name="w")
    u = te.placeholder((4, hidden, hidden), name="u")
    b = te.placeholder((4, hidden), name="b")
    i, j = te.reduce_axis((0, inner), "i"), te.reduce_axis((0, hidden), "j")
    shape = (batch, 4, hidden)
    of_x = te.compute(shape, lambda n, g, o: te.sum(x[n, i] * w[g, o, i], axis=i), name="of_x")
    of_h = te.compute(shape, lambda n, g, o: te.sum(h[n, j] * u[g, o, j], axis=j), name="of_h")
    gates = te.compute(shape, lambda n, g, o: of_x[n, g, o] + of_h[n, g, o] + b[g, o], name="gates")
    cell = te.compute(
        (batch, hidden),
        lambda n, o: te.sigmoid(gates[n, 1, o]) * c[n, o] + te.sigmoid(gates[n, 0, o]) * te.tanh(gates[n, 2, o]),
        name="cell",
    )
    out = te.compute((batch, hidden), lambda n, o: te.sigmoid(gates[n, 3, o]) * te.tanh(cell[n, o]), name="out")
    return out, cell


def stencil2d(rows: int, columns: int) -> Outputs:
    """Two steps of a smoothing with nine points; each step loses the border."""
    x = te.placeholder((rows + 4, columns + 4), name="x")

    def step(source: te.Tensor, border: int, name: str) -> te.Tensor:
        def point(y: te.Expr, x_: te.Expr) -> te.Expr:
            sides = source[y, x_ + 1] + source[y + 1, x_] + source[y + 1, x_ + 2] + source[y + 2, x_ + 1]
            corners = source[y, x_] + source[y, x_ + 2] + source[y + 2, x_] + source[y + 2, x_ + 2]
            return 0.25 * source[y + 1, x_ + 1] + 0.125 * sides + 0.0625 * corners

        return te.compute((rows + border, columns + border), point, name=name)

    return (step(step(x, 2, "once"), 0, "twice"),)


def wave3d(size: int) -> Outputs:
    """A step of the wave equation; the Laplacian is of fourth order, with thirteen points."""
    now = te.placeholder((size + 4, size + 4, size + 4), name="now")
    before = te.placeholder((size, size, size), name="before")
    speed = te.placeholder((size, size, size), name="speed")

    def point(z: te.Expr, y: te.Expr, x: te.Expr) -> te.Expr:
        centre = now[z + 2, y + 2, x + 2]
        near = now[z + 1, y + 2, x + 2] + now[z + 3, y + 2, x + 2] + now[z + 2, y + 1, x + 2]
        near = near + now[z + 2, y + 3, x + 2] + now[z + 2, y + 2, x + 1] + now[z + 2, y + 2, x + 3]
        far = now[z, y + 2, x + 2] + now[z + 4, y + 2, x + 2] + now[z + 2, y, x + 2]
        far = far + now[z + 2, y + 4, x + 2] + now[z + 2, y + 2, x] + now[z + 2, y + 2, x + 4]
        laplacian = (4 / 3) * near - (1 / 12) * far - 7.5 * centre
        return 2 * centre - before[z, y, x] + speed[z, y, x] * laplacian

    return (te.compute((size, size, size), point, name="after"),)


def triangular_solves(batch: int, columns: int) -> Outputs:
    """Lower triangular 4x4 systems with some right-hand sides: forward substitution, written out."""
    a = te.placeholder((batch, ROWS, ROWS), name="a")
    b = te.placeholder((batch, ROWS, columns), name="b")
    solved: list[te.Tensor] = []
    for row in range(ROWS):

        def unknown(n: te.Expr, j: te.Expr, row: int = row) -> te.Expr:
            rest = b[n, row, j]
            for column, known in enumerate(solved[:row]):
                rest = rest - a[n, row, column] * known[n, j]
            return rest / a[n, row, row]

        solved.append(te.compute((batch, columns), unknown, name=f"x{row}"))

    def chosen(n: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        first, second, third, last = (x[n, j] for x in solved)
        return te.select(i < 2, te.select(i < 1, first, second), te.select(i < 3, third, last))

    return (te.compute((batch, ROWS, columns), chosen, name="solved"),)


def correlation(channels: int, size: int, reach: int) -> Outputs:
    """Each pixel's features with those of its neighbours in the other picture, which is padded (FlowNet, 2015)."""
    left = te.placeholder((channels, size, size), name="left")
    right = te.placeholder((channels, size + 2 * reach, size + 2 * reach), name="right")
    c, window = te.reduce_axis((0, channels), "c"), 2 * reach + 1
    shape = (window, window, size, size)
    summed = te.compute(
        shape, lambda dy, dx, y, x: te.sum(left[c, y, x] * right[c, y + dy, x + dx], axis=c), name="summed"
    )
    return (te.compute(shape, lambda dy, dx, y, x: summed[dy, dx, y, x] * (1 / channels), name="mean"),)


def bilinear(batch: int, left: int, right: int, outer: int) -> Outputs:
    """`x^T W y` for each row of `x` and `y` and each matrix `W`."""
    x = te.placeholder((batch, left), name="x")
    w = te.placeholder((outer, left, right), name="w")
    y = te.placeholder((batch, right), name="y")
    i, j = te.reduce_axis((0, left), "i"), te.reduce_axis((0, right), "j")
    half = te.compute((batch, outer, right), lambda n, o, m: te.sum(x[n, i] * w[o, i, m], axis=i), name="half")
    return (te.compute((batch, outer), lambda n, o: te.sum(half[n, o, j] * y[n, j], axis=j), name="form"),)


def distances(left: int, right: int, depth: int) -> Outputs:
    """Euclidean distances of all pairs of points."""
    x, y = te.placeholder((left, depth), name="x"), te.placeholder((right, depth), name="y")
    d = te.reduce_axis((0, depth), "d")

    def square(i: te.Expr, j: te.Expr) -> object:
        difference = x[i, d] - y[j, d]
        return te.sum(difference * difference, axis=d)

    squares = te.compute((left, right), square, name="squares")
    return (te.compute((left, right), lambda i, j: te.sqrt(squares[i, j]), name="distances"),)


def separable(size: int, inner: int, outer: int) -> Outputs:
    """A depthwise convolution, kernel 3, clipped to [0, 6], and a pointwise one."""
    x = te.placeholder((inner, size + 2, size + 2), name="x")
    w = te.placeholder((inner, 3, 3), name="w")
    v = te.placeholder((outer, inner), name="v")
    r, s, c = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s"), te.reduce_axis((0, inner), "c")
    shape = (inner, size, size)
    deep = te.compute(shape, lambda m, y, x_: te.sum(x[m, y + r, x_ + s] * w[m, r, s], axis=(r, s)), name="deep")
    clipped = te.compute(shape, lambda m, y, x_: te.clip(deep[m, y, x_], 0.0, 6.0), name="clipped")
    pointwise = te.compute(
        (outer, size, size), lambda o, y, x_: te.sum(v[o, c] * clipped[c, y, x_], axis=c), name="pointwise"
    )
    return (pointwise,)


def group_norm(batch: int, groups: int, channels: int, pixels: int) -> Outputs:
    """Group normalization, scale and shift for each channel, and SiLU."""
    x = te.placeholder((batch, groups, channels, pixels), name="x")
    gamma = te.placeholder((groups, channels), name="gamma")
    beta = te.placeholder((groups, channels), name="beta")
    scale = 1 / (channels * pixels)
    c, p = te.reduce_axis((0, channels), "c"), te.reduce_axis((0, pixels), "p")
    e, q = te.reduce_axis((0, channels), "e"), te.reduce_axis((0, pixels), "q")
    total = te.compute((batch, groups), lambda n, g: te.sum(x[n, g, c, p], axis=(c, p)), name="total")
    mean = te.compute((batch, groups), lambda n, g: total[n, g] * scale, name="mean")

    def square(n: te.Expr, g: te.Expr) -> object:
        difference = x[n, g, e, q] - mean[n, g]
        return te.sum(difference * difference, axis=(e, q))

    squares = te.compute((batch, groups), square, name="squares")
    rate = te.compute((batch, groups), lambda n, g: te.rsqrt(squares[n, g] * scale + 1e-5), name="rate")

    def normal(n: te.Expr, g: te.Expr, m: te.Expr, i: te.Expr) -> te.Expr:
        return (x[n, g, m, i] - mean[n, g]) * rate[n, g] * gamma[g, m] + beta[g, m]

    shape = (batch, groups, channels, pixels)
    scaled = te.compute(shape, normal, name="scaled")
    return (te.compute(shape, lambda *at: scaled[at] * te.sigmoid(scaled[at]), name="silu"),)


def grouped_residual(size: int, groups: int, channels: int) -> Outputs:
    """A convolution in groups, kernel 3, to which its input is added, and the positive part."""
    x = te.placeholder((groups, channels, size + 2, size + 2), name="x")
    w = te.placeholder((groups, channels, channels, 3, 3), name="w")
    c, r, s = te.reduce_axis((0, channels), "c"), te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    shape = (groups, channels, size, size)
    convolved = te.compute(
        shape,
        lambda g, o, y, x_: te.sum(x[g, c, y + r, x_ + s] * w[g, o, c, r, s], axis=(c, r, s)),
        name="convolved",
    )
    added = te.compute(
        shape, lambda g, o, y, x_: te.maximum(convolved[g, o, y, x_] + x[g, o, y + 1, x_ + 1], 0.0), name="added"
    )
    return (added,)


def gram(channels: int, pixels: int) -> Outputs:
    """The products of all pairs of channels, over the number of pixels (Gatys et al., 2015)."""
    x = te.placeholder((channels, pixels), name="x")
    p = te.reduce_axis((0, pixels), "p")
    shape = (channels, channels)
    products = te.compute(shape, lambda i, j: te.sum(x[i, p] * x[j, p], axis=p), name="products")
    return (te.compute(shape, lambda i, j: products[i, j] * (1 / pixels), name="gram"),)


def causal_pooling(length: int, depth: int) -> Outputs:
    """Means of all values so far, weighted by key and by distance, and gated (Zhai et al., 2021: AFT-full)."""
    q, k, v = (te.placeholder((length, depth), name=name) for name in "qkv")
    bias = te.placeholder((length, length), name="bias")
    near = te.compute((length, length), lambda t, s: te.exp(bias[t, s]), name="near")
    weight = te.compute((length, depth), lambda s, d: te.exp(k[s, d]), name="weight")
    s, r = te.reduce_axis((0, length), "s"), te.reduce_axis((0, length), "r")
    above = te.compute(
        (length, depth),
        lambda t, d: te.sum(near[t, s] * weight[s, d] * v[s, d], axis=s, where=s <= t),
        name="above",
    )
    below = te.compute(
        (length, depth), lambda t, d: te.sum(near[t, r] * weight[r, d], axis=r, where=r <= t), name="below"
    )
    pooled = te.compute((length, depth), lambda t, d: te.sigmoid(q[t, d]) * above[t, d] / below[t, d], name="pooled")
    return (pooled,)


@dataclass(frozen=True, slots=True)
class Normal:
    """What an input is drawn from."""

    mean: float = 0.0
    deviation: float = 1.0


@dataclass(frozen=True, slots=True)
class Program:
    """A function of sizes to tensors, with the sizes that are timed."""

    build: Callable[..., Outputs]
    reference: Callable[..., Sequence[Array]]
    """The same in NumPy, from arrays by the names of the placeholders, in their precision."""
    sizes: Mapping[str, int]
    drawn: Mapping[str, Normal] = field(default_factory=dict[str, Normal])
    """Inputs that are not standard normal: so that results are neither large nor saturated."""

    @property
    def name(self) -> str:
        """What it is called in a table, and in in_torch.py."""
        return self.build.__name__

    def outputs(self, divisor: int = 1) -> Outputs:
        """Its tensors; all sizes but the smallest are divided by `divisor`."""
        return self.build(**{name: max(LEAST_SIZE, size // divisor) for name, size in self.sizes.items()})

    def feeds(self, outputs: Outputs, seed: int = 0) -> dict[str, Array]:
        """Random inputs of the program that computes `outputs`, by name."""
        random = np.random.default_rng(seed)
        buffers = te.create_schedule(outputs).program.inputs
        shapes = {buffer.name: tuple(int(str(extent)) for extent in buffer.shape) for buffer in buffers}
        laws = {name: self.drawn.get(name, Normal()) for name in shapes}
        return {n: random.normal(laws[n].mean, laws[n].deviation, shapes[n]).astype(np.float32) for n in shapes}


PROGRAMS = {
    program.name: program
    for program in (
        Program(capsules, in_numpy.capsules, {"size": 14, "inner": 16, "outer": 16}, {"w": Normal(0, 1 / 24)}),
        Program(norms, in_numpy.norms, {"rows": 1024, "columns": 1024}),
        Program(
            dilated_conv3d, in_numpy.dilated_conv3d, {"size": 16, "inner": 16, "outer": 16}, {"w": Normal(0, 1 / 21)}
        ),
        Program(attention_scores, in_numpy.attention_scores, {"length": 256, "heads": 8, "depth": 64}),
        Program(
            lstm_cell,
            in_numpy.lstm_cell,
            {"batch": 16, "inner": 256, "hidden": 256},
            {"w": Normal(0, 1 / 16), "u": Normal(0, 1 / 16)},
        ),
        Program(stencil2d, in_numpy.stencil2d, {"rows": 1024, "columns": 1024}),
        Program(wave3d, in_numpy.wave3d, {"size": 96}, {"speed": Normal(0.1, 0.01)}),
        Program(triangular_solves, in_numpy.triangular_solves, {"batch": 16384, "columns": 8}, {"a": Normal(2, 0.25)}),
        Program(correlation, in_numpy.correlation, {"channels": 64, "size": 32, "reach": 4}),
        Program(
            bilinear, in_numpy.bilinear, {"batch": 64, "left": 64, "right": 64, "outer": 32}, {"w": Normal(0, 1 / 64)}
        ),
        Program(distances, in_numpy.distances, {"left": 256, "right": 256, "depth": 64}),
        Program(separable, in_numpy.separable, {"size": 28, "inner": 128, "outer": 128}, {"v": Normal(0, 1 / 16)}),
        Program(group_norm, in_numpy.group_norm, {"batch": 4, "groups": 32, "channels": 8, "pixels": 1024}),
        Program(
            grouped_residual,
            in_numpy.grouped_residual,
            {"size": 28, "groups": 8, "channels": 16},
            {"w": Normal(0, 1 / 12)},
        ),
        Program(gram, in_numpy.gram, {"channels": 128, "pixels": 1024}),
        Program(causal_pooling, in_numpy.causal_pooling, {"length": 256, "depth": 64}),
    )
}

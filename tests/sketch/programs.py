"""Computations whose sketches are counted and sampled."""

from collections.abc import Sequence

from tilewright import te
from tilewright.base.dtypes import DType
from tilewright.loops.program import Program
from tilewright.tensor.ir import Reduction, Tensor


def matmul(m: int, n: int, k: int) -> Tensor:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    return te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")


def two_products(m: int, k: int, n: int) -> Tensor:
    c, e = matmul(m, k, k), te.placeholder((k, n), name="E")
    r = te.reduce_axis((0, k), "k2")
    return te.compute((m, n), lambda i, j: te.sum(c[i, r] * e[r, j], axis=r), name="D")


def products_of_one_row(batch: int, m: int, n: int, k: int) -> Tensor:
    """As in minimal filtering: with axes of one element, over which nothing runs."""
    a, b = te.placeholder((batch, m, 1, k), name="A"), te.placeholder((batch, k, 1, n), name="B")
    r = te.reduce_axis((0, k), "k")
    return te.compute((batch, m, 1, n), lambda g, i, z, j: te.sum(a[g, i, z, r] * b[g, r, z, j], axis=r), name="C")


def convolution(size: int, inner: int, outer: int) -> Tensor:
    """With padding, bias and ReLU."""
    x, w = te.placeholder((1, inner, size, size), name="X"), te.placeholder((outer, inner, 3, 3), name="W")
    bias = te.placeholder((outer,), name="bias")
    c, r, q = (te.reduce_axis((0, extent), name) for extent, name in ((inner, "ci"), (3, "r"), (3, "q")))
    padded = te.compute(
        (1, inner, size + 2, size + 2),
        lambda n, c, h, w: te.if_then_else((h >= 1) & (h <= size) & (w >= 1) & (w <= size), x[n, c, h - 1, w - 1], 0.0),
        name="P",
    )
    shape = (1, outer, size, size)
    conv = te.compute(
        shape, lambda n, o, h, v: te.sum(padded[n, c, h + r, v + q] * w[o, c, r, q], axis=[c, r, q]), name="C"
    )
    shifted = te.compute(shape, lambda n, o, h, v: conv[n, o, h, v] + bias[o], name="S")
    return te.compute(shape, lambda n, o, h, v: te.maximum(shifted[n, o, h, v], 0.0), name="Y")


def constant(matrix: Sequence[Sequence[float]], name: str) -> Tensor:
    """A matrix of numbers, as a te program writes it down: selected by the indices."""

    def chosen(index: te.Expr, values: Sequence[te.Expr]) -> te.Expr:
        found = values[-1]
        for place in reversed(range(len(values) - 1)):
            found = te.select(index < place + 1, values[place], found)
        return found

    def element(i: te.Expr, j: te.Expr) -> te.Expr:
        return chosen(i, [chosen(j, [te.const(value, "float32") for value in row]) for row in matrix])

    return te.compute((len(matrix), len(matrix[0])), element, name=name)


INPUT_TRANSFORM = ((1, 0, 0, 0), (0, 1, -1, 1), (-1, 1, 1, 0), (0, 0, 0, -1))
OUTPUT_TRANSFORM = ((1, 0), (1, 1), (1, -1), (0, -1))
"""Of F(2x2, 3x3) (Lavin and Gray, 2016), transposed."""


def winograd(size: int, inner: int, outer: int) -> Tensor:
    """A convolution with padding by F(2x2, 3x3), of weights that are transformed already; ``size`` is even."""
    x, w = te.placeholder((size, size, inner), name="X"), te.placeholder((4, 4, inner, outer), name="W")
    tiles = size // 2
    r, q, v, u = (te.reduce_axis((0, 4), name) for name in "rqvu")
    c = te.reduce_axis((0, inner), "ci")
    padded = te.compute(
        (size + 2, size + 2, inner),
        lambda h, v, c: te.if_then_else((h >= 1) & (h <= size) & (v >= 1) & (v <= size), x[h - 1, v - 1, c], 0.0),
        name="P",
    )
    b, a = constant(INPUT_TRANSFORM, "B"), constant(OUTPUT_TRANSFORM, "A")
    tile = te.compute(
        (4, 4, tiles * tiles, inner),
        lambda i, j, p, c: padded[p // tiles * 2 + i, p % tiles * 2 + j, c],
        name="input_tile",
    )
    pack = te.compute(
        (4, 4, tiles * tiles, inner),
        lambda i, j, p, c: te.sum(tile[r, q, p, c] * b[r, i] * b[q, j], axis=[r, q]),
        name="data_pack",
    )
    product = te.compute(
        (4, 4, tiles * tiles, outer), lambda i, j, p, o: te.sum(pack[i, j, p, c] * w[i, j, c, o], axis=c), name="bgemm"
    )
    inverse = te.compute(
        (2, 2, tiles * tiles, outer),
        lambda y, z, p, o: te.sum(product[v, u, p, o] * a[v, y] * a[u, z], axis=[v, u]),
        name="inverse",
    )
    return te.compute(
        (size, size, outer),
        lambda h, v, o: inverse[h % 2, v % 2, h // 2 * tiles + v // 2, o],
        name="Y",
    )


def max_pool(size: int, window: int) -> Tensor:
    x = te.placeholder((1, 4, size, size), name="X")
    r, q = te.reduce_axis((0, window), "r"), te.reduce_axis((0, window), "q")
    left = (size - window) // 2 + 1
    return te.compute(
        (1, 4, left, left), lambda n, c, h, w: te.max(x[n, c, h * 2 + r, w * 2 + q], axis=[r, q]), name="Y"
    )


def least(rows: int, columns: int) -> Tensor:
    a, k = te.placeholder((rows, columns), name="A"), te.reduce_axis((0, columns), "k")
    return te.compute((rows,), lambda i: te.min(a[i, k], axis=k), name="Y")


def softmax(rows: int, columns: int) -> Tensor:
    a = te.placeholder((rows, columns), name="A")
    k, k2 = te.reduce_axis((0, columns), "k"), te.reduce_axis((0, columns), "k2")
    most = te.compute((rows,), lambda i: te.max(a[i, k], axis=k), name="most")
    power = te.compute((rows, columns), lambda i, j: te.exp(a[i, j] - most[i]), name="power")
    total = te.compute((rows,), lambda i: te.sum(power[i, k2], axis=k2), name="total")
    return te.compute((rows, columns), lambda i, j: power[i, j] / total[i], name="Y")


def everything_summed(rows: int, columns: int) -> Tensor:
    a = te.placeholder((rows, columns), name="A")
    k, m = te.reduce_axis((0, rows), "k"), te.reduce_axis((0, columns), "m")
    return te.compute((), lambda: te.sum(a[k, m], axis=[k, m]), name="Y")


def norm(size: int) -> Tensor:
    a = te.placeholder((1, size, size), name="A")
    k, m = te.reduce_axis((0, size), "k"), te.reduce_axis((0, size), "m")
    squares = te.compute((1,), lambda b: te.sum(a[b, k, m] * a[b, k, m], axis=[k, m]), name="S")
    return te.compute((1,), lambda b: te.sqrt(squares[b]), name="Y")


def product_of_rows(m: int, n: int, k: int) -> Tensor:
    """The rows of one matrix by those of another: both are contiguous along the reduction."""
    a, b = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B")
    r = te.reduce_axis((0, k), "k")
    return te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r), name="C")


def outer_products(m: int, n: int) -> Tensor:
    """One of another: both use their vectors again, so that either may be tiled."""
    x, y, u, v = (te.placeholder((size,), name=name) for name, size in (("X", m), ("Y", n), ("U", m), ("V", n)))
    grown = te.compute((m, n), lambda i, j: te.exp(x[i] * y[j]), name="G")
    return te.compute((m, n), lambda i, j: grown[i, j] * u[i] + v[j], name="S")


def gram(m: int, k: int) -> Tensor:
    """The products of all pairs of rows."""
    a, r = te.placeholder((m, k), name="A"), te.reduce_axis((0, k), "k")
    return te.compute((m, m), lambda i, j: te.sum(a[i, r] * a[j, r], axis=r), name="C")


def smoothed_twice(rows: int, columns: int) -> Tensor:
    """Two stencils of five points."""
    x = te.placeholder((rows + 4, columns + 4), name="X")

    def step(of: Tensor, border: int, name: str) -> Tensor:
        return te.compute(
            (rows + border, columns + border),
            lambda i, j: of[i + 1, j + 1] + of[i, j + 1] + of[i + 2, j + 1] + of[i + 1, j] + of[i + 1, j + 2],
            name=name,
        )

    return step(step(x, 2, "once"), 0, "twice")


def naive(output: Tensor) -> Program:
    return te.create_schedule(output).program


def dot_product(m: int, n: int, k: int, left: DType, right: DType, wide: DType, *, taps: int = 0) -> Tensor:
    """Rows by rows, of narrow numbers, added up in wide ones; with so many ``taps`` of a point."""
    a, b = te.placeholder((m, k), left, "A"), te.placeholder((*[1] * taps, n, k), right, "B")
    axes = [te.reduce_axis((0, k), "k"), *(te.reduce_axis((0, 1), f"tap{tap}") for tap in range(taps))]

    def element(i: te.Expr, j: te.Expr) -> Reduction:
        r, *own = axes
        return te.sum(te.cast(a[i, r], wide) * te.cast(b[(*own, j, r)], wide), axis=axes)

    return te.compute((m, n), element, name="C")

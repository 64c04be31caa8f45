"""The operators of ``benchmarks/operator_models.py`` as te programs: of any sizes, with the arguments of its table."""

from collections.abc import Callable, Sequence

from benchmarks.operator_models import CAPSULE, DILATION, GROUPS
from tilewright import te
from tilewright.tensor.ir import Reduction, Tensor


def padded(x: Tensor, dims: int, pad: int) -> Tensor:
    """Zeros around the last ``dims`` dimensions."""
    if pad == 0:
        return x
    sizes = [int(str(extent)) for extent in x.shape]
    before = len(sizes) - dims

    def element(*index: te.Expr) -> te.Expr:
        inside = [(i >= pad) & (i < size + pad) for i, size in zip(index[before:], sizes[before:], strict=True)]
        condition = inside[0]
        for one in inside[1:]:
            condition = condition & one
        return te.if_then_else(condition, x[(*index[:before], *(i - pad for i in index[before:]))], 0.0)

    shape = (*sizes[:before], *(size + 2 * pad for size in sizes[before:]))
    return te.compute(shape, element, name="padded")


def convolution(dims: int, groups: int = 1, dilation: int = 1) -> Callable[..., Tensor]:
    """As in ``operator_models``: spatial sizes, CI, CO, kernel, stride, pad."""

    def make(batch: int, *arguments: int) -> Tensor:
        sizes, (inner, outer, kernel, stride, pad) = arguments[:dims], arguments[dims:]
        x = te.placeholder((batch, inner, *sizes), name="x")
        w = te.placeholder((outer, inner // groups, *[kernel] * dims), name="w")
        source = padded(x, dims, pad)
        c = te.reduce_axis((0, inner // groups), "c")
        taps = [te.reduce_axis((0, kernel), f"k{n}") for n in range(dims)]
        left = [(size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for size in sizes]

        def element(n: te.Expr, o: te.Expr, *at: te.Expr) -> Reduction:
            places = [i * stride + tap * dilation for i, tap in zip(at, taps, strict=True)]
            channel = c.var if groups == 1 else o // (outer // groups) * (inner // groups) + c
            return te.sum(source[(n, channel, *places)] * w[(o, c, *taps)], axis=(c, *taps))

        return te.compute((batch, outer, *left), element, name="y")

    return make


def depthwise(batch: int, height: int, width: int, channels: int, kernel: int, stride: int, pad: int) -> Tensor:
    """Each channel by its own kernel."""
    x = te.placeholder((batch, channels, height, width), name="x")
    w, source = te.placeholder((channels, kernel, kernel), name="w"), padded(x, 2, pad)
    r, q = te.reduce_axis((0, kernel), "r"), te.reduce_axis((0, kernel), "q")
    left = [(size + 2 * pad - kernel) // stride + 1 for size in (height, width)]
    return te.compute(
        (batch, channels, *left),
        lambda n, c, i, j: te.sum(source[n, c, i * stride + r, j * stride + q] * w[c, r, q], axis=(r, q)),
        name="y",
    )


def transposed(
    batch: int, height: int, width: int, inner: int, outer: int, kernel: int, stride: int, pad: int
) -> Tensor:
    """By the transposed convolution's definition: what is not there is zero."""
    x, w = (
        te.placeholder((batch, inner, height, width), name="x"),
        te.placeholder((inner, outer, kernel, kernel), name="w"),
    )
    c = te.reduce_axis((0, inner), "c")
    r, q = te.reduce_axis((0, kernel), "r"), te.reduce_axis((0, kernel), "q")
    sizes = [(size - 1) * stride - 2 * pad + kernel for size in (height, width)]
    border = kernel - 1 - pad

    def spread(n: te.Expr, c: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        a, b = i - border, j - border
        there = (a >= 0) & (a < height * stride) & (a % stride < 1) & (b >= 0) & (b < width * stride) & (b % stride < 1)
        return te.if_then_else(there, x[n, c, a // stride, b // stride], 0.0)

    source = te.compute((batch, inner, *(size + kernel - 1 for size in sizes)), spread, name="spread")

    def element(n: te.Expr, o: te.Expr, i: te.Expr, j: te.Expr) -> Reduction:
        return te.sum(source[n, c, i + r, j + q] * w[c, o, kernel - 1 - r, kernel - 1 - q], axis=(c, r, q))

    return te.compute((batch, outer, *sizes), element, name="y")


def capsule(batch: int, height: int, width: int, inner: int, outer: int, kernel: int, stride: int, pad: int) -> Tensor:
    """Matrices of ``CAPSULE`` rows and columns in the place of numbers."""
    x = te.placeholder((batch, CAPSULE, CAPSULE, inner, height, width), name="x")
    w = te.placeholder((kernel, kernel, CAPSULE, CAPSULE, inner, outer), name="w")
    source = padded(x, 2, pad)
    r, q, k, c = (
        te.reduce_axis((0, n), name) for n, name in ((kernel, "r"), (kernel, "q"), (CAPSULE, "k"), (inner, "c"))
    )
    left = [(size + 2 * pad - kernel) // stride + 1 for size in (height, width)]
    return te.compute(
        (batch, *left, CAPSULE, CAPSULE, outer),
        lambda n, h, v, i, j, o: te.sum(
            source[n, i, k, c, h * stride + r, v * stride + q] * w[r, q, k, j, c, o], axis=(r, q, k, c)
        ),
        name="y",
    )


def matmul(batch: int, rows: int, inner: int, columns: int) -> Tensor:
    """A product of matrices for each element of the batch."""
    a, b = te.placeholder((batch, rows, inner), name="a"), te.placeholder((batch, inner, columns), name="b")
    k = te.reduce_axis((0, inner), "k")
    return te.compute((batch, rows, columns), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], axis=k), name="y")


def matrix_norm(batch: int, rows: int, columns: int) -> Tensor:
    """The 2-norm of all elements of each matrix."""
    x = te.placeholder((batch, rows, columns), name="x")
    i, j = te.reduce_axis((0, rows), "i"), te.reduce_axis((0, columns), "j")
    squares = te.compute((batch,), lambda n: te.sum(x[n, i, j] * x[n, i, j], axis=(i, j)), name="squares")
    return te.compute((batch,), lambda n: te.sqrt(squares[n]), name="y")


def conv_layer(batch: int, *arguments: int) -> Tensor:
    """Convolution, batch norm, ReLU."""
    product = convolution(2)(batch, *arguments)
    shape = tuple(int(str(extent)) for extent in product.shape)
    scale, shift = (te.placeholder((shape[1],), name=name) for name in ("scale", "shift"))
    normal = te.compute(shape, lambda n, c, i, j: product[n, c, i, j] * scale[c] + shift[c], name="normal")
    return te.compute(shape, lambda n, c, i, j: te.maximum(normal[n, c, i, j], 0.0), name="relu")


def attention_scores(batch: int, length: int, heads: int, width: int) -> Tensor:
    """Transpose, batched matrix product, softmax: the weights of attention."""
    q, k = (te.placeholder((batch, length, heads, width), name=name) for name in "qk")
    query = te.compute((batch, heads, length, width), lambda n, h, i, d: q[n, i, h, d] * width**-0.5, name="query")
    key = te.compute((batch, heads, width, length), lambda n, h, d, j: k[n, j, h, d], name="key")
    d, m, r = (te.reduce_axis((0, size), name) for size, name in ((width, "d"), (length, "m"), (length, "r")))
    shape = (batch, heads, length, length)
    scores = te.compute(shape, lambda n, h, i, j: te.sum(query[n, h, i, d] * key[n, h, d, j], axis=d), name="scores")
    most = te.compute((batch, heads, length), lambda n, h, i: te.max(scores[n, h, i, m], axis=m), name="most")
    power = te.compute(shape, lambda n, h, i, j: te.exp(scores[n, h, i, j] - most[n, h, i]), name="power")
    total = te.compute((batch, heads, length), lambda n, h, i: te.sum(power[n, h, i, r], axis=r), name="total")
    return te.compute(shape, lambda n, h, i, j: power[n, h, i, j] / total[n, h, i], name="y")


BUILDERS: dict[str, Callable[..., Tensor]] = {
    "C1D": convolution(1),
    "C2D": convolution(2),
    "C3D": convolution(3),
    "GMM": matmul,
    "GRP": convolution(2, groups=GROUPS),
    "DIL": convolution(2, dilation=DILATION),
    "DEP": depthwise,
    "T2D": transposed,
    "CAP": capsule,
    "NRM": matrix_norm,
    "ConvLayer": conv_layer,
    "TBS": attention_scores,
}
SMALL: dict[str, Sequence[int]] = {
    "C1D": (12, 8, 16, 3, 2, 1),
    "C2D": (6, 8, 4, 16, 3, 1, 1),
    "C3D": (3, 4, 4, 2, 8, 3, 1, 1),
    "GMM": (12, 8, 32),
    "GRP": (6, 6, 8, 16, 3, 1, 1),
    "DIL": (8, 8, 4, 8, 3, 1, 2),
    "DEP": (8, 8, 16, 3, 2, 1),
    "T2D": (4, 4, 6, 4, 4, 2, 1),
    "CAP": (5, 5, 3, 4, 3, 2, 1),
    "NRM": (16, 24),
    "ConvLayer": (6, 6, 4, 16, 3, 1, 1),
    "TBS": (6, 2, 4),
}
"""Arguments for samples that are run."""

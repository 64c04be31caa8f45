"""Tensor expressions of tiles for tests of the compiler, with random sizes."""

from collections.abc import Callable
from random import Random

from tilewright import te
from tilewright.backend.vta import shift
from tilewright.backend.vta.config import VTA, Config, Scratchpad
from tilewright.backend.vta.layers import Convolution, convolution_sums, convolution_tensor, tiles

BATCHES = Config("batches", batch=2, block_in=8, block_out=4, uop_bits=64, instruction_bits=256)
SMALL = Config(
    "small",
    block_in=4,
    block_out=4,
    uop_bytes=1 << 10,
    inp_bytes=1 << 10,
    wgt_bytes=1 << 12,
    acc_bytes=4096,
    alu_operations=6,
)


def narrow(value: te.Expr, least: int = -128) -> te.Expr:
    return te.cast(te.clip(value, least, 127), "int8")


def acc(shape: tuple[int, ...], config: Config, name: str, pad: Scratchpad = Scratchpad.ACC8) -> te.Tensor:
    return tiles(shape, pad, config, name)


def like(shape: tuple[int, ...], config: Config) -> tuple[int, ...]:
    return *shape, *config.tile_shape(Scratchpad.ACC)


def random_layer(random: Random) -> Convolution:
    kernel = random.choice((1, 2, 3, 5))
    dilation = random.choice((1, 1, 2, 3))
    span = (kernel - 1) * dilation + 1
    return Convolution(
        height=random.randint(span, span + 5),
        width=random.randint(span, span + 5),
        channels=random.randint(1, 4),
        filters=random.randint(1, 4),
        kernel=kernel,
        stride=random.choice((1, 2, 3)),
        padding=random.randint(0, span - 1),
        shift=random.randint(0, 12),
        dilation=dilation,
    )


def convolution(random: Random, config: Config) -> te.Tensor:
    return convolution_tensor(random_layer(random), config)


def residual(random: Random, config: Config) -> te.Tensor:
    """A convolution to which bytes are added, then clipped at 0."""
    layer = random_layer(random)
    sums, shape = convolution_sums(layer, config), (layer.filters, layer.out_height, layer.out_width)
    other = acc(shape, config, "other")
    shift = layer.shift
    return te.compute(
        like(shape, config), lambda *at: narrow((sums[at] >> shift) + te.cast(other[at], "int32"), 0), name="added"
    )


def dense(random: Random, config: Config) -> te.Tensor:
    """A product with a bias."""
    rows, columns, depth = (random.randint(1, 9) for _ in range(3))
    a = tiles((depth, rows), Scratchpad.INP, config, "a")
    w = tiles((columns, depth), Scratchpad.WGT, config, "w")
    bias = acc((columns,), config, "bias", Scratchpad.ACC)
    k, i = te.reduce_axis((0, depth), "k"), te.reduce_axis((0, config.block_in), "i")
    shape = like((columns, rows), config)
    sums = te.compute(
        shape,
        lambda f, n, b, o: te.sum(te.cast(a[k, n, b, i], "int32") * te.cast(w[f, k, o, i], "int32"), axis=(k, i)),
        name="sums",
    )
    return te.compute(shape, lambda f, n, b, o: narrow((sums[f, n, b, o] + bias[f, b, o]) >> 5), name="dense")


def pooled(random: Random, config: Config) -> te.Tensor:
    """The largest of a window, without what is outside of the image."""
    size, step = random.randint(1, 3), random.randint(1, 3)
    pad = random.randint(0, size // 2)
    height, width = (random.randint(size, size + 6) for _ in range(2))
    data = acc((2, height, width), config, "data")
    dy, dx = te.reduce_axis((0, size), "dy"), te.reduce_axis((0, size), "dx")

    def largest(c: te.Expr, y: te.Expr, x: te.Expr, b: te.Expr, o: te.Expr) -> object:
        row, column = y * step + dy - pad, x * step + dx - pad
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        return te.max(te.select(inside, data[c, row, column, b, o], te.const(-128, "int8")), axis=(dy, dx))

    shape = (2, (height + 2 * pad - size) // step + 1, (width + 2 * pad - size) // step + 1)
    return te.compute(like(shape, config), largest, name="pooled")


def averaged(random: Random, config: Config) -> te.Tensor:
    """The mean of 2 x 2 pixels, rounded down."""
    height, width = random.randint(1, 5), random.randint(1, 5)
    data = acc((3, 2 * height, 2 * width), config, "data")
    dy, dx = te.reduce_axis((0, 2), "dy"), te.reduce_axis((0, 2), "dx")
    shape = like((3, height, width), config)
    sums = te.compute(
        shape,
        lambda c, y, x, b, o: te.sum(te.cast(data[c, 2 * y + dy, 2 * x + dx, b, o], "int32"), axis=(dy, dx)),
        name="sums",
    )
    return te.compute(shape, lambda *at: te.cast(te.clip(sums[at] >> 2, -128, 127), "int8"), name="averaged")


def added(random: Random, config: Config) -> te.Tensor:
    """Two images, the second one doubled, added and scaled by a byte."""
    shape = (2, random.randint(1, 9), random.randint(1, 9))
    a, b = acc(shape, config, "a"), acc(shape, config, "b")
    factor = random.randint(-128, 127)
    doubled = te.compute(like(shape, config), lambda *at: te.cast(b[at], "int32") * 2, name="doubled")
    return te.compute(
        like(shape, config),
        lambda *at: narrow((te.cast(a[at], "int32") * factor + doubled[at]) // 4 - 3),
        name="added",
    )


def scaled(random: Random, config: Config) -> te.Tensor:
    """Sums, shifted by a count for each channel, to the right or to the left; and whether they were odd, subtracted."""
    shape = (2, random.randint(1, 6), random.randint(1, 6))
    a = acc(shape, config, "a", Scratchpad.ACC)
    counts = acc((2,), config, "counts", Scratchpad.ACC)
    moved = te.compute(
        like(shape, config), lambda c, y, x, b, o: shift(a[c, y, x, b, o], counts[c, b, o]), name="moved"
    )
    odd = te.compute(like(shape, config), lambda *at: (moved[at] << 31) >> 31, name="odd")
    return te.compute(like(shape, config), lambda *at: narrow(moved[at] + odd[at]), name="scaled")


EXPRESSIONS: dict[str, Callable[[Random, Config], te.Tensor]] = {
    one.__name__: one for one in (convolution, residual, dense, pooled, averaged, added, scaled)
}
CONFIGS = (VTA, BATCHES, SMALL)

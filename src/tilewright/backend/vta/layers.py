"""Layers of networks as tensor expressions of tiles: what a schedule for the accelerator begins with.

Arrays have tiles as elements: data (channel blocks, height, width) of inp, filters (filter blocks, channel blocks,
kernel height, kernel width) of wgt, results (filter blocks, out height, out width) of out (``packing``).
"""

from dataclasses import dataclass

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.symbolic.expr import Expr, cast, const, select
from tilewright.tensor.build import compute, placeholder, reduce_axis
from tilewright.tensor.functions import clip
from tilewright.tensor.ir import Reduction, Tensor
from tilewright.tensor.reducers import sum as sum_of


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of whole tiles: ``channels`` and ``filters`` are numbers of blocks. Padding is on all sides."""

    height: int
    width: int
    channels: int
    filters: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    shift: int = 8
    """The sums (modulo 2^32) are divided by 2^shift, rounded down, and clipped to the elements of out."""
    dilation: int = 1
    """From a position of the filter to the next one, in pixels."""

    def __post_init__(self) -> None:
        least = {"padding": 0, "shift": 0}
        for name in self.__slots__:
            if (value := getattr(self, name)) < least.get(name, 1):
                raise BadProgram(f"Convolution: {name}={value} is impossible; the least is {least.get(name, 1)}")
        if self.padding >= self.span:
            raise BadProgram(f"Convolution: padding={self.padding} is more than a filter of {self.span} covers")
        if self.out_height < 1 or self.out_width < 1:
            raise BadProgram(f"Convolution: {self.height} x {self.width} is smaller than the filter of {self.span}")

    @property
    def span(self) -> int:
        """Pixels along a side of the filter, those that dilation leaves out included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def is_sparse(self) -> bool:
        """Whether there are rows that no filter reads."""
        return self.kernel == 1 and self.stride > 1

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return (self.height + 2 * self.padding - self.span) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the result."""
        return (self.width + 2 * self.padding - self.span) // self.stride + 1

    @property
    def products(self) -> int:
        """Micro-ops of GEMM, whatever the schedule."""
        return self.out_height * self.out_width * self.channels * self.filters * self.kernel**2


def matmul(rows: int, columns: int, depth: int, shift: int = 8) -> Convolution:
    """A matrix product of whole tiles as a convolution: an image of one line whose pixels are the blocks of rows.

    Data are (depth, 1, rows) tiles, filters (columns, depth, 1, 1), results (columns, 1, rows).
    """
    return Convolution(1, rows, channels=depth, filters=columns, shift=shift)


def convolution_tensor(layer: Convolution, config: Config) -> Tensor:
    """The result of a convolution of ``data`` by ``filters``: shifted, and clipped to the elements of out."""
    sums = convolution_sums(layer, config)
    return quantized(sums, layer.shift, config)


def convolution_sums(layer: Convolution, config: Config) -> Tensor:
    """The sums of a convolution, in 32 bits."""
    size, step, apart = layer.kernel, layer.stride, layer.dilation
    image = _image(layer, config)
    filters = tiles((layer.filters, layer.channels, size, size), Scratchpad.WGT, config, "filters")
    c, dy, dx = (reduce_axis((0, extent), name) for extent, name in ((layer.channels, "c"), (size, "dy"), (size, "dx")))
    i = reduce_axis((0, config.block_in), "i")
    rows = 1 if layer.is_sparse else step

    def product(f: Expr, y: Expr, x: Expr, b: Expr, o: Expr) -> Reduction:
        pixel = image[c, y * rows + dy * apart, x * step + dx * apart, b, i]
        return sum_of(cast(pixel, dtypes.i32) * cast(filters[f, c, dy, dx, o, i], dtypes.i32), axis=(c, dy, dx, i))

    shape = (layer.filters, layer.out_height, layer.out_width, *config.tile_shape(Scratchpad.ACC))
    return compute(shape, product, name="sums")


def _image(layer: Convolution, config: Config) -> Tensor:
    """The data with zeros around; without the rows that no filter reads, where filters have one pixel."""
    pad, height, width = layer.padding, layer.height, layer.width
    data = tiles((layer.channels, height, width), Scratchpad.INP, config, "data")

    def pixel(c: Expr, y: Expr, x: Expr, b: Expr, i: Expr) -> Expr:
        if layer.is_sparse:
            return data[c, y * layer.stride, x, b, i]
        if not pad:
            return data[c, y, x, b, i]
        inside = (y >= pad) & (y < height + pad) & (x >= pad) & (x < width + pad)
        return select(inside, data[c, y - pad, x - pad, b, i], const(0, data.dtype))

    rows = layer.out_height if layer.is_sparse else height + 2 * pad
    shape = (layer.channels, rows, width + 2 * pad, *config.tile_shape(Scratchpad.INP))
    return compute(shape, pixel, name="image")


def quantized(sums: Tensor, shift: int, config: Config) -> Tensor:
    """Divided by 2^shift, rounded down, and clipped to the elements of out."""
    bits = config.out_bits
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    clipped = compute(sums.shape, lambda *at: clip(sums[at] >> shift, least, most), name="clipped")
    return compute(sums.shape, lambda *at: cast(clipped[at], element(Scratchpad.OUT, config)), name="result")


def tiles(shape: tuple[int, ...], pad: Scratchpad, config: Config, name: str) -> Tensor:
    """An array of tiles of a memory."""
    return placeholder((*shape, *config.tile_shape(pad)), element(pad, config), name)


def element(pad: Scratchpad, config: Config) -> DType:
    """The type of a memory's elements."""
    return dtypes.from_numpy(config.dtype(pad))

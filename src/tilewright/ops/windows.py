"""Sliding windows over the spatial dimensions of ``[batch, channels, spatial...]``, for convolution and pooling.

Along each spatial dimension, tap ``k`` of the window of output ``y`` reads position ``y * stride + k * dilation`` of
the padded input (ONNX, operators Conv and MaxPool; Dumoulin and Visin, "A guide to convolution arithmetic", 2016).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.shapes import Shape, show, simplified
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import ONE, TRUE, ZERO, Const, Expr, ExprLike, as_expr, maximum, minimum, select
from tilewright.tensor import build as te
from tilewright.tensor.ir import Tensor


@dataclass(frozen=True, slots=True)
class Window:
    """The window of one operator; each field has one entry for each spatial dimension."""

    kernel: Shape
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int | Expr, ...]
    """Padding before the first element."""
    ends: tuple[int | Expr, ...]
    """Padding after the last element."""

    @property
    def reach(self) -> Shape:
        """The extent from the first tap to the last, both included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def is_padded(self) -> bool:
        """Whether there is any padding."""
        return any(pad != 0 for pad in (*self.begins, *self.ends))

    def outputs(self, spatial: Shape, ceil: bool = False) -> Shape:
        """The number of window positions in ``spatial`` with its padding.

        ``ceil``: the last window may extend beyond the end, but starts within the input or the padding before it.
        Raises ``BadProgram`` if there is none.
        """
        return tuple(self._outputs(dim, extent, ceil) for dim, extent in enumerate(spatial))

    def _outputs(self, dim: int, extent: Expr, ceil: bool) -> Expr:
        begin, end, stride = self.begins[dim], self.ends[dim], self.strides[dim]
        room = simplified(extent + begin + end - self.reach[dim])
        if isinstance(room, Const) and room.value < 0:
            raise BadProgram(
                f"the window reaches over {simplified(self.reach[dim])} elements of spatial dimension {dim}, which has "
                f"{extent} and {begin} + {end} of padding; use a smaller kernel_shape or dilation, or larger pads"
            )
        if not ceil:
            return simplified(room // stride + 1)
        return simplified(minimum((room + (stride - 1)) // stride, (extent + begin - 1) // stride) + 1)

    def taps(self) -> tuple[IterVar, ...]:
        """A reduction axis for each spatial dimension."""
        return tuple(te.reduce_axis((0, k), name=f"k{dim}") for dim, k in enumerate(self.kernel))

    def positions(self, outputs: Sequence[Expr], taps: Sequence[ExprLike]) -> Index:
        """The positions in the padded input of the ``taps`` of the windows of ``outputs``."""
        moves = zip(outputs, taps, self.strides, self.dilations, strict=True)
        return tuple(y * stride + as_expr(k) * dilation for y, k, stride, dilation in moves)

    def padded(self, x: Tensor, value: Expr, outputs: Shape) -> tuple[Tensor, "Window"]:
        """``x`` padded with ``value``, and the window over it; ``x`` itself if no window of ``outputs`` leaves it.

        A separate stage, as the window reads each element many times and would check its bounds each time. Positions
        that no window reads, between strides and dilations with a common factor, are left out.
        """
        spatial = x.shape[2:]
        if self.stays_within(spatial, outputs):
            return x, self
        extents = self._padded_extents(spatial, outputs)
        steps = tuple(map(self._step, range(len(spatial))))

        def body(index: Index) -> Expr:
            inner = tuple(i * step - begin for i, step, begin in zip(index[2:], steps, self.begins, strict=True))
            inside: Expr = TRUE
            for i, extent, padded, begin in zip(inner, spatial, extents, self.begins, strict=True):
                inside = inside & (i >= ZERO) if begin != 0 else inside
                inside = inside & (i < extent) if simplified(extent + begin) != padded else inside
            return select(inside, x[(*index[:2], *inner)], value)

        kept = tuple(simplified((e - 1) // step + 1) for e, step in zip(extents, steps, strict=True))
        return tensor((*x.shape[:2], *kept), body, name="padded"), self._over_every(steps)

    def stays_within(self, spatial: Shape, outputs: Shape) -> bool:
        """Whether no window of ``outputs`` leaves an input of these ``spatial`` extents."""
        return not self.is_padded and self._padded_extents(spatial, outputs) == spatial

    def _step(self, dim: int) -> int:
        """Windows read no positions but multiples of it."""
        dilation = 0 if as_expr(self.kernel[dim]) == ONE else self.dilations[dim]
        return gcd(self.strides[dim], dilation)

    def _over_every(self, steps: Sequence[int]) -> "Window":
        """The window over every position at a multiple of ``steps`` of its padded input."""
        none = (0,) * len(steps)
        strides, dilations = (
            tuple(max(1, by // step) for by, step in zip(moves, steps, strict=True))
            for moves in (self.strides, self.dilations)
        )
        return Window(self.kernel, strides, dilations, none, none)

    def _padded_extents(self, spatial: Shape, outputs: Shape) -> Shape:
        return tuple(map(self._padded_extent, range(len(spatial)), spatial, outputs))

    def _padded_extent(self, dim: int, extent: Expr, outputs: Expr) -> Expr:
        """The shape of input and padding, and of the elements that the last window needs beyond (in ceiling mode)."""
        own = extent + self.begins[dim] + self.ends[dim]
        needed = (outputs - 1) * self.strides[dim] + self.reach[dim]
        return simplified(maximum(own, needed)) if simplified(needed) != simplified(own) else simplified(own)

    def taps_within(self, dim: int, output: Expr, low: ExprLike, high: ExprLike) -> Expr:
        """The number of taps of the window of ``output`` at positions ``low <= p < high`` of the padded dimension."""
        start, dilation = output * self.strides[dim], self.dilations[dim]
        first = maximum(as_expr(low) - start + (dilation - 1), ZERO) // dilation
        end = minimum((as_expr(high) - start + (dilation - 1)) // dilation, self.kernel[dim])
        return maximum(end - first, ZERO)


def window(
    x: Tensor,
    kernel: Shape,
    strides: Sequence[int] | None,
    pads: Sequence[int | Expr] | None,
    dilations: Sequence[int] | None,
) -> Window:
    """The window over ``x`` that these attributes of an operator describe; ``pads``: all begins, then all ends (ONNX).

    A negative pad cuts elements off. Raises ``BadProgram`` for a kernel, stride or dilation below 1, or a number of
    entries that is not that of the spatial dimensions.
    """
    rank = x.ndim - 2
    if rank < 1:
        raise BadProgram(f"{x} has no spatial dimensions; give it the shape [batch, channels, spatial...]")
    given = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    for name, values in given.items():
        if values is not None:
            _check_count(name, values, rank)
            _check_positive(name, values)
    padding = tuple(pads or (0,) * (2 * rank))
    _check_count("pads", padding, 2 * rank)
    ones = (1,) * rank
    return Window(kernel, tuple(strides or ones), tuple(dilations or ones), padding[:rank], padding[rank:])


def _check_count(name: str, values: Sequence[int | Expr], count: int) -> None:
    if len(values) != count:
        raise BadProgram(f"{name} {show(values)} has {len(values)} entries; {count} are needed")


def _check_positive(name: str, values: Sequence[int | Expr]) -> None:
    for value in values:
        number = value.value if isinstance(value, Const) else value
        if isinstance(number, int | float) and number < 1:
            raise BadProgram(f"{name} {show(values)} must be at least 1 each")


def same_pads(
    spatial: Shape, kernel: Shape, strides: Sequence[int], dilations: Sequence[int], upper: bool
) -> tuple[int | Expr, ...]:
    """The pads that give ``ceil(extent / stride)`` outputs; the odd one at the end if ``upper``."""
    begins: list[int | Expr] = []
    ends: list[int | Expr] = []
    for extent, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        outputs = (extent + (stride - 1)) // stride
        total = maximum(simplified((outputs - 1) * stride + (k - 1) * dilation + 1 - extent), ZERO)
        less, more = total // 2, (total + 1) // 2
        begins.append(number(less if upper else more))
        ends.append(number(more if upper else less))
    return (*begins, *ends)


def number(extent: Expr) -> int | Expr:
    """``extent`` simplified, as an int if it is known."""
    known = simplified(extent)
    return int(known.value) if isinstance(known, Const) else known

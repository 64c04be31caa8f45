"""Pooling over ``[batch, channels, spatial...]``, in any number of spatial dimensions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.dtypes import i64
from tilewright.base.errors import BadProgram
from tilewright.loops.extern import extern, for_range, seq, store
from tilewright.loops.ir import Buffer, Stmt
from tilewright.ops.batches import windowed
from tilewright.ops.build import Index, accumulator, tensor
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.reduction import power_of, root_of
from tilewright.ops.shapes import Shape, element_count, place_of, same_extent
from tilewright.ops.windows import Window, window
from tilewright.symbolic.check import Origin, checked
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import ONE, TRUE, Expr, as_expr, binary, cast, const, select
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.sizes import flat_index
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


@dataclass(frozen=True, slots=True)
class _Pool:
    """The windows of ``outputs`` over ``x``, and a reduction axis for each of their dimensions."""

    x: Tensor
    sliding: Window
    outputs: Shape
    taps: tuple[IterVar, ...]

    @property
    def spatial(self) -> Shape:
        """The spatial extents of the input."""
        return self.x.shape[2:]

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return *self.x.shape[:2], *self.outputs

    def reduced(self, reduce: Callable[[Expr], Reduction], around: Expr) -> Tensor:
        """The elements of each window, reduced over the taps; ``around`` is what the input is padded with."""
        source, over = self.sliding.padded(self.x, around, self.outputs)
        return tensor(self.shape, lambda i: reduce(source[(*i[:2], *over.positions(i[2:], self.taps))]))

    @property
    def is_whole(self) -> bool:
        """Whether every window lies within the input."""
        return self.sliding.stays_within(self.spatial, self.outputs)


def _pool(
    x: Tensor,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None,
    pads: Sequence[int | Expr] | None,
    dilations: Sequence[int] | None,
    ceil_mode: bool,
) -> _Pool:
    """Raises ``BadProgram`` for attributes that do not fit each other or ``x``."""
    sliding = window(x, tuple(map(as_expr, kernel_shape)), strides, pads, dilations)
    return _Pool(x, sliding, sliding.outputs(x.shape[2:], ceil_mode), sliding.taps())


@operator("MaxPool", FusionKind.REDUCTION, Trait.POOLS, batched=windowed)
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int | Expr] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The largest element of each window, NaN if there is one; padding is never the largest.

    ONNX does not define the maximum with NaN: its reference ignores NaN (and fails if there is nothing else), ONNX
    Runtime's result depends on its position in the window. Here, as in PyTorch, NaN propagates.
    """
    pool = _pool(x, kernel_shape, strides, pads, dilations, ceil_mode)
    return pool.reduced(lambda value: te.max(value, axis=pool.taps), te.min_value(x.dtype))


@operator("MaxPoolWithIndices", FusionKind.REDUCTION)
def max_pool_with_indices(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int | Expr] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: bool = False,
    column_major: bool = False,
) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and its flat index in ``x``; of equal ones the first, NaN before numbers.

    ``column_major``: the index counts the spatial dimensions in reverse order.
    """
    pool = _pool(x, kernel_shape, strides, pads, dilations, ceil_mode)
    spatial = pool.spatial

    def search(*index: Expr) -> te.TupleReduction:
        padded = pool.sliding.positions(index[2:], pool.taps)
        place = tuple(i - begin for i, begin in zip(padded, pool.sliding.begins, strict=True))
        inside: Expr = TRUE
        for i, extent in zip(place, spatial, strict=True):
            inside = inside & (i >= 0) & (i < extent)
        return te.argmax((flat_index(place, spatial), x[(*index[:2], *place)]), axis=pool.taps, where=inside)

    places, values = te.compute(pool.shape, search)
    size = element_count(spatial)

    def locate(index: Index) -> Expr:
        place = places[index]
        if column_major:
            place = flat_index(place_of(place, spatial)[::-1], spatial[::-1])
        return cast((index[0] * x.shape[1] + index[1]) * size + place, i64)

    return tensor(values.shape, lambda index: values[index]), tensor(values.shape, locate)


@operator("LpPool", FusionKind.REDUCTION, Trait.POOLS)
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int | Expr] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: bool = False,
    p: int = 2,
) -> Tensor:
    """The ``p``-norm of each window."""
    pool = _pool(x, kernel_shape, strides, pads, dilations, ceil_mode)
    wide = accumulator(x.dtype)

    def add(value: Expr) -> Reduction:
        return te.sum(power_of(cast(value, wide), p), axis=pool.taps)

    total = pool.reduced(add, const(0, x.dtype))
    return tensor(total.shape, lambda index: cast(root_of(total[index], p), x.dtype))


@operator("AveragePool", FusionKind.REDUCTION, Trait.POOLS, batched=windowed)
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    pads: Sequence[int | Expr] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Tensor:
    """The mean of each window over elements of the input, or of input and padding with ``count_include_pad``.

    Elements beyond the padding (in ceiling mode) never count. A window of padding only gives 0.
    """
    pool = _pool(x, kernel_shape, strides, pads, dilations, ceil_mode)
    wide = accumulator(x.dtype)
    total = pool.reduced(lambda value: te.sum(cast(value, wide), axis=pool.taps), const(0, x.dtype))
    is_whole = pool.is_whole

    def divide(index: Index) -> Expr:
        count = element_count(pool.sliding.kernel) if is_whole else _counted(pool, index[2:], count_include_pad)
        return cast(binary(BinaryOp.DIV, total[index], cast(count, wide)), x.dtype)

    return tensor(total.shape, divide)


def _counted(pool: _Pool, outputs: Sequence[Expr], padding: bool) -> Expr:
    """The divisor of a window: its number of counted elements, at least 1."""
    count: Expr = ONE
    sliding = pool.sliding
    for dim, (extent, output) in enumerate(zip(pool.spatial, outputs, strict=True)):
        begin, end = sliding.begins[dim], sliding.ends[dim]
        high = extent + begin + end if padding else extent + begin
        count = count * sliding.taps_within(dim, output, 0 if padding else begin, high)
    return select(count > 0, count, ONE)


@operator("MaxUnpool", FusionKind.OPAQUE)
def max_unpool(x: Tensor, places: Tensor, *, spatial: Sequence[int], output: Sequence[int] | None = None) -> Tensor:
    """Zeros ``[N, C, *spatial]`` with the elements of ``x`` at the flat indices ``places``.

    Of several elements at one index the last is kept; an index outside makes the run raise ``IndexOutOfRange``.
    ``output``: a larger shape, padded at the ends.
    """
    if not all(map(same_extent, x.shape, places.shape)) or x.ndim != places.ndim or not places.dtype.is_int:
        raise BadProgram(f"the indices {places} must be integers of the shape of {x}")
    shape = (*x.shape[:2], *map(const, spatial))
    final = shape if output is None else tuple(map(const, output))
    if len(final) != len(shape):
        raise BadProgram(f"the output shape {list(final)} must have {len(shape)} dimensions")
    total = element_count(shape)

    def scatter(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        (values, targets), (flat,) = inputs, outputs

        def put(index: Index) -> Stmt:
            if len(index) < x.ndim:
                return for_range(x.shape[len(index)], lambda i: put((*index, i)), name=f"i{len(index)}")
            return store(flat, checked(targets[index], total, Origin("MaxUnpool", "I")), values[index])

        return seq(for_range(total, lambda i: store(flat, i, 0), name="at"), put(()))

    (flat,) = extern([(total,)], [x, places], scatter, dtype=[x.dtype], name="unpooled")

    def body(index: Index) -> Expr:
        inside: Expr = TRUE
        for i, extent, whole in zip(index, shape, final, strict=True):
            inside = inside if extent == whole else inside & (i < extent)
        return select(inside, flat[flat_index(index, shape)], const(0, x.dtype))

    return tensor(final, body)

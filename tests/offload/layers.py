"""Units with random numbers, and what NumPy makes of them."""

from collections.abc import Iterator, Mapping
from random import Random

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import i8
from tilewright.graph import Node, Value
from tilewright.offload.rounding import Rounding
from tilewright.offload.units import Addition, Axis, Pooling, Product, Unit
from tilewright.ops.operator import require
from tilewright.symbolic.expr import const

Codes = NDArray[np.int8]


def value(name: str, *shape: int) -> Value:
    return Value(name, i8, tuple(map(const, shape)))


def shape_of(found: Value) -> tuple[int, ...]:
    return tuple(int(str(extent)) for extent in found.shape)


def _nodes(result: Value) -> tuple[Node, ...]:
    return (Node(require("Conv"), (), (result,), source=f"node {result.name}"),)


def random_product(random: Random, data: Value, name: str, filters: int, group: int = 0) -> Product:
    """Of any window, with shifts of its own for each filter, or one for all. ``group``: channels of a group, if any."""
    numbers = np.random.default_rng(random.getrandbits(32))
    shape = shape_of(data)
    whole, *size = shape[1:] if len(shape) == 4 else (shape[1], 1, shape[0])
    channels, groups = group or whole, whole // group if group else 1
    rows, columns = (_axis(random, extent) if len(shape) == 4 else Axis(extent) for extent in size)
    weights = numbers.integers(-127, 128, (filters, channels, rows.taps, columns.taps)).astype(np.int8)
    usual = int(np.log2(np.sqrt(channels * rows.taps * columns.taps) * 73 * 73 / 60))
    shifts = usual + (numbers.integers(-2, 3, filters) if random.random() < 0.6 else np.zeros(filters, np.int64))
    if random.random() < 0.3:
        shifts[0] = random.choice((-2, 0, 30))
    rounding = Rounding(
        numbers.integers(-5000, 5000, filters), shifts, random.choice((-128, 0)), random.choice((127, 90))
    )
    result = value(name, *((1, filters, rows.outputs, columns.outputs) if len(shape) == 4 else (shape[0], filters)))
    return Product(_nodes(result), data, result, rows, columns, weights, rounding, groups)


def random_grouped(random: Random, data: Value, name: str) -> Product:
    """A product with as many filters as channels, in groups."""
    channels = shape_of(data)[1]
    group = random.choice([size for size in (1, 1, 2, 4) if channels % size == 0])
    return random_product(random, data, name, channels, group)


def random_pooling(random: Random, data: Value, name: str) -> Pooling:
    _, channels, *size = shape_of(data)
    rows, columns = (_axis(random, extent) for extent in size)
    result = value(name, 1, channels, rows.outputs, columns.outputs)
    low, high = random.choice(((-128, 127), (-128, 127), (0, 127), (-20, 90)))
    return Pooling(_nodes(result), data, result, rows, columns, low, high)


def _axis(random: Random, extent: int) -> Axis:
    taps, dilation = random.choice((1, 1, 2, 3)), random.choice((1, 1, 2))
    reach = (taps - 1) * dilation
    if reach >= extent:
        return Axis(extent)
    before, after = random.randint(0, reach), random.randint(0, reach)
    return Axis(extent, taps, random.choice((1, 1, 2, 3)), before, after, dilation)


def random_addition(random: Random, data: tuple[Value, Value], name: str) -> Addition:
    left = random.choice(((0, 0), (0, 3), (2, 0)))
    result = value(name, *shape_of(data[0]))
    return Addition(_nodes(result), data, result, left, random.randint(-1, 5), random.choice((-128, 0)), 127)


def computed(unit: Unit, values: Mapping[Value, Codes]) -> Codes:
    """The result, rounded to even by NumPy."""
    if isinstance(unit, Addition):
        a, b = (values[v].astype(np.int64) << left for v, left in zip(unit.data, unit.left, strict=True))
        return _rounded(a + b, np.int64(unit.shift), unit.low, unit.high)
    data = values[unit.data].astype(np.int64)
    if isinstance(unit, Pooling):
        return np.clip(_largest(unit, data), unit.low, unit.high).astype(np.int8)
    image = data.T[None, :, None, :] if data.ndim == 2 else data
    sums = _sums(unit, image) + unit.rounding.addends[None, :, None, None]
    found = _rounded(sums, unit.rounding.shifts[None, :, None, None], unit.rounding.low, unit.rounding.high)
    return found[0, :, 0, :].T if data.ndim == 2 else found


def _taps(
    unit: Product | Pooling, image: NDArray[np.int64], around: int
) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """What each position of a window sees."""
    rows, columns = unit.rows, unit.columns
    widths = ((0, 0), (0, 0), (rows.before, rows.after), (columns.before, columns.after))
    padded = np.pad(image, widths, constant_values=around)
    for y in range(rows.taps):
        for x in range(columns.taps):
            part = padded[:, :, y * rows.dilation :: rows.stride, x * columns.dilation :: columns.stride]
            yield y, x, part[:, :, : rows.outputs, : columns.outputs]


def _sums(unit: Product, image: NDArray[np.int64]) -> NDArray[np.int64]:
    found = np.zeros((1, unit.filters, unit.rows.outputs, unit.columns.outputs), np.int64)
    size = unit.weights.shape[1]
    for y, x, part in _taps(unit, image, 0):
        for f, weights in enumerate(unit.weights[:, :, y, x].astype(np.int64)):
            first = f // size * size if unit.groups > 1 else 0
            found[:, f] += np.einsum("nchw,c->nhw", part[:, first : first + size], weights)
    return found


def _largest(unit: Pooling, image: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.max([part for _, _, part in _taps(unit, image, -1000)], axis=0)


def _rounded(sums: NDArray[np.int64], shift: NDArray[np.int64] | np.int64, low: int, high: int) -> Codes:
    """``np.rint`` rounds ties to even, and so many bits are exact in float64."""
    return np.clip(np.rint(np.ldexp(sums.astype(np.float64), -shift)), low, high).astype(np.int8)

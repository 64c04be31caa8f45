"""Units as tensor expressions of tiles, and their schedules: what the accelerator's compiler makes programs of.

A *form* is all of a unit but its numbers and its place in a model. Units of one form have one schedule.
"""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.layers import tiles
from tilewright.backend.vta.schedules import chosen, schedule_tiles
from tilewright.base import dtypes
from tilewright.base.errors import BadProgram
from tilewright.graph import Value
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.offload.rounding import Index, RoundingForm, Table, half, rounded
from tilewright.offload.units import Addition, Axis, Image, Pooling, Product, Unit, image_of
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import TRUE, Expr, cast, const, select
from tilewright.symbolic.traversal import all_of
from tilewright.tensor.build import compute, reduce_axis
from tilewright.tensor.functions import clip
from tilewright.tensor.ir import Reduction, Tensor
from tilewright.tensor.reducers import max as max_of
from tilewright.tensor.reducers import min_value
from tilewright.tensor.reducers import sum as sum_of
from tilewright.tune.accelerator import kept_schedule
from tilewright.tune.recorded import stamp

LEAST, MOST = -128, 127
"""Of bytes."""
RESULT = "result"
DATA, WEIGHTS = "data", "weights"
FIRST, SECOND = "first", "second"


@dataclass(frozen=True, slots=True)
class ProductForm:
    """A product; ``channels`` and ``filters`` are blocks.

    ``is_grouped``: each block of filters has the channels of one block of data, one that has its number.
    """

    rows: Axis
    columns: Axis
    channels: int
    filters: int
    rounding: RoundingForm
    is_grouped: bool = False

    @property
    def products(self) -> int:
        """Micro-ops of GEMM, whatever the schedule."""
        taps = self.rows.taps * self.columns.taps
        return self.rows.outputs * self.columns.outputs * self.channels * self.filters * taps


@dataclass(frozen=True, slots=True)
class AdditionForm:
    """An addition of images of so many tiles, which are shifted to the left before."""

    tiles: tuple[int, int, int]
    left: tuple[int, int]
    rounding: RoundingForm


@dataclass(frozen=True, slots=True)
class PoolingForm:
    """The largest of each window; ``channels`` are blocks."""

    rows: Axis
    columns: Axis
    channels: int
    low: int
    high: int


Form: TypeAlias = ProductForm | AdditionForm | PoolingForm


def form_of(unit: Unit, config: Config) -> Form:
    """The form of a unit."""
    match unit:
        case Product():
            channels, filters = -(-unit.channels // config.block_in), -(-unit.filters // config.block_out)
            form = ProductForm(unit.rows, unit.columns, channels, filters, unit.rounding.form)
            return form if unit.groups == 1 else replace(form, channels=1, is_grouped=True)
        case Addition():
            return addition_form(unit, _image_of(unit.result), config)
        case Pooling():
            channels = _image_of(unit.result).blocks(config)
            return PoolingForm(unit.rows, unit.columns, channels, unit.low, unit.high)


def _image_of(value: Value) -> Image:
    image = image_of(value)
    assert image is not None, "units have images"
    return image


def addition_form(unit: Addition, image: Image, config: Config) -> AdditionForm:
    """That of an addition of images of a size."""
    rounding = RoundingForm(unit.shift, unit.shift > 0, unit.low, unit.high)
    return AdditionForm(image.tiles(config), unit.left, rounding)


def naive_of(form: Form, config: Config) -> Program:
    """A unit as a program that is not scheduled."""
    return lower(tensor_of(form, config), "unit")


def scheduled(form: Form, config: Config, timing: Timing, records: Path | None = None) -> Program | None:
    """The scheduled program: the fastest one that ``records`` have, or else that with the tiles that are estimated to
    take least cycles; None if none fits the memories."""
    return _scheduled(form, config, timing, records, stamp(records))


@functools.lru_cache(maxsize=256)
def _scheduled(form: Form, config: Config, timing: Timing, records: Path | None, _: str) -> Program | None:
    naive = naive_of(form, config)
    kept = None if records is None else kept_schedule(naive, config, timing, records)
    if kept is not None:
        return kept.program
    try:
        sizes = chosen(naive, config, timing)
    except BadProgram:
        return None
    s = Schedule(naive)
    schedule_tiles(s, sizes, config)
    return s.program


def tensor_of(form: Form, config: Config) -> Tensor:
    """The result of a unit; its operands are named by the constants above, and by ``Table``."""
    match form:
        case ProductForm():
            return _product(form, config)
        case AdditionForm():
            return _addition(form, config)
        case PoolingForm():
            return _pooling(form, config)


def _product(form: ProductForm, config: Config) -> Tensor:
    rows, columns = form.rows, form.columns
    image, row_step = _image(form, config), 1 if _is_sparse(rows) else rows.stride
    weights = tiles((form.filters, form.channels, rows.taps, columns.taps), Scratchpad.WGT, config, WEIGHTS)
    c, i = reduce_axis((0, form.channels), "c"), reduce_axis((0, config.block_in), "i")
    dy, dx = reduce_axis((0, rows.taps), "dy"), reduce_axis((0, columns.taps), "dx")

    def product(f: Expr, y: Expr, x: Expr, b: Expr, o: Expr) -> Reduction:
        block, own = (f, const(0)) if form.is_grouped else (c.var, c.var)
        pixel = image[block, y * row_step + dy * rows.dilation, x * columns.stride + dx * columns.dilation, b, i]
        weight = weights[f, own, dy, dx, o, i]
        axes = (dy, dx, i) if form.is_grouped else (c, dy, dx, i)
        return sum_of(cast(pixel, dtypes.i32) * cast(weight, dtypes.i32), axis=axes)

    shape = (form.filters, rows.outputs, columns.outputs, *config.tile_shape(Scratchpad.ACC))
    sums = compute(shape, product, name="sums")
    known = (Table.ADDENDS, *form.rounding.tables)
    tables = {table: tiles((form.filters,), Scratchpad.ACC, config, table.value) for table in known}
    addends = tables[Table.ADDENDS]

    def biased(*at: Expr) -> Expr:
        channel, *_, row, element = at
        return sums[at] + addends[channel, row, element]

    return rounded(compute(shape, biased, name="biased"), form.rounding, tables)


def _is_sparse(axis: Axis) -> bool:
    """Whether no filter reads what is between two positions of the result."""
    return axis.taps == 1 and axis.stride > 1


def _image(form: ProductForm, config: Config) -> Tensor:
    """The data with zeros around; without the rows that no filter reads."""
    rows, columns = form.rows, form.columns
    blocks = form.filters if form.is_grouped else form.channels
    data = tiles((blocks, rows.extent, columns.extent), Scratchpad.INP, config, DATA)
    step = rows.stride if _is_sparse(rows) else 1
    height = rows.outputs if _is_sparse(rows) else rows.before + rows.extent + rows.after
    width = columns.before + columns.extent + columns.after

    def pixel(c: Expr, y: Expr, x: Expr, b: Expr, i: Expr) -> Expr:
        row, column = y * step - rows.before, x - columns.before
        inside = all_of(_within(row, rows), _within(column, columns))
        return select(inside, data[c, row, column, b, i], const(0, data.dtype))

    return compute((blocks, height, width, *config.tile_shape(Scratchpad.INP)), pixel, name="image")


def _within(position: Expr, axis: Axis) -> Expr:
    """Whether a position of an image with zeros around is of the image."""
    least = position >= 0 if axis.before else TRUE
    return all_of(least, position < axis.extent) if axis.after else least


def _addition(form: AdditionForm, config: Config) -> Tensor:
    first, second = (tiles(form.tiles, Scratchpad.ACC8, config, name) for name in (FIRST, SECOND))
    shape, (left, right), shift = first.shape, form.left, form.rounding.shift
    assert shift is not None, "an addition has one shift"

    def summed(at: Index) -> Expr:
        value = cast(first[at], dtypes.i32) << left if left else cast(first[at], dtypes.i32)
        value += cast(scaled[at], dtypes.i32)
        return value + half(shift) if half(shift) else value

    scaled = compute(shape, lambda *at: cast(second[at], dtypes.i32) << right, name="scaled") if right else second
    sums = compute(shape, lambda *at: summed(at), name="sums")
    return rounded(sums, form.rounding, {})


def _pooling(form: PoolingForm, config: Config) -> Tensor:
    rows, columns = form.rows, form.columns
    data = tiles((form.channels, rows.extent, columns.extent), Scratchpad.ACC8, config, DATA)
    dy, dx = reduce_axis((0, rows.taps), "dy"), reduce_axis((0, columns.taps), "dx")

    def largest(c: Expr, y: Expr, x: Expr, b: Expr, o: Expr) -> Reduction:
        row = y * rows.stride + dy * rows.dilation - rows.before
        column = x * columns.stride + dx * columns.dilation - columns.before
        inside = all_of(_within(row, rows), _within(column, columns))
        return max_of(select(inside, data[c, row, column, b, o], min_value(data.dtype)), axis=(dy, dx))

    shape = (form.channels, rows.outputs, columns.outputs, *config.tile_shape(Scratchpad.ACC))
    pooled = compute(shape, largest, name="pooled")
    if (form.low, form.high) != (LEAST, MOST):
        limited = compute(shape, lambda *at: clip(pooled[at], form.low, form.high), name="limited")
        return compute(shape, lambda *at: limited[at], name=RESULT)
    return compute(shape, lambda *at: pooled[at], name=RESULT)

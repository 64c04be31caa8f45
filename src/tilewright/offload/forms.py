"""Units as tensor expressions of tiles, and their schedules: what the accelerator's compiler makes programs of.

A *form* is all of a unit but its numbers and its place in a model. Units of one form have one schedule.
"""

import functools
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.layers import tiles
from tilewright.backend.vta.schedules import chosen, schedule_tiles
from tilewright.base import dtypes
from tilewright.base.errors import BadProgram
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.offload.rounding import Index, RoundingForm, Table, half, rounded
from tilewright.offload.units import Addition, Axis, Image, Product, Unit, image_of
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import TRUE, Expr, cast, const, select
from tilewright.symbolic.traversal import all_of
from tilewright.tensor.build import compute, reduce_axis
from tilewright.tensor.ir import Reduction, Tensor
from tilewright.tensor.reducers import sum as sum_of

RESULT = "result"
DATA, WEIGHTS = "data", "weights"
FIRST, SECOND = "first", "second"


@dataclass(frozen=True, slots=True)
class ProductForm:
    """A product; ``channels`` and ``filters`` are blocks."""

    rows: Axis
    columns: Axis
    channels: int
    filters: int
    rounding: RoundingForm

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


Form: TypeAlias = ProductForm | AdditionForm


def form_of(unit: Unit, config: Config) -> Form:
    """The form of a unit."""
    if isinstance(unit, Product):
        blocks = -(-unit.channels // config.block_in), -(-unit.filters // config.block_out)
        return ProductForm(unit.rows, unit.columns, *blocks, unit.rounding.form)
    image = image_of(unit.result)
    assert image is not None, "units have images"
    return addition_form(unit, image, config)


def addition_form(unit: Addition, image: Image, config: Config) -> AdditionForm:
    """That of an addition of images of a size."""
    rounding = RoundingForm(unit.shift, unit.shift > 0, unit.low, unit.high)
    return AdditionForm(image.tiles(config), unit.left, rounding)


@functools.lru_cache(maxsize=256)
def scheduled(form: Form, config: Config, timing: Timing) -> Program | None:
    """The scheduled program with the tiles that are estimated to take least cycles; None if none fits the memories."""
    naive = lower(tensor_of(form, config), "unit")
    try:
        sizes = chosen(naive, config, timing)
    except BadProgram:
        return None
    s = Schedule(naive)
    schedule_tiles(s, sizes, config)
    return s.program


def tensor_of(form: Form, config: Config) -> Tensor:
    """The result of a unit; its operands are named by the constants above, and by ``Table``."""
    return _product(form, config) if isinstance(form, ProductForm) else _addition(form, config)


def _product(form: ProductForm, config: Config) -> Tensor:
    rows, columns = form.rows, form.columns
    image, row_step = _image(form, config), 1 if _is_sparse(rows) else rows.stride
    weights = tiles((form.filters, form.channels, rows.taps, columns.taps), Scratchpad.WGT, config, WEIGHTS)
    c, i = reduce_axis((0, form.channels), "c"), reduce_axis((0, config.block_in), "i")
    dy, dx = reduce_axis((0, rows.taps), "dy"), reduce_axis((0, columns.taps), "dx")

    def product(f: Expr, y: Expr, x: Expr, b: Expr, o: Expr) -> Reduction:
        pixel = image[c, y * row_step + dy * rows.dilation, x * columns.stride + dx * columns.dilation, b, i]
        return sum_of(cast(pixel, dtypes.i32) * cast(weights[f, c, dy, dx, o, i], dtypes.i32), axis=(c, dy, dx, i))

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
    data = tiles((form.channels, rows.extent, columns.extent), Scratchpad.INP, config, DATA)
    step = rows.stride if _is_sparse(rows) else 1
    height = rows.outputs if _is_sparse(rows) else rows.before + rows.extent + rows.after
    width = columns.before + columns.extent + columns.after

    def pixel(c: Expr, y: Expr, x: Expr, b: Expr, i: Expr) -> Expr:
        row, column = y * step - rows.before, x - columns.before
        inside = all_of(_within(row, rows), _within(column, columns))
        return select(inside, data[c, row, column, b, i], const(0, data.dtype))

    return compute((form.channels, height, width, *config.tile_shape(Scratchpad.INP)), pixel, name="image")


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

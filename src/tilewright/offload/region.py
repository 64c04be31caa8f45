"""A region: units that the accelerator computes in one program. What passes between them stays in its memory.

    region = region_of(units, outputs, config, timing)
    arrays = region.run(runtime, arrays)            by value: bytes of NCHW in and out

Arrays enter and leave in the layout of the CPU; they are packed to tiles, and unpacked, on the way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.packing import packed_data, packed_filters, unpacked_result
from tilewright.backend.vta.program import Operand, Program, Recorder
from tilewright.backend.vta.runtime import Run, Runtime
from tilewright.base.arrays import Array
from tilewright.base.errors import InternalError
from tilewright.graph import Value
from tilewright.offload.rounding import cycles
from tilewright.offload.schedule import ProductSchedule, Sources, Writer, record_addition
from tilewright.offload.tiling import Tiling, Work, chosen
from tilewright.offload.units import Addition, Image, Product, Unit, image_of


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """``constants``: weights and what sums are rounded by, packed, by operand."""

    units: tuple[Unit, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    program: Program
    constants: Mapping[str, Array]

    @property
    def bytes(self) -> int:
        """Bytes of device memory for operands."""
        config = self.program.config
        return sum(operand.bytes(config) + config.alignment for operand in self.program.operands)

    def run(self, runtime: Runtime, arrays: Sequence[Array]) -> tuple[list[Array], Run]:
        """The outputs for ``arrays``, those of the inputs."""
        config = self.program.config
        feeds = {value.name: packed(array, config) for value, array in zip(self.inputs, arrays, strict=True)}
        run = runtime.run(self.program, {**self.constants, **feeds})
        return [unpacked(run.results[value.name], value) for value in self.outputs], run


def packed(array: Array, config: Config) -> Array:
    """An image, or the rows of a matrix, as tiles."""
    data = array.T[None, :, None, :] if array.ndim == 2 else array
    return packed_data(data.astype(np.int8, copy=False), config)


def unpacked(array: Array, value: Value) -> Array:
    """Tiles as the array of a value."""
    image = _image(value)
    whole = unpacked_result(array, image.channels)
    return np.ascontiguousarray(whole[0, :, 0, :].T if len(value.shape) == 2 else whole)


def work_of(unit: Product, config: Config, timing: Timing) -> Work:
    """A product in blocks."""
    blocks = -(-unit.channels // config.block_in), -(-unit.filters // config.block_out)
    alu = cycles(unit.rounding.steps(), timing)
    return Work(unit.rows, unit.columns, *blocks, len(unit.rounding.tables), alu)


def tiling_of(unit: Product, config: Config, timing: Timing) -> Tiling | None:
    """Its tiling; None if none fits the memories."""
    return chosen(work_of(unit, config, timing), config, timing)


def region_of(units: Sequence[Unit], outputs: Sequence[Value], config: Config, timing: Timing) -> Region:
    """The region of ``units``, in order. ``outputs``: the results that others need."""
    made = {unit.result for unit in units}
    inputs = tuple(dict.fromkeys(value for unit in units for value in unit.inputs if value not in made))
    building = _Building(config, timing)
    for value in inputs:
        building.operand(value, Scratchpad.INP)
    for number, unit in enumerate(units):
        result = building.operand(unit.result, Scratchpad.OUT)
        if isinstance(unit, Product):
            building.product(number, unit, result)
        else:
            building.addition(unit, result)
    program = building.writer.recorder.finish()
    return Region(tuple(units), inputs, tuple(outputs), program, building.constants)


@dataclass(slots=True)
class _Building:
    """A region as it is recorded."""

    config: Config
    timing: Timing
    writer: Writer = field(init=False)
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    values: dict[Value, Operand] = field(default_factory=dict[Value, Operand])

    def __post_init__(self) -> None:
        self.writer = Writer(Recorder(self.config))

    def operand(self, value: Value, pad: Scratchpad) -> Operand:
        """A value in device memory."""
        shape = _image(value).tiles(self.config)
        self.values[value] = self.writer.recorder.operand(value.name, pad, shape)
        return self.values[value]

    def product(self, number: int, unit: Product, result: Operand) -> None:
        work, tiling = work_of(unit, self.config, self.timing), tiling_of(unit, self.config, self.timing)
        if tiling is None:
            raise InternalError(f"{unit.place}: no tile of it fits {self.config.name}")
        weights = packed_filters(unit.weights, self.config)
        tables = self._blocks(unit.rounding.constants())
        recorder = self.writer.recorder
        sources = Sources(
            self.values[unit.data],
            recorder.operand(f"weights {number}", Scratchpad.WGT, weights.shape[:4]),
            recorder.operand(f"constants {number}", Scratchpad.ACC, tables.shape[:2]),
            result,
        )
        self.constants |= {sources.weights.name: weights, sources.constants.name: tables}
        steps = tuple(unit.rounding.steps())
        ProductSchedule(self.writer, work, tiling, steps, unit.rounding.tables, sources).record()

    def _blocks(self, tables: Array) -> Array:
        """(tables, channels) as (tables, blocks, batch, block_out)."""
        count, channels = tables.shape
        block = self.config.block_out
        whole = np.pad(tables, ((0, 0), (0, -channels % block))).reshape(count, -1, 1, block)
        return np.ascontiguousarray(np.broadcast_to(whole, (*whole.shape[:2], self.config.batch, block)))

    def addition(self, unit: Addition, result: Operand) -> None:
        first, second = (self.values[value] for value in unit.data)
        record_addition(self.writer, unit, (first, second), result)


def _image(value: Value) -> Image:
    image = image_of(value)
    assert image is not None, "units have images"
    return image

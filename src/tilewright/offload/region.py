"""A region: units that the accelerator computes in one program. What passes between them stays in its memory.

    region = region_of(units, outputs, config, timing)
    arrays = region.run(runtime, arrays)            by value: bytes of NCHW in and out

Arrays enter and leave in the layout of the CPU; they are packed to tiles, and unpacked, on the way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.compiler import Recorded, ordered, recorded
from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.packing import packed_data, packed_filters, unpacked_result
from tilewright.backend.vta.program import Operand, Program
from tilewright.backend.vta.runtime import Run, Runtime
from tilewright.base.arrays import Array
from tilewright.base.errors import InternalError
from tilewright.graph import Value
from tilewright.offload.forms import DATA, FIRST, RESULT, SECOND, WEIGHTS, form_of, scheduled
from tilewright.offload.units import Addition, Image, Pooling, Product, Unit, image_of


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


def region_of(
    units: Sequence[Unit], outputs: Sequence[Value], config: Config, timing: Timing, records: Path | None = None
) -> Region:
    """The region of ``units``, in order. ``outputs``: the results that others need; ``records``: of tuned units."""
    made = {unit.result for unit in units}
    inputs = tuple(dict.fromkeys(value for unit in units for value in unit.inputs if value not in made))
    building = _Building(config, timing, records)
    for value in inputs:
        building.operand(value.name, Scratchpad.INP, _image(value).tiles(config))
    for number, unit in enumerate(units):
        building.add(number, unit)
    program = Program(config, tuple(building.operands.values()), ordered(building.steps, config))
    return Region(tuple(units), inputs, tuple(outputs), program, building.constants)


@dataclass(slots=True)
class _Building:
    """A region as its units are added."""

    config: Config
    timing: Timing
    records: Path | None = None
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    operands: dict[str, Operand] = field(default_factory=dict[str, Operand])
    steps: list[Recorded] = field(default_factory=list[Recorded])

    def operand(self, name: str, pad: Scratchpad, shape: tuple[int, ...]) -> Operand:
        """A new array in device memory."""
        self.operands[name] = Operand(name, pad, shape)
        return self.operands[name]

    def add(self, number: int, unit: Unit) -> None:
        """The steps of a unit."""
        program = scheduled(form_of(unit, self.config), self.config, self.timing, self.records)
        if program is None:
            raise InternalError(f"{unit.place}: no tile of it fits {self.config.name}")
        result = self.operand(unit.result.name, Scratchpad.OUT, _image(unit.result).tiles(self.config))
        match unit:
            case Product():
                operands = {DATA: self.operands[unit.data.name], **self._constants(number, unit)}
            case Addition():
                first, second = (self.operands[value.name] for value in unit.data)
                operands = {FIRST: first, SECOND: second}
            case Pooling():
                operands = {DATA: self.operands[unit.data.name]}
        self.steps += recorded(program, self.config, {**operands, RESULT: result})

    def _constants(self, number: int, unit: Product) -> Mapping[str, Operand]:
        """The weights and tables of a product."""
        weights = packed_filters(_whole_blocks(unit, self.config), self.config)
        found = {WEIGHTS: self._constant(f"{WEIGHTS} {number}", Scratchpad.WGT, weights)}
        for table, row in unit.rounding.tables.items():
            found[table.value] = self._constant(f"{table.value} {number}", Scratchpad.ACC, self._blocks(row))
        return found

    def _constant(self, name: str, pad: Scratchpad, array: Array) -> Operand:
        self.constants[name] = array
        return self.operand(name, pad, array.shape[:-2])

    def _blocks(self, row: Array) -> Array:
        """(channels,) as (blocks, batch, block_out)."""
        block = self.config.block_out
        whole = np.pad(row, (0, -len(row) % block)).reshape(-1, 1, block)
        return np.ascontiguousarray(np.broadcast_to(whole, (len(whole), self.config.batch, block)))


def _image(value: Value) -> Image:
    image = image_of(value)
    assert image is not None, "units have images"
    return image


def _whole_blocks(unit: Product, config: Config) -> NDArray[np.int8]:
    """The weights of whole blocks of channels: zeros for those of other groups."""
    if unit.groups == 1:
        return unit.weights
    filters, size, *taps = unit.weights.shape
    whole = np.zeros((filters, config.block_in, *taps), np.int8)
    for number, weights in enumerate(unit.weights):
        first = number // size * size % config.block_in
        whole[number, first : first + size] = weights
    return whole

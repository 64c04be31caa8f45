"""The template: sizes of tiles and the number of virtual threads as knobs, and what is known of them beforehand."""

from dataclasses import dataclass, field

import numpy as np

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.schedules.tiled import schedule_tiles
from tilewright.backend.vta.schedules.tiling import THREADS, Shape, Tiles, chosen, estimate, fits, parts, shape_of
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.space.config import Collector, Generator
from tilewright.space.config import Config as Decisions
from tilewright.space.knobs import Knob, Value
from tilewright.space.space import Digits, Floats, Mask, Space
from tilewright.target.target import Target


def template(shape: Shape, config: Config) -> Generator:
    """A generator of schedules for programs of a shape."""

    def generate(s: Schedule, decisions: Decisions) -> None:
        schedule_tiles(s, _decided(shape, decisions), config)

    return generate


def _decided(shape: Shape, decisions: Decisions) -> Tiles:
    sizes = [
        decisions.choice(f"tile_{number}", parts(extent)) for number, extent in enumerate((*shape.extents, shape.depth))
    ]
    return Tiles(tuple(sizes[:-1]), sizes[-1], decisions.choice("threads", THREADS))


def space_of(program: Program, config: Config, timing: Timing, target: Target) -> Space:
    """All schedules of the template for ``program``. Raises ``BadProgram`` if no tile fits the memories."""
    shape = shape_of(program, config)
    collector = Collector()
    _decided(shape, collector)
    knobs = tuple(collector.knobs)
    first = chosen(program, config, timing)
    known = _Known(shape, config, timing, knobs, _digits(first, knobs))
    return Space(program, target, Schedule(program), template(shape, config), knobs, known)


def _digits(tiles: Tiles, knobs: tuple[Knob[Value], ...]) -> Digits:
    values: tuple[Value, ...] = (*tiles.sizes, tiles.depth, tiles.threads)
    return np.array([knob.values.index(value) for knob, value in zip(knobs, values, strict=True)], np.int64)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known without simulating: which sizes fit, and estimates of cycles."""

    shape: Shape
    config: Config
    timing: Timing
    knobs: tuple[Knob[Value], ...]
    first: Digits = field(compare=False)

    def allowed(self, digits: Digits) -> Mask:
        """Those that fit the memories."""
        return np.array([fits(self.shape, self._tiles(row), self.config) for row in digits], np.bool_)

    def estimates(self, digits: Digits) -> Floats:
        """Cycles."""
        found = [estimate(self.shape, self._tiles(row), self.config, self.timing) for row in digits]
        return np.array(found, np.float64)

    def _tiles(self, row: Digits) -> Tiles:
        values = [knob.values[int(digit)] for knob, digit in zip(self.knobs, row, strict=True)]
        *sizes, depth, threads = (int(value) for value in values if isinstance(value, int))
        return Tiles(tuple(sizes), depth, threads)

"""Convolutions and matrix products as programs: the layer's tensor expression, its schedule, and the compiler.

A caller that has an expression of its own (other operations after the sums, a pooling) does the same with it: a
schedule by ``schedules.schedule_tiles`` or by hand, then ``compiler.translated``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.backend.vta.compiler import translated
from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.layers import Convolution, convolution_tensor, matmul
from tilewright.backend.vta.program import Program
from tilewright.backend.vta.schedules.tiled import schedule_tiles
from tilewright.backend.vta.schedules.tiling import Tiles, chosen, fitting, needed, shape_of
from tilewright.base.errors import BadProgram
from tilewright.loops.lower import lower
from tilewright.loops.program import Program as LoopProgram
from tilewright.schedule.schedule import Schedule

__all__ = ["Convolution", "Tiling", "chosen_tiling", "convolution_program", "matmul", "tilings"]


@dataclass(frozen=True, slots=True)
class Tiling:
    """The size of a tile (rows and columns of the result, blocks of filters), and the blocks of channels of a stage."""

    rows: int
    columns: int
    filters: int
    channels: int
    threads: int = 2
    """Virtual threads."""

    @staticmethod
    def of(tiles: Tiles) -> "Tiling":
        """The same sizes by name."""
        filters, rows, columns = tiles.sizes
        return Tiling(rows, columns, filters, tiles.depth, tiles.threads)

    def tiles(self, convolution: Convolution) -> Tiles:
        """The sizes in the order of the result's dimensions, no larger than these."""
        extents = (convolution.filters, convolution.out_height, convolution.out_width)
        sizes = (self.filters, self.rows, self.columns)
        return Tiles(tuple(map(min, sizes, extents)), min(self.channels, convolution.channels), self.threads)


def loop_program(convolution: Convolution, config: Config) -> LoopProgram:
    """A convolution as a loop program, not scheduled."""
    return lower(convolution_tensor(convolution, config), "convolution")


def convolution_program(convolution: Convolution, tiling: Tiling, config: Config) -> Program:
    """The program: data and filters are its operands ``data`` and ``filters``, the result is ``result``.

    Raises ``BadProgram`` if a tile does not fit the memories.
    """
    naive = loop_program(convolution, config)
    _require_fit(naive, convolution, tiling, config)
    s = Schedule(naive)
    schedule_tiles(s, tiling.tiles(convolution), config)
    return translated(s.program, config)


def _require_fit(naive: LoopProgram, convolution: Convolution, tiling: Tiling, config: Config) -> None:
    if min(tiling.rows, tiling.columns, tiling.filters, tiling.channels, tiling.threads) < 1:
        raise BadProgram(f"{tiling}: sizes and numbers of virtual threads are at least 1")
    for pad, count in needed(shape_of(naive, config), tiling.tiles(convolution)).items():
        if count > (room := config.depth(pad) // tiling.threads):
            raise BadProgram(
                f"{tiling}: a virtual thread takes {count} tiles of {pad.name.lower()}, and has {room}; "
                "use smaller tiles"
            )


def tilings(convolution: Convolution, config: Config, threads: int) -> Iterator[Tiling]:
    """Tilings that fit the memories; each dimension is cut into equal parts, the last one perhaps smaller."""
    shape = shape_of(loop_program(convolution, config), config)
    yield from map(Tiling.of, fitting(shape, config, threads))


def chosen_tiling(convolution: Convolution, config: Config, timing: Timing, threads: int = 2) -> Tiling:
    """The tiling with the least estimate. Raises ``BadProgram`` if none fits."""
    return Tiling.of(chosen(loop_program(convolution, config), config, timing, (threads,)))

"""Records products and additions as parts of one program: values stay in device memory in the accelerator's layout.

``Writer`` has the recorder of a region and its operands. Each unit begins when the units before it have been stored: a
token from store to compute, one from compute to load after it. Between them compute loads the constants of the unit.
Within a unit, tokens are those of two virtual threads (``tiling``).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TypeAlias

from tilewright.backend.vta.config import Config, Module, Scratchpad
from tilewright.backend.vta.instructions import AluOperation, Load, Store, Uop
from tilewright.backend.vta.kernels import AluKernel, GemmKernel, Loop, unrolled
from tilewright.backend.vta.program import Operand, Recorder
from tilewright.offload.rounding import Place, Step, rounded
from tilewright.offload.tiling import Tiling, Work
from tilewright.offload.units import Addition, Axis

_ROUND_TRIP = (Module.STORE, Module.COMPUTE)


@dataclass(frozen=True, slots=True)
class Span:
    """Some of the positions of a dimension."""

    start: int
    count: int


def spans(extent: int, size: int) -> tuple[Span, ...]:
    """A dimension in parts of ``size``."""
    return tuple(Span(start, min(size, extent - start)) for start in range(0, extent, size))


@dataclass(frozen=True, slots=True)
class _Line:
    """What a tile reads of the rows (or columns) of the image: positions, zeros before and after, and their step."""

    start: int
    count: int
    before: int
    after: int
    step: int
    stride: int
    """Of the convolution, in positions that were loaded."""

    @property
    def size(self) -> int:
        """Positions on the chip."""
        return self.before + self.count + self.after


def _line(axis: Axis, span: Span, is_sparse: bool) -> _Line:
    if is_sparse and axis.taps == 1:
        return _Line(span.start * axis.stride, span.count, 0, 0, axis.stride, 1)
    first = span.start * axis.stride - axis.before
    end = first + (span.count - 1) * axis.stride + axis.reach + 1
    start, stop = max(first, 0), min(end, axis.extent)
    return _Line(start, stop - start, start - first, end - stop, 1, axis.stride)


@dataclass(slots=True)
class Writer:
    """The recorder of a region; ``recorded``: whether a unit has been recorded."""

    recorder: Recorder
    recorded: bool = False

    @property
    def config(self) -> Config:
        return self.recorder.config

    def begin(self) -> None:
        """Let compute wait for all that was stored."""
        if self.recorded:
            self.recorder.token(*_ROUND_TRIP)
        self.recorded = True


@dataclass(frozen=True, slots=True)
class Sources:
    """The operands of a product."""

    data: Operand
    weights: Operand
    constants: Operand
    """(tables, blocks of filters) tiles."""
    result: Operand


@dataclass(frozen=True, slots=True)
class _Tile:
    rows: Span
    columns: Span
    filters: Span


@dataclass(slots=True)
class ProductSchedule:
    """Records a product."""

    writer: Writer
    work: Work
    tiling: Tiling
    steps: tuple[Step, ...]
    tables: tuple[Place, ...]
    sources: Sources
    stages: int = 0
    """Stages recorded so far."""
    tiles: int = 0
    """Tiles recorded so far."""
    all_tiles: tuple[_Tile, ...] = field(init=False)
    all_channels: tuple[Span, ...] = field(init=False)

    def __post_init__(self) -> None:
        work, tiling = self.work, self.tiling
        rows, columns = spans(work.rows.outputs, tiling.rows), spans(work.columns.outputs, tiling.columns)
        filters = spans(work.filters, tiling.filters)
        self.all_tiles = tuple(_Tile(y, x, f) for f, y, x in product(filters, rows, columns))
        self.all_channels = spans(work.channels, tiling.channels)

    @property
    def recorder(self) -> Recorder:
        return self.writer.recorder

    def record(self) -> None:
        """All tiles, one after another."""
        is_first = not self.writer.recorded
        self.writer.begin()
        for tile in self.all_tiles:
            if not self.tiles or tile.filters != self.all_tiles[self.tiles - 1].filters:
                self._load_constants(tile.filters)
            if not self.tiles and not is_first:
                self.recorder.token(Module.COMPUTE, Module.LOAD)
            self._reset(tile)
            for channels in self.all_channels:
                self._stage(tile, channels)
            self._round(tile)
            self._store(tile)
            self.tiles += 1
            if self.tiles + self.tiling.threads <= len(self.all_tiles):
                self.recorder.push(*_ROUND_TRIP)

    def _base(self, pad: Scratchpad, number: int) -> int:
        """Where a stage has its part of a memory, or a tile its sums."""
        thread = number % self.tiling.threads
        if pad is Scratchpad.ACC:
            return self.tiling.sums * thread
        return self.writer.config.depth(pad) // self.tiling.threads * thread

    @property
    def _constants(self) -> int:
        """Where the constants are: behind the sums of all threads and the spare tiles."""
        return (self.tiling.threads + 1) * self.tiling.sums

    def _load_constants(self, filters: Span) -> None:
        self.recorder.transfer(
            self.sources.constants,
            Load(
                memory=Scratchpad.ACC,
                sram=self._constants,
                dram=filters.start,
                rows=len(self.tables),
                columns=filters.count,
                stride=self.work.filters,
            ),
        )

    def _outputs(self, tile: _Tile) -> tuple[Loop, Loop]:
        """Loops over the rows and columns of a tile of accumulators."""
        return Loop(tile.rows.count, dst=tile.columns.count), Loop(tile.columns.count, dst=1)

    def _reset(self, tile: _Tile) -> None:
        if self.tiles >= self.tiling.threads:  # the accumulators were those of an earlier tile, until it was stored
            self.recorder.pop(*_ROUND_TRIP)
        outer, inner = self._outputs(tile)
        self.recorder.compute(GemmKernel(self._planes(tile, Place.SUMS, Place.SUMS), outer, inner, reset=True))

    def _planes(self, tile: _Tile, dst: Place, src: Place) -> tuple[Uop, ...]:
        """A micro-op for each block of filters."""
        plane = tile.rows.count * tile.columns.count
        loop = Loop(tile.filters.count, dst=plane, src=1 if src in self.tables else plane)
        return unrolled([loop], Uop(self._place(dst, tile), self._place(src, tile)))

    def _place(self, place: Place, tile: _Tile) -> int:
        """The first tile of an operand of ALU."""
        match place:
            case Place.SUMS:
                return self._base(Scratchpad.ACC, self.tiles)
            case Place.SPARE:
                return self.tiling.threads * self.tiling.sums
            case _:
                return self._constants + self.tables.index(place) * tile.filters.count

    def _stage(self, tile: _Tile, channels: Span) -> None:
        if self.stages >= self.tiling.threads:  # what is loaded was read by an earlier stage
            self.recorder.pop(Module.COMPUTE, Module.LOAD)
        rows, columns = _line(self.work.rows, tile.rows, True), _line(self.work.columns, tile.columns, False)
        self._load_image(rows, columns, channels)
        self._load_weights(tile, channels)
        self.recorder.token(Module.LOAD, Module.COMPUTE)
        self.recorder.compute(self._products(tile, channels, rows, columns))
        self.stages += 1
        if self.stages + self.tiling.threads <= len(self.all_tiles) * len(self.all_channels):
            self.recorder.push(Module.COMPUTE, Module.LOAD)

    def _load_image(self, rows: _Line, columns: _Line, channels: Span) -> None:
        height, width = self.work.rows.extent, self.work.columns.extent
        base = self._base(Scratchpad.INP, self.stages)
        for number in range(channels.count):
            self.recorder.transfer(
                self.sources.data,
                Load(
                    memory=Scratchpad.INP,
                    sram=base + number * rows.size * columns.size,
                    dram=((channels.start + number) * height + rows.start) * width + columns.start,
                    rows=rows.count,
                    columns=columns.count,
                    stride=width * rows.step,
                    pad_top=rows.before,
                    pad_bottom=rows.after,
                    pad_left=columns.before,
                    pad_right=columns.after,
                ),
            )

    def _load_weights(self, tile: _Tile, channels: Span) -> None:
        taps = self.work.taps
        self.recorder.transfer(
            self.sources.weights,
            Load(
                memory=Scratchpad.WGT,
                sram=self._base(Scratchpad.WGT, self.stages),
                dram=(tile.filters.start * self.work.channels + channels.start) * taps,
                rows=tile.filters.count,
                columns=channels.count * taps,
                stride=self.work.channels * taps,
            ),
        )

    def _products(self, tile: _Tile, channels: Span, rows: _Line, columns: _Line) -> GemmKernel:
        """Loops over rows and columns; micro-ops for filters, channels and taps."""
        vertical, horizontal = self.work.rows, self.work.columns
        first = Uop(
            self._base(Scratchpad.ACC, self.tiles),
            self._base(Scratchpad.INP, self.stages),
            self._base(Scratchpad.WGT, self.stages),
        )
        plane = tile.rows.count * tile.columns.count
        filters = Loop(tile.filters.count, dst=plane, wgt=channels.count * self.work.taps)
        blocks = Loop(channels.count, src=rows.size * columns.size, wgt=self.work.taps)
        window = (
            Loop(vertical.taps, src=columns.size * vertical.dilation, wgt=horizontal.taps),
            Loop(horizontal.taps, src=horizontal.dilation, wgt=1),
        )
        outer, inner = self._outputs(tile)
        return GemmKernel(
            unrolled([filters, blocks, *window], first),
            replace(outer, src=columns.size * rows.stride if outer.extent > 1 else 0),
            replace(inner, src=columns.stride if inner.extent > 1 else 0),
        )

    def _round(self, tile: _Tile) -> None:
        outer, inner = self._outputs(tile)
        for step in self.steps:
            if isinstance(step.second, int):
                uops, immediate, same = self._planes(tile, step.dst, step.dst), step.second, True
            else:
                uops, immediate = self._planes(tile, step.dst, step.second), None
                same = step.second not in self.tables
            loops = (replace(loop, src=loop.dst if same else 0) for loop in (outer, inner))
            self.recorder.compute(AluKernel(uops, step.operation, *loops, immediate=immediate))

    def _store(self, tile: _Tile) -> None:
        self.recorder.token(Module.COMPUTE, Module.STORE)
        height, width = self.work.rows.outputs, self.work.columns.outputs
        plane = tile.rows.count * tile.columns.count
        for number in range(tile.filters.count):
            self.recorder.transfer(
                self.sources.result,
                Store(
                    sram=self._base(Scratchpad.ACC, self.tiles) + number * plane,
                    dram=((tile.filters.start + number) * height + tile.rows.start) * width + tile.columns.start,
                    rows=tile.rows.count,
                    columns=tile.columns.count,
                    stride=width,
                ),
            )


_Placed: TypeAlias = dict[Place, int]


def record_addition(writer: Writer, unit: Addition, data: tuple[Operand, Operand], result: Operand) -> None:
    """An addition: all tiles in order, as many at once as accumulators allow."""
    writer.begin()
    threads, recorder = 2, writer.recorder
    size = writer.config.depth(Scratchpad.ACC) // (threads + 1)
    pieces = spans(result.tiles, size)
    for number, piece in enumerate(pieces):
        places = {Place.SUMS: number % threads * size, Place.SPARE: threads * size}
        if number >= threads:
            recorder.pop(*_ROUND_TRIP)
        for operand, place in zip(data, (Place.SUMS, Place.SPARE), strict=True):
            load = Load(memory=Scratchpad.ACC8, sram=places[place], dram=piece.start, columns=piece.count)
            recorder.transfer(operand, load)
        for step in _sum_steps(unit):
            recorder.compute(_over(piece.count, step, places))
        recorder.token(Module.COMPUTE, Module.STORE)
        recorder.transfer(result, Store(sram=places[Place.SUMS], dram=piece.start, columns=piece.count))
        if number + 1 + threads <= len(pieces):
            recorder.push(*_ROUND_TRIP)


def _sum_steps(unit: Addition) -> Iterator[Step]:
    for place, left in zip((Place.SUMS, Place.SPARE), unit.left, strict=True):
        if left:
            yield Step(AluOperation.SHR, place, -left)
    yield Step(AluOperation.ADD, Place.SUMS, Place.SPARE)
    yield from rounded(unit.shift, unit.low, unit.high)


def _over(count: int, step: Step, places: _Placed) -> AluKernel:
    """A step for ``count`` tiles."""
    second = step.dst if isinstance(step.second, int) else step.second
    uops = unrolled([], Uop(places[step.dst], places[second]))
    immediate = step.second if isinstance(step.second, int) else None
    return AluKernel(uops, step.operation, inner=Loop(count, dst=1, src=1), immediate=immediate)

"""Convolutions and matrix products, scheduled by hand: programs of the accelerator for tests, figures and comparisons.

An image is cut into tiles of rows, columns and blocks of filters. The products of a tile are summed in stages, each
over some blocks of channels: load fetches a part of the image (with its padding) and of the filters, compute
multiplies them. At last ALU shifts, adds and clips, and store writes the tile. With one *virtual thread* a module
waits for the other after each stage; with two, stages use the halves of each memory in turn, and so do tiles the
halves of the accumulators: load fetches the next stage while compute multiplies this one. Tokens make both safe.

Arrays have tiles as elements: data (channel blocks, height, width) of inp, filters (filter blocks, channel blocks,
kernel height, kernel width) of wgt, results (filter blocks, out height, out width) of out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

from tilewright.backend.vta.config import Config, Module, Scratchpad
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.instructions import AluOperation, Load, Store, Uop
from tilewright.backend.vta.kernels import AluKernel, GemmKernel, Loop, unrolled
from tilewright.backend.vta.program import Operand, Program, Recorder
from tilewright.base.errors import BadProgram

_MOST_PADDING = 15


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of whole tiles: ``channels`` and ``filters`` are numbers of blocks. Padding is on all sides."""

    height: int
    width: int
    channels: int
    filters: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    shift: int = 8
    """The sums (modulo 2^32) are divided by 2^shift, rounded down, and clipped to the elements of out."""

    def __post_init__(self) -> None:
        least = {"padding": 0, "shift": 0}
        for name in self.__slots__:
            if (value := getattr(self, name)) < least.get(name, 1):
                raise BadProgram(f"Convolution: {name}={value} is impossible; the least is {least.get(name, 1)}")
        if self.padding > min(_MOST_PADDING, self.kernel - 1):
            raise BadProgram(
                f"Convolution: padding={self.padding} is more than a filter of {self.kernel} or a LOAD has room for"
            )
        if self.out_height < 1 or self.out_width < 1:
            raise BadProgram(f"Convolution: {self.height} x {self.width} is smaller than the filter of {self.kernel}")

    @property
    def out_height(self) -> int:
        """Rows of the result."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Columns of the result."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def products(self) -> int:
        """Micro-ops of GEMM, whatever the schedule."""
        return self.out_height * self.out_width * self.channels * self.filters * self.kernel**2


def matmul(rows: int, columns: int, depth: int, shift: int = 8) -> Convolution:
    """A matrix product of whole tiles as a convolution: an image of one line whose pixels are the blocks of rows.

    Data are (depth, 1, rows) tiles, filters (columns, depth, 1, 1), results (columns, 1, rows).
    """
    return Convolution(1, rows, channels=depth, filters=columns, shift=shift)


@dataclass(frozen=True, slots=True)
class Tiling:
    """The size of a tile (rows and columns of the result, blocks of filters), and the blocks of channels of a stage."""

    rows: int
    columns: int
    filters: int
    channels: int
    threads: int = 2
    """Virtual threads: 1 or 2."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Some of the positions of a dimension."""

    start: int
    count: int


def _spans(extent: int, size: int) -> tuple[_Span, ...]:
    return tuple(_Span(start, min(size, extent - start)) for start in range(0, extent, size))


@dataclass(frozen=True, slots=True)
class _Line:
    """What a tile reads of the rows (or columns) of the image: positions, zeros before and after, and their step."""

    start: int
    count: int
    before: int
    after: int
    step: int = 1
    """From a position to the next one."""
    stride: int = 1
    """Of the convolution, in positions that were loaded."""

    @property
    def size(self) -> int:
        """Positions on the chip."""
        return self.before + self.count + self.after


def _line(convolution: Convolution, extent: int, span: _Span, is_sparse: bool) -> _Line:
    """``is_sparse``: positions that no filter reads are left out."""
    stride, kernel = convolution.stride, convolution.kernel
    if is_sparse and kernel == 1:
        return _Line(span.start * stride, span.count, 0, 0, step=stride)
    first = span.start * stride - convolution.padding
    end = first + (span.count - 1) * stride + kernel
    start, stop = max(first, 0), min(end, extent)
    return _Line(start, stop - start, start - first, end - stop, stride=stride)


@dataclass(frozen=True, slots=True)
class _Tile:
    rows: _Span
    columns: _Span
    filters: _Span


@dataclass(slots=True)
class _Schedule:
    """Records the program of a convolution."""

    convolution: Convolution
    tiling: Tiling
    recorder: Recorder
    data: Operand
    weights: Operand
    result: Operand
    stages: int = 0
    """Stages recorded so far."""
    tiles: int = 0
    """Tiles recorded so far."""
    all_tiles: tuple[_Tile, ...] = field(init=False)
    all_channels: tuple[_Span, ...] = field(init=False)

    def __post_init__(self) -> None:
        convolution, tiling = self.convolution, self.tiling
        rows = _spans(convolution.out_height, tiling.rows)
        columns = _spans(convolution.out_width, tiling.columns)
        filters = _spans(convolution.filters, tiling.filters)
        self.all_tiles = tuple(_Tile(y, x, f) for f, y, x in product(filters, rows, columns))
        self.all_channels = _spans(convolution.channels, tiling.channels)

    def record(self) -> None:
        """All tiles, one after another."""
        for tile in self.all_tiles:
            self._reset(tile)
            for channels in self.all_channels:
                self._stage(tile, channels)
            self._epilogue(tile)
            self._store(tile)
            self.tiles += 1
            if self.tiles + self.tiling.threads <= len(self.all_tiles):
                self.recorder.push(Module.STORE, Module.COMPUTE)

    def _base(self, pad: Scratchpad, number: int) -> int:
        """Where a stage or tile has its part of a memory."""
        depth, threads = self.recorder.config.depth(pad), self.tiling.threads
        return depth // threads * (number % threads)

    def _outputs(self, tile: _Tile) -> tuple[Loop, Loop]:
        """Loops over the rows and columns of a tile of accumulators."""
        return Loop(tile.rows.count, dst=tile.columns.count), Loop(tile.columns.count, dst=1)

    def _planes(self, tile: _Tile) -> tuple[Uop, ...]:
        """A micro-op for each block of filters."""
        base = self._base(Scratchpad.ACC, self.tiles)
        plane = tile.rows.count * tile.columns.count
        return unrolled([Loop(tile.filters.count, dst=plane, src=plane)], Uop(base, base))

    def _reset(self, tile: _Tile) -> None:
        if self.tiles >= self.tiling.threads:  # the accumulators were those of an earlier tile, until it was stored
            self.recorder.pop(Module.STORE, Module.COMPUTE)
        outer, inner = self._outputs(tile)
        self.recorder.compute(GemmKernel(self._planes(tile), outer, inner, reset=True))

    def _stage(self, tile: _Tile, channels: _Span) -> None:
        if self.stages >= self.tiling.threads:  # what is loaded was read by an earlier stage
            self.recorder.pop(Module.COMPUTE, Module.LOAD)
        rows, columns = self._lines(tile)
        self._load_image(rows, columns, channels)
        self._load_filters(tile, channels)
        self.recorder.token(Module.LOAD, Module.COMPUTE)
        self.recorder.compute(self._products(tile, channels, rows, columns))
        self.stages += 1
        if self.stages + self.tiling.threads <= len(self.all_tiles) * len(self.all_channels):
            self.recorder.push(Module.COMPUTE, Module.LOAD)

    def _lines(self, tile: _Tile) -> tuple[_Line, _Line]:
        rows = _line(self.convolution, self.convolution.height, tile.rows, is_sparse=True)
        return rows, _line(self.convolution, self.convolution.width, tile.columns, is_sparse=False)

    def _load_image(self, rows: _Line, columns: _Line, channels: _Span) -> None:
        width, plane = self.convolution.width, self.convolution.height * self.convolution.width
        base = self._base(Scratchpad.INP, self.stages)
        for number in range(channels.count):
            self.recorder.transfer(
                self.data,
                Load(
                    memory=Scratchpad.INP,
                    sram=base + number * rows.size * columns.size,
                    dram=(channels.start + number) * plane + rows.start * width + columns.start,
                    rows=rows.count,
                    columns=columns.count,
                    stride=width * rows.step,
                    pad_top=rows.before,
                    pad_bottom=rows.after,
                    pad_left=columns.before,
                    pad_right=columns.after,
                ),
            )

    def _load_filters(self, tile: _Tile, channels: _Span) -> None:
        size = self.convolution.kernel**2
        stride = self.convolution.channels * size
        self.recorder.transfer(
            self.weights,
            Load(
                memory=Scratchpad.WGT,
                sram=self._base(Scratchpad.WGT, self.stages),
                dram=tile.filters.start * stride + channels.start * size,
                rows=tile.filters.count,
                columns=channels.count * size,
                stride=stride,
            ),
        )

    def _products(self, tile: _Tile, channels: _Span, rows: _Line, columns: _Line) -> GemmKernel:
        """Loops over rows and columns; micro-ops for filters, channels and positions of the filter."""
        kernel = self.convolution.kernel
        first = Uop(
            self._base(Scratchpad.ACC, self.tiles),
            self._base(Scratchpad.INP, self.stages),
            self._base(Scratchpad.WGT, self.stages),
        )
        filters = Loop(
            tile.filters.count, dst=tile.rows.count * tile.columns.count, wgt=channels.count * kernel * kernel
        )
        blocks = Loop(channels.count, src=rows.size * columns.size, wgt=kernel * kernel)
        window = Loop(kernel, src=columns.size, wgt=kernel), Loop(kernel, src=1, wgt=1)
        outer, inner = self._outputs(tile)
        return GemmKernel(
            unrolled([filters, blocks, *window], first),
            replace(outer, src=columns.size * rows.stride),
            replace(inner, src=columns.stride),
        )

    def _epilogue(self, tile: _Tile) -> None:
        bits = self.recorder.config.out_bits
        steps = (
            (AluOperation.SHR, self.convolution.shift),
            (AluOperation.MAX, -(1 << (bits - 1))),
            (AluOperation.MIN, (1 << (bits - 1)) - 1),
        )
        outer, inner = self._outputs(tile)
        for operation, immediate in steps:
            self.recorder.compute(
                AluKernel(
                    self._planes(tile), operation, replace(outer, src=outer.dst), replace(inner, src=1), immediate
                )
            )

    def _store(self, tile: _Tile) -> None:
        self.recorder.token(Module.COMPUTE, Module.STORE)
        width, height = self.convolution.out_width, self.convolution.out_height
        plane = tile.rows.count * tile.columns.count
        for number in range(tile.filters.count):
            filters = tile.filters.start + number
            self.recorder.transfer(
                self.result,
                Store(
                    sram=self._base(Scratchpad.ACC, self.tiles) + number * plane,
                    dram=(filters * height + tile.rows.start) * width + tile.columns.start,
                    rows=tile.rows.count,
                    columns=tile.columns.count,
                    stride=width,
                ),
            )


def convolution_program(convolution: Convolution, tiling: Tiling, config: Config) -> Program:
    """The program: data and filters are its operands ``data`` and ``filters``, the result is ``result``.

    Raises ``BadProgram`` if a tile does not fit the memories.
    """
    _require_fit(convolution, tiling, config)
    recorder, size = Recorder(config), convolution.kernel
    schedule = _Schedule(
        convolution,
        tiling,
        recorder,
        recorder.operand("data", Scratchpad.INP, (convolution.channels, convolution.height, convolution.width)),
        recorder.operand("filters", Scratchpad.WGT, (convolution.filters, convolution.channels, size, size)),
        recorder.operand(
            "result", Scratchpad.OUT, (convolution.filters, convolution.out_height, convolution.out_width)
        ),
    )
    schedule.record()
    return recorder.finish()


def _patch(convolution: Convolution, extent: int) -> tuple[int, int]:
    """The most rows and columns of the image that ``extent`` rows and columns of the result read."""
    columns = (extent - 1) * convolution.stride + convolution.kernel
    return (extent if convolution.kernel == 1 else columns), columns


def _needed(convolution: Convolution, tiling: Tiling) -> dict[Scratchpad, int]:
    """Tiles of each memory that one virtual thread takes."""
    rows, columns = _patch(convolution, tiling.rows)[0], _patch(convolution, tiling.columns)[1]
    return {
        Scratchpad.INP: rows * columns * tiling.channels,
        Scratchpad.WGT: tiling.filters * tiling.channels * convolution.kernel**2,
        Scratchpad.ACC: tiling.rows * tiling.columns * tiling.filters,
    }


def _fits(convolution: Convolution, tiling: Tiling, config: Config) -> bool:
    return all(needed <= config.depth(pad) // tiling.threads for pad, needed in _needed(convolution, tiling).items())


def _require_fit(convolution: Convolution, tiling: Tiling, config: Config) -> None:
    if tiling.threads not in (1, 2) or min(tiling.rows, tiling.columns, tiling.filters, tiling.channels) < 1:
        raise BadProgram(f"{tiling}: there are 1 or 2 virtual threads, and sizes are at least 1")
    for pad, needed in _needed(convolution, tiling).items():
        if needed > (room := config.depth(pad) // tiling.threads):
            raise BadProgram(
                f"{tiling}: a virtual thread takes {needed} tiles of {pad.name.lower()}, and has {room}; "
                "use smaller tiles"
            )


def tilings(convolution: Convolution, config: Config, threads: int) -> Iterator[Tiling]:
    """Tilings that fit the memories; each dimension is cut into equal parts, the last one perhaps smaller."""
    for rows, columns, filters, channels in product(
        _parts(convolution.out_height),
        _parts(convolution.out_width),
        _parts(convolution.filters),
        _parts(convolution.channels),
    ):
        tiling = Tiling(rows, columns, filters, channels, threads)
        if _fits(convolution, tiling, config):
            yield tiling


def _parts(extent: int) -> tuple[int, ...]:
    return tuple(sorted({-(-extent // count) for count in range(1, extent + 1)}))


def estimate(convolution: Convolution, tiling: Tiling, config: Config, timing: Timing) -> float:
    """About how many cycles a program takes: loads, products and stores add up, or overlap with two threads."""
    tiles = (
        -(-convolution.out_height // tiling.rows)
        * -(-convolution.out_width // tiling.columns)
        * -(-convolution.filters // tiling.filters)
    )
    needed = _needed(convolution, tiling)
    stages = tiles * -(-convolution.channels // tiling.channels)
    loaded = sum(needed[pad] * config.tile_bytes(pad) for pad in (Scratchpad.INP, Scratchpad.WGT)) / timing.bus_bytes
    start = timing.latency + timing.issue
    load = stages * (loaded + (tiling.channels + 1) * start)
    compute = convolution.products + tiles * 4 * needed[Scratchpad.ACC] + stages * (timing.gemm_depth + timing.issue)
    outputs = needed[Scratchpad.ACC] * config.tile_bytes(Scratchpad.OUT) / timing.bus_bytes
    store = tiles * (outputs + tiling.filters * start)
    if tiling.threads == 1:
        return load + compute + store
    return max(load + store, compute) + (load + compute) / stages + store / tiles


def chosen_tiling(convolution: Convolution, config: Config, timing: Timing, threads: int = 2) -> Tiling:
    """The tiling with the least estimate. Raises ``BadProgram`` if none fits."""
    best = min(
        tilings(convolution, config, threads),
        key=lambda tiling: estimate(convolution, tiling, config, timing),
        default=None,
    )
    if best is None:
        raise BadProgram(f"no tile of {convolution} fits {config.name}; use one virtual thread or larger memories")
    return best

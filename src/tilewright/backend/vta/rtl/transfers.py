"""Transfers of LOAD: rectangles of tiles, with strides and with tiles of zeros around them."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import Load, places
from tilewright.backend.vta.rtl.bus import Port
from tilewright.backend.vta.rtl.decoders import decoded

EXTENT_BITS = 18
"""Of rows and columns with zeros."""


class TileWrite:
    """Writes tiles into the memory ``pad``."""

    def __init__(self, config: Config, pad: Scratchpad) -> None:
        name = pad.name.lower()
        self.enable = Signal(name=f"write_{name}")
        self.address = Signal(config.index_bits(pad), name=f"write_{name}_address")
        self.data = Signal(8 * config.tile_bytes(pad), name=f"write_{name}_data")


class TileReader(Elaboratable):
    """Runs LOAD for the memories ``pads``: requests words, and writes tiles as they come."""

    def __init__(self, config: Config, pads: Sequence[Scratchpad], port: Port) -> None:
        self.config = config
        self.pads = tuple(pads)
        self.port = port
        self.word = Signal(config.instruction_bits)
        """The instruction, as long as it runs."""
        self.start = Signal()
        self.active = Signal()
        """While tiles are written, or waited for."""
        self.done = Signal()
        self.writes = {pad: TileWrite(config, pad) for pad in dict.fromkeys(pad.storage for pad in pads)}

    def elaborate(self, platform: object) -> Module:
        """Requests run ahead of the walk over the tiles that are written."""
        m = Module()
        load = decoded(self.word, places(Load, self.config))
        words_less_one = Signal(range(max(2, *(self._words(pad) for pad in self.pads))))
        with m.Switch(load["memory"]):
            for pad in self.pads:
                with m.Case(pad.value):
                    m.d.comb += words_less_one.eq(self._words(pad) - 1)
        self._request(m, load, words_less_one)
        self._write(m, load, words_less_one)
        return m

    def _words(self, pad: Scratchpad) -> int:
        """Words that a tile takes."""
        return max(1, self.config.tile_bytes(pad) // self.port.bus_bytes)

    def _lanes(self, pad: Scratchpad) -> int:
        """Tiles in a word."""
        return max(1, self.port.bus_bytes // self.config.tile_bytes(pad))

    def _request(self, m: Module, load: dict[str, Value], words_less_one: Signal) -> None:
        """One word after another; a word that has several tiles is requested for each of them."""
        port, active = self.port, Signal()
        tile, first = Signal(32), Signal(32)
        word, row, column = Signal.like(words_less_one), Signal(16), Signal(16)
        m.d.comb += [port.request.eq(active), port.hold.eq(active)]
        with m.Switch(load["memory"]):
            for pad in self.pads:
                with m.Case(pad.value):
                    low = (self._words(pad) - 1).bit_length()
                    m.d.comb += port.address.eq(Cat(word[:low], tile) >> (self._lanes(pad) - 1).bit_length())
        with m.If(self.start):
            m.d.sync += [
                active.eq(load["rows"].any() & load["columns"].any()),
                tile.eq(load["dram"]),
                first.eq(load["dram"] + load["stride"]),
                *(signal.eq(0) for signal in (word, row, column)),
            ]
        with m.If(active & port.ready):
            m.d.sync += word.eq(word + 1)
            with m.If(word == words_less_one):
                m.d.sync += [word.eq(0), column.eq(column + 1), tile.eq(tile + 1)]
                with m.If(column == load["columns"] - 1):
                    m.d.sync += [column.eq(0), row.eq(row + 1), tile.eq(first), first.eq(first + load["stride"])]
                    with m.If(row == load["rows"] - 1):
                        m.d.sync += active.eq(0)

    def _write(self, m: Module, load: dict[str, Value], words_less_one: Signal) -> None:
        """All tiles in their order on the chip; a tile of the rectangle waits for its words."""
        port, active = self.port, self.active
        x, y, position = Signal(EXTENT_BITS), Signal(EXTENT_BITS), Signal(16)
        word, lane, first_lane = Signal.like(words_less_one), Signal(8), Signal(8)
        width = load["pad_left"] + load["columns"] + load["pad_right"]
        height = load["pad_top"] + load["rows"] + load["pad_bottom"]
        inside, complete, last = Signal(), Signal(), Signal()
        m.d.comb += [
            inside.eq(_within(x, load["pad_left"], load["columns"]) & _within(y, load["pad_top"], load["rows"])),
            port.response_ready.eq(active & inside),
            complete.eq(Mux(inside, port.response & (word == words_less_one), 1)),
            last.eq((x == width - 1) & (y == height - 1)),
            self.done.eq(active & ((complete & last) | (width == 0) | (height == 0))),
        ]
        most = max(self._words(pad) for pad in self.pads)
        held = Signal(8 * port.bus_bytes * (most - 1))
        whole = Cat(held, port.response_data)
        with m.If(port.response & port.response_ready):
            m.d.sync += [held.eq(whole[8 * port.bus_bytes :]), word.eq(word + 1)]
        with m.If(active & complete):
            m.d.sync += [word.eq(0), position.eq(position + 1), x.eq(x + 1)]
            with m.If(inside):
                m.d.sync += lane.eq(lane + 1)
            with m.If(x == width - 1):
                m.d.sync += [x.eq(0), y.eq(y + 1)]
                with m.If(_within(y, load["pad_top"], load["rows"])):
                    m.d.sync += [lane.eq(first_lane), first_lane.eq(first_lane + load["stride"])]
        with m.If(self.start):
            m.d.sync += [
                active.eq(1),
                *(signal.eq(0) for signal in (x, y, word)),
                position.eq(load["sram"]),
                lane.eq(load["dram"]),
                first_lane.eq(load["dram"] + load["stride"]),
            ]
        with m.If(self.done):
            m.d.sync += active.eq(0)
        for pad in self.pads:
            write = self.writes[pad.storage]
            with m.If(load["memory"] == pad.value):
                m.d.comb += [
                    write.enable.eq(active & complete & (width != 0) & (height != 0)),
                    write.address.eq(position),
                    write.data.eq(Mux(inside, self._tile(pad, whole, lane), 0)),
                ]

    def _tile(self, pad: Scratchpad, whole: Value, lane: Signal) -> Value:
        """A tile from its words, or from its part of a word; narrow elements are extended to those that are stored."""
        bits = 8 * self.config.tile_bytes(pad)
        if self._lanes(pad) > 1:
            low = (self._lanes(pad) - 1).bit_length()
            tile = whole[-8 * self.port.bus_bytes :].word_select(lane[:low], bits)
        else:
            tile = whole[-bits:]
        narrow, wide = self.config.element_bits(pad), self.config.element_bits(pad.storage)
        if narrow == wide:
            return tile
        elements = [tile[start : start + narrow] for start in range(0, bits, narrow)]
        return Cat(Cat(element, element[-1].replicate(wide - narrow)) for element in elements)


def _within(value: Value, begin: Value, extent: Value) -> Value:
    """Whether a value is one of ``extent`` ones from ``begin`` on."""
    return (value >= begin) & (value < begin + extent)

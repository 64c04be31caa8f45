"""The module store: STORE of out."""

from amaranth.hdl import Cat, Elaboratable, Module, Signal

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import Store, places
from tilewright.backend.vta.rtl.buffers import Buffers
from tilewright.backend.vta.rtl.bus import Port
from tilewright.backend.vta.rtl.control import Control
from tilewright.backend.vta.rtl.decoders import decoded


class StoreUnit(Elaboratable):
    """Reads a tile while it sends the words of the one before; ends when all writes have been answered."""

    def __init__(self, config: Config, control: Control, buffers: Buffers, port: Port) -> None:
        self.config = config
        self.control = control
        self.buffer = buffers.of[Scratchpad.OUT]
        self.port = port

    def elaborate(self, platform: object) -> Module:
        """The walk over tiles and their words."""
        m = Module()
        port, size, bus = self.port, self.config.tile_bytes(Scratchpad.OUT), self.port.bus_bytes
        words, lanes = max(1, size // bus), max(1, bus // size)
        store = decoded(self.control.word, places(Store, self.config))
        active, sending, running = Signal(), Signal(), Signal()
        tile, first, position = Signal(32), Signal(32), Signal(16)
        row, column, word = Signal(16), Signal(16), Signal(range(max(2, words)))
        left = Signal(40)
        """Responses that are awaited."""
        sent, answered, last_word = Signal(), Signal(), Signal()
        low, low_lane = (words - 1).bit_length(), (lanes - 1).bit_length()
        data = self.buffer.read_data
        m.d.comb += [
            port.request.eq(sending),
            port.hold.eq(active),
            port.write.eq(1),
            port.address.eq(Cat(word[:low], tile) >> low_lane),
            port.data.eq(data.replicate(lanes) if lanes > 1 else data.word_select(word[:low], 8 * bus)),
            port.mask.eq(((1 << (size % bus or bus)) - 1) << (size * tile[:low_lane] if lanes > 1 else 0)),
            port.response_ready.eq(1),
            sent.eq(sending & port.ready),
            answered.eq(port.response),
            last_word.eq(word == words - 1),
            self.buffer.read_address.eq(position),
            self.buffer.read_enable.eq(active & (~sending | (sent & last_word))),
            self.control.done.eq(running & ~active & (left == 0)),
        ]
        m.d.sync += left.eq(left + sent - answered)
        with m.If(self.buffer.read_enable):
            m.d.sync += [position.eq(position + 1), sending.eq(1)]
        with m.If(sent):
            m.d.sync += word.eq(word + 1)
            with m.If(last_word):
                m.d.sync += [word.eq(0), column.eq(column + 1), tile.eq(tile + 1)]
                with m.If(column == store["columns"] - 1):
                    m.d.sync += [column.eq(0), row.eq(row + 1), tile.eq(first), first.eq(first + store["stride"])]
                    with m.If(row == store["rows"] - 1):
                        m.d.sync += [active.eq(0), sending.eq(0)]
        with m.If(self.control.start):
            m.d.sync += [
                running.eq(1),
                active.eq(store["rows"].any() & store["columns"].any()),
                position.eq(store["sram"]),
                tile.eq(store["dram"]),
                first.eq(store["dram"] + store["stride"]),
                *(signal.eq(0) for signal in (row, column, word)),
            ]
        with m.If(self.control.done):
            m.d.sync += running.eq(0)
        return m

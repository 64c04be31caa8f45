"""The memories on the chip. A tile is read one cycle after its address; what is written meanwhile is read as new."""

from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib.memory import Memory

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.rtl.transfers import TileWrite

STORED = (Scratchpad.UOP, Scratchpad.INP, Scratchpad.WGT, Scratchpad.ACC)


class Buffer(Elaboratable):
    """The tiles of a memory: one port to read, one to write."""

    def __init__(self, config: Config, pad: Scratchpad) -> None:
        bits = 8 * config.tile_bytes(pad)
        self.memory = Memory(shape=bits, depth=config.depth(pad), init=[])
        self.read_address = Signal(config.index_bits(pad))
        self.read_enable = Signal(init=1)
        self.read_data = Signal(bits)
        self.write = TileWrite(config, pad)

    def elaborate(self, platform: object) -> Module:
        """The memory and its ports."""
        m = Module()
        m.submodules.memory = self.memory
        write = self.memory.write_port()
        read = self.memory.read_port(transparent_for=[write])
        m.d.comb += [
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data),
            read.en.eq(self.read_enable),
            read.addr.eq(self.read_address),
            self.read_data.eq(read.data),
        ]
        return m


class Buffers(Elaboratable):
    """All memories. ``out`` follows every write to acc, cut to its width, so that store has a port of its own."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.of = {pad: Buffer(config, pad) for pad in (*STORED, Scratchpad.OUT)}

    def elaborate(self, platform: object) -> Module:
        """The memories, and the writes to out."""
        m = Module()
        for pad, buffer in self.of.items():
            m.submodules[pad.name.lower()] = buffer
        acc, out = self.of[Scratchpad.ACC].write, self.of[Scratchpad.OUT].write
        wide, narrow = self.config.acc_bits, self.config.out_bits
        starts = range(0, len(acc.data), wide)
        m.d.comb += [
            out.enable.eq(acc.enable),
            out.address.eq(acc.address),
            out.data.eq(Cat(acc.data[start : start + narrow] for start in starts)),
        ]
        return m

"""The module load: LOAD of inp and wgt."""

from amaranth.hdl import Elaboratable, Module

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.rtl.buffers import Buffers
from tilewright.backend.vta.rtl.bus import Port
from tilewright.backend.vta.rtl.control import Control
from tilewright.backend.vta.rtl.transfers import TileReader
from tilewright.backend.vta.rtl.wires import connect

PADS = (Scratchpad.INP, Scratchpad.WGT)


class LoadUnit(Elaboratable):
    """Fetches tiles into the memories that GEMM reads."""

    def __init__(self, config: Config, control: Control, buffers: Buffers, port: Port) -> None:
        self.control = control
        self.buffers = buffers
        self.reader = TileReader(config, PADS, port)

    def elaborate(self, platform: object) -> Module:
        """A reader of tiles under the module's control."""
        m = Module()
        m.submodules.reader = self.reader
        m.d.comb += [
            self.reader.word.eq(self.control.word),
            self.reader.start.eq(self.control.start),
            self.control.done.eq(self.reader.done),
        ]
        for pad in PADS:
            connect(m, self.buffers.of[pad].write, self.reader.writes[pad])
        return m

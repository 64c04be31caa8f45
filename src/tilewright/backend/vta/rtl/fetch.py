"""Fetch: reads instructions over a port of its own, and hands them to the queues of the modules, in order."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Elaboratable, Module, Signal, Value

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.config import Module as Unit
from tilewright.backend.vta.instructions import Load, Opcode, places
from tilewright.backend.vta.rtl.bus import ADDRESS_BITS, Port
from tilewright.backend.vta.rtl.control import Control
from tilewright.backend.vta.rtl.decoders import decoded, opcode_is

COUNT_BITS = 32


class Fetch(Elaboratable):
    """``start`` fetches ``count`` instructions, from word ``address`` of device memory on."""

    def __init__(self, config: Config, port: Port, controls: Mapping[Unit, Control]) -> None:
        self.config = config
        self.port = port
        self.controls = dict(controls)
        self.start = Signal()
        self.address = Signal(ADDRESS_BITS)
        self.count = Signal(COUNT_BITS)
        self.active = Signal()
        """Whether something was handed out or is awaited, and no queue is full."""

    def elaborate(self, platform: object) -> Module:
        """Requests, the words of an instruction, and the queue that it goes to."""
        m = Module()
        port, words = self.port, max(1, self.config.instruction_bits // (8 * self.port.bus_bytes))
        position = Signal(range(max(2, words)))
        address, left = Signal(ADDRESS_BITS), Signal(COUNT_BITS + len(position))
        m.d.comb += [port.request.eq(left != 0), port.address.eq(address)]
        with m.If(port.request & port.ready):
            m.d.sync += [address.eq(address + 1), left.eq(left - 1)]
        with m.If(self.start):
            m.d.sync += [address.eq(self.address), left.eq(self.count * words)]

        word, full, taken = Signal(self.config.instruction_bits), Signal(), Signal()
        m.d.comb += port.response_ready.eq(~full | taken)
        with m.If(taken):
            m.d.sync += full.eq(0)
        with m.If(port.response & port.response_ready):
            m.d.sync += word.eq(Cat(word, port.response_data)[-self.config.instruction_bits :])
            m.d.sync += position.eq(position + 1)
            with m.If(position == words - 1):
                m.d.sync += [full.eq(1), position.eq(0)]

        targets = self._targets(word)
        for unit, control in self.controls.items():
            m.d.comb += [control.given.eq(word), control.put.eq(full & targets[unit] & control.room)]
        m.d.comb += taken.eq(Cat(control.put for control in self.controls.values()).any())
        m.d.comb += self.active.eq(taken | (~full & (left != 0)))
        return m

    def _targets(self, word: Value) -> dict[Unit, Value]:
        """Which queue an instruction goes to."""
        memory = decoded(word, places(Load, self.config))["memory"]
        operand = (memory == Scratchpad.INP.value) | (memory == Scratchpad.WGT.value)
        load, store = opcode_is(word, Opcode.LOAD) & operand, opcode_is(word, Opcode.STORE)
        return {Unit.LOAD: load, Unit.STORE: store, Unit.COMPUTE: ~load & ~store}

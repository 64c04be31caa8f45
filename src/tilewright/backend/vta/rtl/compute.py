"""The module compute: GEMM, ALU, LOAD of micro-ops and accumulators, FINISH.

A step of GEMM or ALU takes four cycles: its micro-op is read; its addresses are known, and inp and wgt are read; they
are multiplied, and the accumulator is read; the sum (or ALU's result) is written. The next step follows one cycle
later, and reads what this one writes.
"""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import Alu, Gemm, Opcode, places
from tilewright.backend.vta.rtl.buffers import Buffers
from tilewright.backend.vta.rtl.bus import Port
from tilewright.backend.vta.rtl.control import Control
from tilewright.backend.vta.rtl.decoders import decoded, opcode_is
from tilewright.backend.vta.rtl.matrix import MatrixUnit
from tilewright.backend.vta.rtl.sequencer import Sequencer
from tilewright.backend.vta.rtl.transfers import TileReader, TileWrite
from tilewright.backend.vta.rtl.vector import VectorUnit
from tilewright.backend.vta.rtl.wires import connect, elements

UOP, WGT, INP, ACC, _, ACC8 = Scratchpad


class ComputeUnit(Elaboratable):
    """``finished`` in the cycle in which FINISH ends."""

    def __init__(self, config: Config, control: Control, buffers: Buffers, port: Port) -> None:
        self.config = config
        self.control = control
        self.buffers = buffers
        self.reader = TileReader(config, (UOP, ACC, ACC8), port)
        self.sequencer = Sequencer(config, buffers.of[UOP])
        self.matrix = MatrixUnit(config)
        self.vector = VectorUnit(config)
        self.finished = Signal()
        self.stepping = Signal()
        """Whether a step of GEMM or ALU is under way."""

    def elaborate(self, platform: object) -> Module:
        """Hands instructions to the reader and the sequencer; joins the writes of accumulators."""
        m = Module()
        control, word = self.control, self.control.word
        for name in ("reader", "sequencer", "matrix", "vector"):
            m.submodules[name] = getattr(self, name)
        is_load, is_finish = opcode_is(word, Opcode.LOAD), opcode_is(word, Opcode.FINISH)
        steps, finishing = Signal(), Signal()
        m.d.comb += [
            self.reader.word.eq(word),
            self.sequencer.word.eq(word),
            self.reader.start.eq(control.start & is_load),
            self.sequencer.start.eq(control.start & ~is_load & ~is_finish),
            control.done.eq(self.reader.done | finishing | (steps & ~self.stepping)),
            self.finished.eq(control.ended & is_finish),
        ]
        m.d.sync += finishing.eq(control.start & is_finish)
        with m.If(self.sequencer.start):
            m.d.sync += steps.eq(1)
        with m.If(steps & ~self.stepping):
            m.d.sync += steps.eq(0)
        connect(m, self.buffers.of[UOP].write, self.reader.writes[UOP])
        self._step(m)
        return m

    def _step(self, m: Module) -> None:
        """The operands of a step, one cycle after its addresses; its result, after another."""
        sequencer, acc = self.sequencer, self.buffers.of[ACC]
        gemm, alu = (decoded(self.control.word, places(form, self.config)) for form in (Gemm, Alu))
        is_alu = opcode_is(self.control.word, Opcode.ALU)
        reading, writing = Signal(), Signal()
        first_of_pair, second_comes = Signal(), Signal()
        dst, src = Signal.like(sequencer.addresses["dst"]), Signal.like(sequencer.addresses["src"])
        target = Signal.like(dst)
        m.d.comb += [
            self.buffers.of[INP].read_address.eq(sequencer.addresses["src"]),
            self.buffers.of[WGT].read_address.eq(sequencer.addresses["wgt"]),
            self.matrix.inp.eq(self.buffers.of[INP].read_data),
            self.matrix.wgt.eq(self.buffers.of[WGT].read_data),
            acc.read_address.eq(Mux(first_of_pair, src, dst)),
            self.stepping.eq(sequencer.active | sequencer.valid | reading | writing),
        ]
        m.d.sync += [
            reading.eq(sequencer.valid),
            first_of_pair.eq(sequencer.is_first_of_pair),
            dst.eq(sequencer.addresses["dst"]),
            src.eq(sequencer.addresses["src"]),
            writing.eq(reading),
            second_comes.eq(first_of_pair),
            target.eq(dst),
        ]
        kept = Signal.like(acc.read_data)
        with m.If(second_comes):
            m.d.sync += kept.eq(acc.read_data)
        count, bits = len(kept) // self.config.acc_bits, self.config.acc_bits
        immediate = Cat(alu["immediate"], alu["immediate"][-1].replicate(bits - len(alu["immediate"])))
        summed = Cat(
            (x + y)[:bits] for x, y in zip(elements(acc.read_data, bits), elements(self.matrix.sums, bits), strict=True)
        )
        result = TileWrite(self.config, ACC)
        m.d.comb += [
            self.vector.operation.eq(alu["operation"]),
            self.vector.first.eq(acc.read_data),
            self.vector.second.eq(Mux(alu["use_immediate"], immediate.replicate(count), kept)),
            result.enable.eq(writing & ~second_comes),
            result.address.eq(target),
            result.data.eq(Mux(is_alu, self.vector.result, Mux(gemm["reset"], 0, summed))),
        ]
        connect(m, acc.write, self.reader.writes[ACC])
        with m.If(result.enable):
            connect(m, acc.write, result)

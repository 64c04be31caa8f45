"""The loops of GEMM and ALU: micro-op after micro-op, one in a cycle.

A step's micro-op is read in one cycle; in the next one it is placed: what the loops add to its addresses is added. ALU
with two accumulators takes two steps for a micro-op: the first (``is_first_of_pair``) reads the second operand.
"""

from amaranth.hdl import Elaboratable, Module, Mux, Signal, Value

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import Alu, Gemm, Opcode, places, uop_places
from tilewright.backend.vta.rtl.buffers import Buffer
from tilewright.backend.vta.rtl.decoders import decoded, opcode_is

OPERANDS = ("dst", "src", "wgt")


class Sequencer(Elaboratable):
    """Issues the steps of an instruction; ``issued`` when none is left."""

    def __init__(self, config: Config, uops: Buffer) -> None:
        self.config = config
        self.uops = uops
        self.word = Signal(config.instruction_bits)
        self.start = Signal()
        self.active = Signal()
        """Whether a step is read."""
        self.valid = Signal()
        """Whether a step is placed, with its addresses:"""
        self.pads = {
            "dst": config.index_bits(Scratchpad.ACC),
            "src": max(config.index_bits(Scratchpad.ACC), config.index_bits(Scratchpad.INP)),
            "wgt": config.index_bits(Scratchpad.WGT),
        }
        self.addresses = {name: Signal(bits, name=f"step_{name}") for name, bits in self.pads.items()}
        self.is_first_of_pair = Signal()

    def elaborate(self, platform: object) -> Module:
        """Three loops, and what they add to addresses."""
        m = Module()
        gemm, alu = (decoded(self.word, places(form, self.config)) for form in (Gemm, Alu))
        is_alu = opcode_is(self.word, Opcode.ALU)
        pairs = is_alu & ~alu["use_immediate"]

        def either(name: str) -> Value:
            return Mux(is_alu, alu[name], gemm[name]) if name in alu else Mux(is_alu, 0, gemm[name])

        begin, end, outer, inner = (either(name) for name in ("uop_begin", "uop_end", "outer", "inner"))
        uop, i, j, second = Signal.like(end), Signal.like(outer), Signal.like(inner), Signal()
        rows = {name: Signal(bits, name=f"outer_{name}") for name, bits in self.pads.items()}
        added = {name: Signal(bits, name=f"added_{name}") for name, bits in self.pads.items()}
        m.d.comb += self.uops.read_address.eq(uop)

        with m.If(self.start):
            m.d.sync += [
                self.active.eq((end > begin) & outer.any() & inner.any()),
                uop.eq(begin),
                *(signal.eq(0) for signal in (i, j, second, *rows.values(), *added.values())),
            ]
        with m.If(self.active):
            m.d.sync += second.eq(~second & pairs)
            with m.If(second | ~pairs):
                m.d.sync += uop.eq(uop + 1)
                with m.If(uop == end - 1):
                    m.d.sync += [uop.eq(begin), j.eq(j + 1)]
                    m.d.sync += [added[name].eq(added[name] + either(f"{name}_inner")) for name in OPERANDS]
                    with m.If(j == inner - 1):
                        m.d.sync += [j.eq(0), i.eq(i + 1)]
                        for name in OPERANDS:
                            following = rows[name] + either(f"{name}_outer")
                            m.d.sync += [rows[name].eq(following), added[name].eq(following)]
                        with m.If(i == outer - 1):
                            m.d.sync += self.active.eq(0)

        fields = decoded(self.uops.read_data, uop_places(self.config))
        m.d.sync += [self.valid.eq(self.active), self.is_first_of_pair.eq(pairs & ~second)]
        for name in OPERANDS:
            placed = Signal.like(added[name], name=f"placed_{name}")
            m.d.sync += placed.eq(added[name])
            m.d.comb += self.addresses[name].eq(fields[name] + placed)
        return m

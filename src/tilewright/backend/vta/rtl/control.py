"""The control of a module: its queue of instructions, and the tokens that these wait for and give."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Elaboratable, Module, Signal
from amaranth.lib.fifo import SyncFIFOBuffered

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.rtl.decoders import tokens_of
from tilewright.backend.vta.rtl.tokens import TokenQueue


class Control(Elaboratable):
    """Starts the instruction at the head of the queue when its tokens are there; ``done`` ends it.

    ``queues``: the queue of tokens of each flag that the module's instructions may have.
    """

    def __init__(self, config: Config, length: int, queues: Mapping[str, TokenQueue]) -> None:
        self.config = config
        self.queues = dict(queues)
        self.length = length
        self.put = Signal()
        """From fetch, with ``given``: a new instruction; only if there is ``room``."""
        self.given = Signal(config.instruction_bits)
        self.room = Signal()
        self.word = Signal(config.instruction_bits)
        """The instruction that runs, as long as it does."""
        self.start = Signal()
        """In the cycle in which it begins."""
        self.done = Signal()
        """From the module, in the cycle in which its work ends, which is later than ``start``."""
        self.ended = Signal()
        """In the cycle in which its tokens are given."""

    def elaborate(self, platform: object) -> Module:
        """The queue, and two states."""
        m = Module()
        m.submodules.queue = queue = SyncFIFOBuffered(width=self.config.instruction_bits, depth=self.length)
        m.d.comb += [
            queue.w_data.eq(self.given),
            queue.w_en.eq(self.put),
            self.room.eq(queue.w_rdy),
            self.word.eq(queue.r_data),
            queue.r_en.eq(self.ended),
        ]
        flags = tokens_of(self.word, self.config)
        missing = [flags[name] & item.empty for name, item in self.queues.items() if name.startswith("pop")]
        blocked = [flags[name] & item.full for name, item in self.queues.items() if name.startswith("push")]
        for name, item in self.queues.items():
            if name.startswith("pop"):
                m.d.comb += item.pop.eq(self.start & flags[name])
            else:
                m.d.comb += item.push.eq(self.ended & flags[name])

        running, waiting = Signal(), Signal()
        m.d.comb += self.start.eq(~running & queue.r_rdy & ~Cat(missing).any())
        m.d.comb += self.ended.eq(running & (self.done | waiting) & ~Cat(blocked).any())
        with m.If(self.start):
            m.d.sync += running.eq(1)
        with m.If(self.done):
            m.d.sync += waiting.eq(1)
        with m.If(self.ended):
            m.d.sync += [running.eq(0), waiting.eq(0)]
        return m

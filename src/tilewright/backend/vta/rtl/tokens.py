"""A queue of tokens. They are all alike, so that a counter is all of it."""

from amaranth.hdl import Elaboratable, Module, Signal


class TokenQueue(Elaboratable):
    """At most ``length`` tokens; ``push`` and ``pop`` may come in the same cycle, and never while full or empty."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.push = Signal()
        self.pop = Signal()
        self.full = Signal()
        self.empty = Signal()

    def elaborate(self, platform: object) -> Module:
        """The counter."""
        m = Module()
        count = Signal(range(self.length + 1))
        m.d.sync += count.eq(count + self.push - self.pop)
        m.d.comb += [self.full.eq(count == self.length), self.empty.eq(count == 0)]
        return m

"""The accelerator between two pins, so that it can be placed and routed on a chip with fewer pins than it has wires.

Inputs come from a shift register, and outputs go through a register of their own into a signature register, whose last
bit leaves. So no part of the accelerator can be left out as useless, and its paths begin and end in flip-flops.
"""

from amaranth.hdl import Cat, Elaboratable, Module, Signal

from tilewright.backend.vta.rtl.top import Accelerator


class Shell(Elaboratable):
    """``bit_in`` is shifted to all inputs of ``accelerator``; ``bit_out`` depends on all its outputs."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.bit_in = Signal()
        self.bit_out = Signal()

    @property
    def ports(self) -> tuple[Signal, ...]:
        """The signals on the outside."""
        return self.bit_in, self.bit_out

    def elaborate(self, platform: object) -> Module:
        """The accelerator and both registers."""
        m = Module()
        m.submodules.accelerator = self.accelerator
        inputs, outputs = Cat(self.accelerator.inputs), Cat(self.accelerator.outputs)
        shifted, taken, signature = Signal(len(inputs)), Signal(len(outputs)), Signal(len(outputs))
        m.d.comb += [inputs.eq(shifted), self.bit_out.eq(signature[-1])]
        m.d.sync += [
            shifted.eq(Cat(self.bit_in, shifted)),
            taken.eq(outputs),
            signature.eq(Cat(signature[-1], signature) ^ taken),
        ]
        return m

"""The compiler: scheduled loop programs to programs of the accelerator.

In: a loop program whose blocks copy between device memory and the memories on the chip, call GEMM, or compute on acc.
Out: ``program.Program``: transfers, micro-op kernels, and the tokens between them. ::

    forms          indices and conditions as sums over loops
    nests          a block with the loops that an instruction may run, cut into boxes without conditions
    transfers      copies of boxes as LOADs and STOREs
    micro_loops    loops around a micro-op as those of an instruction, and micro-ops for the rest
    elementwise    expressions on acc as operations of ALU
    recording      steps with what they access; ordered: with tokens
    cuts           a kernel, or a transfer, as several
    durations      about how long a step takes
    beginning      the first product in parts, with what it needs in the order in which it needs it
    ending         the last product and the operations after it in parts, each stored while the rest is computed
    easing         both ends of a program
    places         buffers of acc that share tiles, or that all virtual threads share
    translate      the walk over a program: places on the chip, virtual threads, an instruction or more for each nest

A new operation of ALU is a line in ``elementwise``.
"""

from tilewright.backend.vta.compiler.elementwise import shift
from tilewright.backend.vta.compiler.recording import Recorded, ordered
from tilewright.backend.vta.compiler.translate import recorded, translated

__all__ = ["Recorded", "ordered", "recorded", "shift", "translated"]

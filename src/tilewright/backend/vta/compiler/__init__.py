"""The compiler: scheduled loop programs to programs of the accelerator.

In: a loop program whose blocks copy between device memory and the memories on the chip, call GEMM, or compute on acc.
Out: ``program.Program``: transfers, micro-op kernels, and the tokens between them. ::

    forms          indices and conditions as sums over loops
    nests          a block with the loops that an instruction may run, cut into boxes without conditions
    transfers      copies of boxes as LOADs and STOREs
    micro_loops    loops around a micro-op as those of an instruction, and micro-ops for the rest
    elementwise    expressions on acc as operations of ALU
    recording      steps with what they access; ordered: with tokens
    easing         both ends of a program in smaller steps
    places         buffers of acc that share tiles, or that all virtual threads share
    translate      the walk over a program: places on the chip, virtual threads, an instruction or more for each nest

A new operation of ALU is a line in ``elementwise``.
"""

from tilewright.backend.vta.compiler.elementwise import shift
from tilewright.backend.vta.compiler.recording import Recorded, ordered
from tilewright.backend.vta.compiler.translate import recorded, translated

__all__ = ["Recorded", "ordered", "recorded", "shift", "translated"]

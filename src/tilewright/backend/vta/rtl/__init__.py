"""The accelerator as hardware, in Amaranth, from the same ``Config`` and the same fields as the simulators.

In: a configuration. Out: a device that runs programs cycle by cycle in Amaranth's simulator, and Verilog. ::

    top            all of it: fetch, load, compute, store, memories, queues of tokens, two ports
    fetch          instructions from device memory to the queues of the modules; decoders: fields as wires
    control        a module's queue; tokens: what its instructions wait for and give
    load, store    transfers; transfers: rectangles of tiles with strides and zeros
    compute        GEMM and ALU; sequencer: their loops; matrix, vector: what they compute
    buffers        the memories on the chip; bus: the interface to device memory; wires: small things
    device         the device, with device_port for its memory; verilog: the text

Needs the extra ``rtl``. A new field of an instruction is declared in ``instructions`` only; a new ALU operation has its
meaning in ``vector``.
"""

from tilewright.backend.vta.config import TINY
from tilewright.backend.vta.rtl.device import RtlDevice
from tilewright.backend.vta.rtl.verilog import verilog

__all__ = ["TINY", "RtlDevice", "verilog"]

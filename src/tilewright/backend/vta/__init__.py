"""An accelerator with explicit memories and decoupled modules, after VTA: instructions, simulators, run-time compiler.

In: scheduled loop programs; or micro-op kernels and transfers of tiles, recorded in an order, with tokens. Out: a
program as bytes, run by a device (a simulator, or whatever else implements the driver), with counts and cycles. ::

    config         blocks, sizes and widths; presets; config_file: as files
    fields         fields of words: encoder and decoder
    instructions   the instruction set; assembly prints it, manual writes its page
    footprints     what an instruction accesses; plans: in which order NumPy runs its micro-ops
    functional     the functional simulator and its counters; device_memory
    dataflow       the modules' queues; hazards checks tokens; cycles simulates times
    kernels        micro-op kernels; program: the recorder; micro_op_cache
    driver         the protocol of devices; simulated: the simulators as one; runtime: runs programs on one
    memories       scopes of buffers, and GEMM as a tensor intrinsic: what schedules know
    compiler       scheduled loop programs to programs; schedules: those that nobody writes; backend: for te.build
    written        programs as text, for artifacts
    layers         layers as tensor expressions; packing: their arrays; convolution: all of it for a convolution

A new device implements ``driver.Driver``. A new instruction is a class in ``instructions`` and its meaning in
``functional`` and ``footprints``; its encoding, text and manual follow. docs/accelerator.md goes through all of it.
"""

from tilewright.backend.vta.compiler import shift
from tilewright.backend.vta.config import LARGE, OSDI, PRESETS, VTA, Config, Module, Scratchpad
from tilewright.backend.vta.cycles import Cycles, Timing, simulate
from tilewright.backend.vta.driver import Driver, Report
from tilewright.backend.vta.functional import Counters
from tilewright.backend.vta.memories import gemm, memories
from tilewright.backend.vta.program import Program, Recorder
from tilewright.backend.vta.runtime import Run, Runtime
from tilewright.backend.vta.schedules import Tiles, schedule_tiles
from tilewright.backend.vta.simulated import SimulatedDevice

__all__ = [
    "Config",
    "Counters",
    "Cycles",
    "Driver",
    "LARGE",
    "Module",
    "OSDI",
    "PRESETS",
    "Program",
    "Recorder",
    "Report",
    "Run",
    "Runtime",
    "Scratchpad",
    "SimulatedDevice",
    "Tiles",
    "Timing",
    "VTA",
    "gemm",
    "memories",
    "schedule_tiles",
    "shift",
    "simulate",
]

"""About how long a step takes, alone: what cuts are chosen by. With other times than ``Timing``'s they may not pay."""

from tilewright.backend.vta.compiler.cuts import kernel_of, transfer_of
from tilewright.backend.vta.compiler.recording import Recorded
from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.instructions import Store
from tilewright.backend.vta.kernels import GemmKernel
from tilewright.backend.vta.program import Call

_TIMING = Timing()
START = _TIMING.issue + _TIMING.gemm_depth
"""Of GEMM and ALU: the cycles that an instruction takes beside its micro-ops."""


def cycles(one: Recorded, config: Config) -> float:
    """Of GEMM, ALU, LOAD and STORE."""
    return working(one) if isinstance(one.step, Call) else _transferring(one, config)


def working(one: Recorded) -> float:
    """Of GEMM and ALU."""
    kernel = kernel_of(one)
    is_pair = not isinstance(kernel, GemmKernel) and kernel.immediate is None
    interval = _TIMING.alu_pair_interval if is_pair else _TIMING.gemm_interval
    return START + interval * len(kernel.uops) * kernel.outer.extent * kernel.inner.extent


def fetching(one: Recorded, whole: Recorded, config: Config) -> int:
    """What compute takes to load the micro-ops of a part of ``whole``, beside others: none, if they are some of its."""
    uops = kernel_of(one).uops
    is_part = uops[0] in kernel_of(whole).uops
    return 0 if is_part else len(uops) * -(-config.tile_bytes(Scratchpad.UOP) // _TIMING.bus_bytes)


def _transferring(one: Recorded, config: Config) -> float:
    instruction = transfer_of(one).instruction
    beats = instruction.rows * instruction.columns * config.tile_bytes(instruction.memory) / _TIMING.bus_bytes
    end = _TIMING.store_depth if isinstance(instruction, Store) else 0
    return _TIMING.issue + _TIMING.latency + beats + end

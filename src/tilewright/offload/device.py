"""Devices that run regions: one that is shared by all calls of a model, and one that only counts cycles."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Timing, simulate
from tilewright.backend.vta.driver import Report
from tilewright.backend.vta.functional import count
from tilewright.backend.vta.instructions import decode_program
from tilewright.backend.vta.program import Call, Program
from tilewright.backend.vta.runtime import MOST_STORED, Runtime
from tilewright.base.arrays import Array
from tilewright.base.errors import BadInput
from tilewright.base.forks import ProcessLock
from tilewright.offload.accelerator import Accelerator
from tilewright.offload.region import Region

_SLACK = 1 << 16
"""Bytes of device memory besides what programs are known to take."""


@dataclass(slots=True)
class Device:
    """A device for the regions of one model, opened at the first run. Calls of several threads wait for each other."""

    accelerator: Accelerator
    memory_bytes: int = 0
    last: dict[Region, Report] = field(default_factory=dict[Region, Report])
    """What the device reported of the last run of each region."""
    _runtime: Runtime | None = None
    _lock: ProcessLock = field(default_factory=ProcessLock)

    def reserve(self, region: Region) -> None:
        """Make room for a region. Micro-ops of all regions stay in device memory; operands do not."""
        kept = 0 if self.memory_bytes else MOST_STORED * region.program.config.uop_bytes
        self.memory_bytes = max(self.memory_bytes, 2 * region.bytes + _SLACK) + kept + 2 * _code_bytes(region.program)

    def run(self, region: Region, arrays: Sequence[Array]) -> list[Array]:
        """The outputs of a region."""
        with self._lock.held():
            if self._runtime is None:
                self._runtime = Runtime(self.accelerator.open(self.memory_bytes))
            made, run = region.run(self._runtime, arrays)
            self.last[region] = run.report
            return made


def _code_bytes(program: Program) -> int:
    """At most, for instructions and micro-ops."""
    config = program.config
    kernels = {step.kernel.uops for step in program.steps if isinstance(step, Call)}
    uops = sum(len(uops) * config.uop_bits // 8 + config.alignment for uops in kernels)
    return uops + 2 * len(program.steps) * config.instruction_bits // 8


@dataclass(slots=True)
class Stopwatch:
    """A ``Driver`` that computes nothing: it reports what a program moves, and its cycles. Its memory is zeros."""

    config: Config
    timing: Timing
    _end: int = 0
    _written: dict[int, bytes] = field(default_factory=dict[int, bytes])
    _started: tuple[int, int] | None = None

    def allocate(self, size: int) -> int:
        """The address of a new block."""
        self._end += self.config.alignment
        address = self._end
        self._end += -(-size // self.config.alignment) * self.config.alignment
        return address

    def free(self, address: int) -> None:
        """Forget what was written."""
        self._written.pop(address, None)

    def write(self, address: int, data: bytes) -> None:
        """Keep instructions until they run."""
        self._written[address] = data

    def read(self, address: int, size: int) -> bytes:
        """Zeros."""
        return bytes(size)

    def start(self, address: int, count: int) -> None:
        """Time what is at ``address``."""
        self._started = address, count

    def wait(self) -> Report:
        """Counters and cycles. Raises ``BadProgram`` for a deadlock."""
        if self._started is None:
            raise BadInput("the device runs no program; start one first")
        (address, _), self._started = self._started, None
        program = decode_program(self._written[address], self.config)
        return Report(count(program, self.config), simulate(program, self.config, self.timing))


def timed(region: Region, timing: Timing, runs: int = 1) -> Report:
    """What the last of some runs of a region takes: only the first loads all micro-ops."""
    program = region.program
    runtime = Runtime(Stopwatch(program.config, timing))
    feeds = {
        operand.name: np.zeros(operand.array_shape(program.config), program.config.dtype(operand.pad))
        for operand in program.inputs
        if operand not in program.results
    }
    report = Report()
    for _ in range(runs):
        report = runtime.run(program, feeds).report
    return report

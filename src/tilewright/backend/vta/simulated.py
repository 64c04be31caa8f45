"""The simulators as a device: functional, with the checker of tokens; and, if it has times, of cycles.

SimulatedDevice(VTA)                        counters; wrong tokens are an error
SimulatedDevice(VTA, timing=Timing())       also cycles
"""

from dataclasses import dataclass, field

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Timing, simulate
from tilewright.backend.vta.device_memory import DeviceMemory
from tilewright.backend.vta.driver import Report
from tilewright.backend.vta.functional import Core, Counters
from tilewright.backend.vta.hazards import require_safe
from tilewright.backend.vta.instructions import decode_program
from tilewright.base.errors import BadInput

MEMORY_BYTES = 64 << 20


@dataclass(slots=True)
class SimulatedDevice:
    """A ``Driver``. Programs run when they are waited for, and are checked for deadlocks and hazards.

    ``timing``: None runs no cycle simulator.
    """

    config: Config
    memory_bytes: int = MEMORY_BYTES
    timing: Timing | None = None
    core: Core = field(init=False)
    _started: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.core = Core(self.config, DeviceMemory(self.memory_bytes, self.config.alignment))

    def allocate(self, size: int) -> int:
        """The address of a new block. Raises ``OutOfMemory``."""
        return self.core.memory.allocate(size)

    def free(self, address: int) -> None:
        """Give a block back. Raises ``BadInput`` if none starts there."""
        self.core.memory.free(address)

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to device memory. Raises ``OutOfBounds``."""
        self.core.memory.write(address, data)

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from device memory. Raises ``OutOfBounds``."""
        return self.core.memory.read(address, size)

    def start(self, address: int, count: int) -> None:
        """Run ``count`` instructions at ``address``. Raises ``BadInput`` if a run was not waited for."""
        if self._started is not None:
            raise BadInput("the device runs a program; wait for it first")
        self._started = address, count

    def wait(self) -> Report:
        """Run what was started.

        Raises ``InvalidInstruction`` for what is no instruction, ``OutOfBounds`` for accesses outside of memories,
        ``BadProgram`` for deadlocks and hazards.
        """
        if self._started is None:
            raise BadInput("the device runs no program; start one first")
        (address, count), self._started = self._started, None
        size = self.config.instruction_bits // 8
        program = decode_program(self.read(address, count * size), self.config)
        self.core.counters = Counters()
        footprints = [self.core.execute(instruction) for instruction in program]
        require_safe(program, footprints, self.config)
        cycles = None if self.timing is None else simulate(program, self.config, self.timing)
        return Report(self.core.counters, cycles)

"""What the run-time compiler asks of a device: a simulator, hardware, or one of these elsewhere.

    address = driver.allocate(size)
    driver.write(address, data)
    driver.start(address, count)      instructions in device memory
    report = driver.wait()
    data = driver.read(address, size)
    driver.free(address)

All arguments and results are numbers, bytes and frozen objects, so that a driver can pass them on over a connection.
The memories on the chip keep what they have between runs; the run-time compiler relies on this for micro-ops.
"""

from dataclasses import dataclass
from typing import Protocol

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Cycles
from tilewright.backend.vta.functional import Counters


@dataclass(frozen=True, slots=True)
class Report:
    """What a device knows of a run; None is unknown."""

    counters: Counters | None = None
    cycles: Cycles | None = None


class Driver(Protocol):
    """A device. ``TilewrightError`` of any kind from ``wait`` means that the run failed."""

    @property
    def config(self) -> Config:
        """Its configuration."""
        ...

    def allocate(self, size: int) -> int:
        """The address of a new block of device memory: a multiple of ``config.alignment``."""
        ...

    def free(self, address: int) -> None:
        """Give a block back."""
        ...

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to device memory."""
        ...

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from device memory."""
        ...

    def start(self, address: int, count: int) -> None:
        """Run ``count`` instructions in device memory; returns at once."""
        ...

    def wait(self) -> Report:
        """Wait for FINISH."""
        ...

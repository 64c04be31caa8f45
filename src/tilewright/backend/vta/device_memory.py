"""Device memory: bytes that the host and the accelerator share, and an allocator of blocks in them."""

from dataclasses import dataclass, field

import numpy as np

from tilewright.base.arrays import Bytes, new_bytes
from tilewright.base.errors import BadInput, OutOfBounds, OutOfMemory


@dataclass(slots=True)
class DeviceMemory:
    """``size`` bytes, at first 0. Allocated blocks start at multiples of ``alignment``.

    Address 0 is never allocated.
    """

    size: int
    alignment: int
    data: Bytes = field(init=False)
    _taken: dict[int, int] = field(default_factory=dict[int, int])
    """The bytes of each allocated block, by its address."""

    def __post_init__(self) -> None:
        self.data = new_bytes(self.size, "the memory of the device")
        self.data[:] = 0

    def allocate(self, size: int) -> int:
        """The address of a new block. Raises ``OutOfMemory`` if there is no room for it."""
        wanted = max(1, -(-size // self.alignment)) * self.alignment
        end = self.alignment
        for address in sorted(self._taken):
            if address - end >= wanted:
                break
            end = address + self._taken[address]
        if end + wanted > self.size:
            raise OutOfMemory(
                f"a block of {size} bytes does not fit the device: {sum(self._taken.values())} of {self.size} bytes "
                "are allocated; free blocks, or give the device more memory"
            )
        self._taken[end] = wanted
        return end

    def free(self, address: int) -> None:
        """Give a block back. Raises ``BadInput`` if none starts there."""
        if self._taken.pop(address, None) is None:
            raise BadInput(f"no block of the device starts at {address}; free what allocate returned, once")

    def write(self, address: int, data: bytes | Bytes) -> None:
        """Copy bytes into the memory. Raises ``OutOfBounds``."""
        values = np.frombuffer(data, np.uint8)
        self._require_inside(address, len(values))
        self.data[address : address + len(values)] = values

    def read(self, address: int, size: int) -> bytes:
        """A copy of some bytes. Raises ``OutOfBounds``."""
        self._require_inside(address, size)
        return self.data[address : address + size].tobytes()

    def _require_inside(self, address: int, size: int) -> None:
        if address < 0 or size < 0 or address + size > self.size:
            raise OutOfBounds(
                f"bytes {address} to {address + size - 1} are not in the device's memory of {self.size} bytes"
            )

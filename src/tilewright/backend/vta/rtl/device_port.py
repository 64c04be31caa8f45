"""Device memory at a port of the accelerator, in simulation: a response ``latency`` cycles after each request."""

from collections import deque
from dataclasses import dataclass, field

from amaranth.sim import SimulatorContext

from tilewright.backend.vta.device_memory import DeviceMemory
from tilewright.backend.vta.rtl.bus import Port

OUTSTANDING = 16
"""Requests that are taken beyond those of the latency, while responses are not."""


@dataclass(slots=True)
class DevicePort:
    """Serves one port. ``requests`` counts those that it took; ``error`` is why it stopped."""

    memory: DeviceMemory
    port: Port
    latency: int
    requests: int = 0
    error: Exception | None = None
    _waiting: deque[tuple[int, int, int]] = field(default_factory=deque[tuple[int, int, int]])
    """When each response may come, its tag, its data."""

    async def serve(self, context: SimulatorContext) -> None:
        """The process."""
        port, now, shown = self.port, 0, False
        context.set(port.ready, 1)
        ready = True
        watched = port.request, port.write, port.address, port.data, port.mask, port.tag, port.response_ready
        async for _, _, request, write, address, data, mask, tag, taken in context.tick().sample(*watched):
            now += 1
            if shown and taken:
                self._waiting.popleft()
            if request and ready:
                self.requests += 1
                try:
                    answer = self._write(address, data, mask) if write else self._read(address)
                except Exception as error:  # noqa: BLE001  raised again by the device, outside of the simulator
                    self.error, answer = error, 0
                self._waiting.append((now + self.latency - 1, tag, answer))
            shown = bool(self._waiting) and self._waiting[0][0] <= now
            context.set(port.response, shown)
            if shown:
                context.set(port.response_tag, self._waiting[0][1])
                context.set(port.response_data, self._waiting[0][2])
            ready = len(self._waiting) < self.latency + OUTSTANDING
            context.set(port.ready, ready)

    def _read(self, address: int) -> int:
        return int.from_bytes(self.memory.read(address * self.port.bus_bytes, self.port.bus_bytes), "little")

    def _write(self, address: int, data: int, mask: int) -> int:
        first = address * self.port.bus_bytes
        values = data.to_bytes(self.port.bus_bytes, "little")
        for number, value in enumerate(values):
            if mask >> number & 1:
                self.memory.write(first + number, bytes((value,)))
        return 0

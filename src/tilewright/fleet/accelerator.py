"""``FleetAccelerator``: the accelerator of a leased device, as a driver.

    with fleet.request("board") as leased:
        accelerator = Accelerator(VTA, connect=lambda size: FleetAccelerator(leased, VTA, size))
        model = tilewright.compile("net.onnx", accelerator=accelerator)

Device memory has a copy here. What was written since the last run is sent with the next one, by hash: weights that the
device has had are not sent again. What the program stores comes back.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Protocol

from tilewright.backend.vta.config import Config, Module
from tilewright.backend.vta.cycles import Cycles, Timing
from tilewright.backend.vta.dataflow import Timeline
from tilewright.backend.vta.device_memory import DeviceMemory
from tilewright.backend.vta.driver import Report
from tilewright.backend.vta.footprints import rows_of
from tilewright.backend.vta.functional import Counters
from tilewright.backend.vta.instructions import Store, decode_program
from tilewright.base import fields
from tilewright.base.errors import BadInput
from tilewright.fleet.device import Verb

_SECONDS = 600.0
"""A run may take."""


class Lent(Protocol):
    """What is asked of ``Leased``."""

    def call(
        self, message: Mapping[str, object], contents: Mapping[str, bytes], seconds: float
    ) -> tuple[dict[str, object], tuple[bytes, ...]]:
        """Let the device do something that needs ``contents``, by hash."""
        ...


@dataclass(slots=True)
class FleetAccelerator:
    """A ``Driver``. The configuration is loaded at the first run, and again after an error."""

    lent: Lent
    config: Config
    memory_bytes: int
    timing: Timing | None = None
    _memory: DeviceMemory = field(init=False)
    _blocks: dict[int, int] = field(default_factory=dict[int, int])
    _changed: dict[int, int] = field(default_factory=dict[int, int])
    """Bytes that were written since the last run, by address."""
    _session: str | None = None
    _started: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self._memory = DeviceMemory(self.memory_bytes, self.config.alignment)

    def allocate(self, size: int) -> int:
        """The address of a new block. Raises ``OutOfMemory``."""
        address = self._memory.allocate(size)
        self._blocks[address] = size
        return address

    def free(self, address: int) -> None:
        """Give a block back. Raises ``BadInput`` if none starts there."""
        self._memory.free(address)
        del self._blocks[address]
        self._changed.pop(address, None)

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to device memory. Raises ``OutOfBounds``."""
        self._memory.write(address, data)
        self._changed[address] = max(len(data), self._changed.get(address, 0))

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from device memory. Raises ``OutOfBounds``."""
        return self._memory.read(address, size)

    def start(self, address: int, count: int) -> None:
        """Run ``count`` instructions at ``address``. Raises ``BadInput`` if a run was not waited for."""
        if self._started is not None:
            raise BadInput("the device runs a program; wait for it first")
        self._started = address, count

    def wait(self) -> Report:
        """Run what was started. Raises what the device raises, ``FleetError`` if the lease has ended."""
        if self._started is None:
            raise BadInput("the device runs no program; start one first")
        (address, count), self._started = self._started, None
        begins = self._session is None
        session, self._session = self._session or uuid.uuid4().hex, None
        reads = list(self._stored(address, count))
        contents = {at: self._memory.read(at, size) for at, size in (self._blocks if begins else self._changed).items()}
        hashes = {at: sha256(content).hexdigest() for at, content in contents.items()}
        asked = {
            "verb": Verb.ACCELERATE.value,
            "session": session,
            "begins": begins,
            "config": asdict(self.config),
            "timing": None if self.timing is None else asdict(self.timing),
            "memory": self.memory_bytes,
            "writes": [{"address": at, "hash": key} for at, key in hashes.items()],
            "start": address,
            "count": count,
            "reads": reads,
        }
        answer, parts = self.lent.call(asked, {hashes[at]: content for at, content in contents.items()}, _SECONDS)
        for (at, _), content in zip(reads, parts, strict=True):
            self._memory.write(at, content)
        self._changed.clear()
        self._session = session  # only now: after an error nobody knows what the device has
        return _report(answer)

    def _stored(self, address: int, count: int) -> Iterable[tuple[int, int]]:
        """Ranges of bytes that a program stores to, with what is between: address and size."""
        size = self.config.instruction_bits // 8
        program = decode_program(self._memory.read(address, count * size), self.config)
        found = (rows_of(instruction, self.config) for instruction in program if isinstance(instruction, Store))
        ranges = sorted((int(rows.starts[0]), int(rows.starts[-1]) + rows.size) for rows in found if rows.bytes)
        begin = end = 0
        for start, stop in ranges:
            if start > end:
                if end > begin:
                    yield begin, end - begin
                begin = start
            end = max(end, stop)
        if end > begin:
            yield begin, end - begin


def _report(answer: Mapping[str, object]) -> Report:
    counters, cycles = answer["counters"], answer["cycles"]
    known = None if counters is None else {name: fields.whole(n) for name, n in fields.mapping(counters).items()}
    return Report(
        None if known is None else Counters(**known), None if cycles is None else _cycles(fields.mapping(cycles))
    )


def _cycles(found: Mapping[str, object]) -> Cycles:
    busy = fields.mapping(found["busy"])
    gemm, transferring = fields.whole(found["gemm"]), fields.whole(found["transferring"])
    known = tuple((module, fields.whole(busy[module.value])) for module in Module)
    return Cycles(fields.whole(found["total"]), known, gemm, transferring, Timeline((), (), ()))

"""On a device: an accelerator in whatever configuration it is sent. There is no hardware: a simulator is it.

What an FPGA gets as a bitstream is a ``Config`` here. A *session* is one load of it: memories keep what they have until
another session begins. The simulator looks between two instructions whether the lease has ended.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from dataclasses import fields as fields_of

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Cycles, Timing
from tilewright.backend.vta.driver import Report
from tilewright.backend.vta.footprints import Footprint
from tilewright.backend.vta.functional import Core
from tilewright.backend.vta.instructions import Instruction
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base import fields
from tilewright.base.errors import BadInput, FleetError

_MOST_MEMORY = 1 << 30
Contents = Callable[[str], bytes]
"""What was uploaded, by hash."""


@dataclass(slots=True)
class _Stoppable(Core):
    """A core that stops when a lease ends."""

    stop: threading.Event | None = None

    def execute(self, instruction: Instruction) -> Footprint:
        if self.stop is not None and self.stop.is_set():
            raise FleetError("the lease has ended")
        return Core.execute(self, instruction)


@dataclass(slots=True)
class Board:
    """The accelerator of a device; ``session``: that of the configuration that is loaded."""

    session: str = ""
    device: SimulatedDevice | None = None

    def run(
        self, asked: Mapping[str, object], contents: Contents, stop: threading.Event
    ) -> tuple[dict[str, object], tuple[bytes, ...]]:
        """Write what is given, run a program, and return what is asked for, with the report.

        Raises ``FleetError`` if another session has begun meanwhile, ``BadInput`` for an impossible configuration, and
        what the simulator raises.
        """
        device = self._loaded(asked, stop)
        for given in map(fields.mapping, fields.items(asked["writes"])):
            device.write(fields.whole(given["address"]), contents(fields.text(given["hash"])))
        device.start(fields.whole(asked["start"]), fields.whole(asked["count"]))
        report = device.wait()
        ranges = ([fields.whole(number) for number in fields.items(pair)] for pair in fields.items(asked["reads"]))
        return _message(report), tuple(device.read(address, size) for address, size in ranges)

    def _loaded(self, asked: Mapping[str, object], stop: threading.Event) -> SimulatedDevice:
        session = fields.text(asked["session"])
        if asked["begins"] is True:
            self.session, self.device = session, _new_device(asked, stop)
        if self.session != session or self.device is None:
            raise FleetError("another configuration was loaded into the accelerator meanwhile; run again")
        return self.device


def _new_device(asked: Mapping[str, object], stop: threading.Event) -> SimulatedDevice:
    config, size = read_config(asked["config"]), fields.whole(asked["memory"])
    if size > _MOST_MEMORY:
        raise BadInput(f"{size} bytes of device memory are more than {_MOST_MEMORY}; use a smaller model")
    timing = None if asked["timing"] is None else Timing(**_numbers(asked["timing"], Timing))
    device = SimulatedDevice(config, size, timing)
    device.core = _Stoppable(config, device.core.memory, stop=stop)
    return device


def read_config(message: object) -> Config:
    """From JSON. Raises ``BadInput``."""
    return Config(fields.text(fields.mapping(message)["name"]), **_numbers(message, Config))


def _numbers(message: object, form: type[Config | Timing]) -> dict[str, int]:
    found = fields.mapping(message)
    return {item.name: fields.whole(found[item.name]) for item in fields_of(form) if item.name != "name"}


def _message(report: Report) -> dict[str, object]:
    counters = None if report.counters is None else asdict(report.counters)
    return {"counters": counters, "cycles": None if report.cycles is None else _cycles(report.cycles)}


def _cycles(cycles: Cycles) -> dict[str, object]:
    """Without the times of each instruction."""
    busy = {module.value: number for module, number in cycles.busy}
    return {"total": cycles.total, "busy": busy, "gemm": cycles.gemm, "transferring": cycles.transferring}

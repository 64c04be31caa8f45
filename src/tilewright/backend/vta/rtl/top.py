"""The accelerator: fetch, three modules with their queues, four queues of tokens, memories, two ports."""

from amaranth.hdl import Elaboratable, Module, Value

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.config import Module as Unit
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.dataflow import CHANNELS
from tilewright.backend.vta.instructions import require_encodable
from tilewright.backend.vta.rtl.buffers import Buffers
from tilewright.backend.vta.rtl.bus import Arbiter, Port
from tilewright.backend.vta.rtl.compute import ComputeUnit
from tilewright.backend.vta.rtl.control import Control
from tilewright.backend.vta.rtl.fetch import Fetch
from tilewright.backend.vta.rtl.load import LoadUnit
from tilewright.backend.vta.rtl.store import StoreUnit
from tilewright.backend.vta.rtl.tokens import TokenQueue
from tilewright.base.errors import BadInput


def require_buildable(config: Config, timing: Timing) -> None:
    """Raises ``BadInput`` if instructions have no room for the addresses of ``config``, or the bus has another width
    than a power of two of bytes, at most those of an instruction."""
    require_encodable(config)
    bus, most = timing.bus_bytes, config.instruction_bits // 8
    if bus & (bus - 1) or bus > most:
        raise BadInput(f"Timing: bus_bytes={bus} is not a power of two up to {most}, the bytes of an instruction")


class Accelerator(Elaboratable):
    """The hardware of ``config``; of ``timing`` it takes the width of the bus and the lengths of queues.

    ``fetch.start`` with ``fetch.address`` and ``fetch.count`` starts a program; ``compute.finished`` ends it. The
    configuration is one that is buildable (``require_buildable``).
    """

    def __init__(self, config: Config, timing: Timing) -> None:
        self.config = config
        self.tokens = {channel: TokenQueue(timing.token_length) for channel in CHANNELS}
        self.controls = {unit: self._control(unit, timing) for unit in Unit}
        self.buffers = Buffers(config)
        self.fetch_port = Port("fetch", timing.bus_bytes)
        self.data_port = Port("data", timing.bus_bytes, tags=len(Unit))
        self.clients = {unit: Port(unit.value, timing.bus_bytes, tags=len(Unit)) for unit in Unit}
        self.fetch = Fetch(config, self.fetch_port, self.controls)
        self.load = LoadUnit(config, self.controls[Unit.LOAD], self.buffers, self.clients[Unit.LOAD])
        self.compute = ComputeUnit(config, self.controls[Unit.COMPUTE], self.buffers, self.clients[Unit.COMPUTE])
        self.store = StoreUnit(config, self.controls[Unit.STORE], self.buffers, self.clients[Unit.STORE])

    def _control(self, unit: Unit, timing: Timing) -> Control:
        order = list(Unit)
        queues: dict[str, TokenQueue] = {}
        for side, place in (("previous", order.index(unit) - 1), ("next", order.index(unit) + 1)):
            if 0 <= place < len(order):
                queues[f"pop_{side}"] = self.tokens[order[place], unit]
                queues[f"push_{side}"] = self.tokens[unit, order[place]]
        return Control(self.config, timing.queue_length, queues)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The signals that the outside drives."""
        host = self.fetch.start, self.fetch.address, self.fetch.count
        return *host, *self.fetch_port.inputs, *self.data_port.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Those that it drives."""
        return self.compute.finished, *self.fetch_port.outputs, *self.data_port.outputs

    @property
    def ports(self) -> tuple[Value, ...]:
        """The signals on the outside."""
        return *self.inputs, *self.outputs

    def elaborate(self, platform: object) -> Module:
        """All parts; each is connected to its neighbours."""
        m = Module()
        for (giver, taker), queue in self.tokens.items():
            m.submodules[f"tokens_{giver.value}_{taker.value}"] = queue
        for unit, control in self.controls.items():
            m.submodules[f"control_{unit.value}"] = control
        for name in ("buffers", "fetch", "load", "compute", "store"):
            m.submodules[name] = getattr(self, name)
        m.submodules.arbiter = Arbiter(tuple(self.clients.values()), self.data_port)
        return m

"""The interface to device memory: words of the bus's width, requested one by one and answered in order.

A request is taken in a cycle in which ``request`` and ``ready`` are set. Each one, of reading or of writing, has one
response, later, which is taken when ``response`` and ``response_ready`` are set; a write is done by then. Addresses
count words. ``mask`` has a bit for each byte that is written. With ``tag``, several modules share one port.
"""

from collections.abc import Sequence

from amaranth.hdl import Array, Elaboratable, Module, Mux, Signal, Value

ADDRESS_BITS = 40
"""Of the address of a word: more than the tiles of LOAD and STORE reach."""


class Port:
    """One end of the interface; outputs are those of the accelerator. A port of one client (``tags`` 1) only reads."""

    def __init__(self, name: str, bus_bytes: int, tags: int = 1) -> None:
        self.bus_bytes = bus_bytes
        self.tags = tags
        self.request = Signal(name=f"{name}_request")
        self.ready = Signal(name=f"{name}_ready")
        self.write = Signal(name=f"{name}_write")
        self.address = Signal(ADDRESS_BITS, name=f"{name}_address")
        self.data = Signal(8 * bus_bytes, name=f"{name}_data")
        self.mask = Signal(bus_bytes, name=f"{name}_mask")
        self.tag = Signal(range(max(2, tags)), name=f"{name}_tag")
        self.hold = Signal(name=f"{name}_hold")
        """Whether more requests of the same transfer follow; not on the outside."""
        self.response = Signal(name=f"{name}_response")
        self.response_ready = Signal(name=f"{name}_response_ready")
        self.response_data = Signal(8 * bus_bytes, name=f"{name}_response_data")
        self.response_tag = Signal(range(max(2, tags)), name=f"{name}_response_tag")

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The signals of a port of the accelerator that it drives."""
        reading = self.request, self.address, self.response_ready
        return reading if self.tags == 1 else (*reading, self.write, self.data, self.mask, self.tag)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Those that device memory drives."""
        answers = self.ready, self.response, self.response_data
        return answers if self.tags == 1 else (*answers, self.response_tag)


class Arbiter(Elaboratable):
    """Gives ``port`` to one of ``clients``, for a whole transfer; the first of the list goes first."""

    def __init__(self, clients: Sequence[Port], port: Port) -> None:
        self.clients = tuple(clients)
        self.port = port

    def elaborate(self, platform: object) -> Module:
        """Who has the port, and where responses go."""
        m = Module()
        port, clients = self.port, Array(self.clients)
        owner, owned, chosen = Signal.like(port.tag), Signal(), Signal.like(port.tag)
        for number, client in reversed(list(enumerate(self.clients))):
            with m.If(client.request):
                m.d.comb += chosen.eq(number)
        with m.If(owned & clients[owner].hold):
            m.d.comb += chosen.eq(owner)
        m.d.sync += [owner.eq(chosen), owned.eq(port.request)]
        for name in ("request", "write", "address", "data", "mask"):
            m.d.comb += getattr(port, name).eq(getattr(clients[chosen], name))
        m.d.comb += [port.tag.eq(chosen), port.response_ready.eq(clients[port.response_tag].response_ready)]
        for number, client in enumerate(self.clients):
            m.d.comb += [
                client.ready.eq(Mux(chosen == number, port.ready, 0)),
                client.response.eq(port.response & (port.response_tag == number)),
                client.response_data.eq(port.response_data),
            ]
        return m

from collections.abc import Iterable

from amaranth.hdl import Elaboratable, Signal

class WritePort:
    en: Signal
    addr: Signal
    data: Signal

class ReadPort:
    en: Signal
    addr: Signal
    data: Signal

class Memory(Elaboratable):
    def __init__(self, *, shape: int, depth: int, init: Iterable[int]) -> None: ...
    def write_port(self) -> WritePort: ...
    def read_port(self, *, transparent_for: Iterable[WritePort] = ()) -> ReadPort: ...

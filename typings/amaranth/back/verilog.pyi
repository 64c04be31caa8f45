from collections.abc import Iterable

from amaranth.hdl import Elaboratable, Value

def convert(elaboratable: Elaboratable, *, name: str = "top", ports: Iterable[Value], emit_src: bool = True) -> str: ...

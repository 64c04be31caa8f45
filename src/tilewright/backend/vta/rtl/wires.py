"""Small things that several modules need."""

from amaranth.hdl import Module, Value

from tilewright.backend.vta.rtl.transfers import TileWrite


def connect(m: Module, to: TileWrite, source: TileWrite) -> None:
    """The writes of ``source`` go to ``to``."""
    m.d.comb += [to.enable.eq(source.enable), to.address.eq(source.address), to.data.eq(source.data)]


def elements(tile: Value, bits: int) -> list[Value]:
    """The elements of a tile, as signed numbers."""
    return [tile[start : start + bits].as_signed() for start in range(0, len(tile), bits)]

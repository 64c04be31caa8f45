"""The matrix unit: the product of an inp tile and a transposed wgt tile, summed, one cycle later."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Elaboratable, Module, Signal, Value

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.rtl.wires import elements


class MatrixUnit(Elaboratable):
    """``sums`` has the elements of an acc tile."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.inp = Signal(8 * config.tile_bytes(Scratchpad.INP))
        self.wgt = Signal(8 * config.tile_bytes(Scratchpad.WGT))
        self.sums = Signal(8 * config.tile_bytes(Scratchpad.ACC))

    def elaborate(self, platform: object) -> Module:
        """All products, and a tree of adders for each element of the result."""
        m = Module()
        config = self.config
        rows = _rows(elements(self.inp, config.inp_bits), config.block_in)
        columns = _rows(elements(self.wgt, config.wgt_bits), config.block_in)
        exact = config.inp_bits + config.wgt_bits + config.block_in.bit_length()
        sums: list[Value] = []
        for number, (row, column) in enumerate((row, column) for row in rows for column in columns):
            total = Signal(max(exact, config.acc_bits), name=f"sum_{number}")
            m.d.comb += total.eq(_added([x * y for x, y in zip(row, column, strict=True)]))
            sums.append(total[: config.acc_bits])
        m.d.sync += self.sums.eq(Cat(sums))
        return m


def _rows(values: Sequence[Value], width: int) -> list[Sequence[Value]]:
    return [values[start : start + width] for start in range(0, len(values), width)]


def _added(values: Sequence[Value]) -> Value:
    """A tree: as many levels as the logarithm of the number of values."""
    level: list[Value] = list(values)
    while len(level) > 1:
        level = [level[i] + level[i + 1] for i in range(0, len(level), 2)]
    return level[0]

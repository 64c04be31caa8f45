"""The vector unit: ALU on all elements of accumulators at once, within a cycle."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, signed

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import AluOperation
from tilewright.backend.vta.rtl.wires import elements


class VectorUnit(Elaboratable):
    """``result`` of ``first`` and ``second``, all of them acc tiles."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.operation = Signal(3)
        self.first, self.second, self.result = (Signal(8 * config.tile_bytes(Scratchpad.ACC)) for _ in range(3))

    def elaborate(self, platform: object) -> Module:
        """Each operation on each element."""
        m = Module()
        bits = self.config.acc_bits
        pairs = zip(elements(self.first, bits), elements(self.second, bits), strict=True)
        results: list[Value] = []
        for number, (x, y) in enumerate(pairs):
            result = Signal(signed(bits), name=f"result_{number}")
            with m.Switch(self.operation):
                for operation in list(AluOperation)[: self.config.alu_operations]:
                    with m.Case(operation.value):
                        m.d.comb += result.eq(self._applied(operation, x, y))
            results.append(result)
        m.d.comb += self.result.eq(Cat(results))
        return m

    def _applied(self, operation: AluOperation, x: Value, y: Value) -> Value:
        match operation:
            case AluOperation.MIN:
                return Mux(x < y, x, y)
            case AluOperation.MAX:
                return Mux(x > y, x, y)
            case AluOperation.ADD:
                return x + y
            case AluOperation.SHR:
                return _shifted(x, y)
            case AluOperation.MUL:
                narrow = self.config.out_bits
                return x[:narrow].as_signed() * y[:narrow].as_signed()
            case AluOperation.CLIP:
                high, low = y[:8].as_signed(), y[8:16].as_signed()
                above = Mux(x < low, low, x)
                return Mux(above > high, high, above)


def _shifted(x: Value, y: Value) -> Value:
    """To the right, or by a negative count to the left; counts of 32 and more leave no bit but the sign's."""
    right = x >> Mux(y > len(x) - 1, len(x) - 1, y[:5])
    left = Mux(y <= -len(x), 0, x << (-y)[:5])
    return Mux(y < 0, left, right)

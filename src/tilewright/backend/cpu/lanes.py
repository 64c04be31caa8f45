"""Instructions on values of any number of lanes: making them, spreading values over lanes, choosing among lanes."""

from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.values import Value, integers, literal, type_name
from tilewright.base import dtypes
from tilewright.base.dtypes import DType


class LaneEmitter:
    """Emits instructions into one function. Those on operands that do not vary in a loop lie before it."""

    def __init__(self, text: FunctionText) -> None:
        self.text = text

    def pure(self, text: str, dtype: DType, like: tuple[Value, ...]) -> Value:
        """The result of an instruction on the operands ``like``, with as many lanes."""
        depth = max(v.depth for v in like)
        return Value(self.text.pure(text, depth), dtype, like[0].lanes, depth)

    def intrinsic(self, name: str, operands: tuple[Value, ...], dtype: DType) -> Value:
        """The result of LLVM's intrinsic ``name``."""
        first = operands[0]
        result = type_name(dtype, first.lanes)
        lanes = f"v{first.lanes}" if first.lanes > 1 else ""
        suffix = f"{lanes}{mangled_type(dtype)}"
        types = ", ".join(v.type for v in operands)
        self.text.declare(f"declare {result} @llvm.{name}.{suffix}({types})")
        args = ", ".join(v.typed for v in operands)
        return self.pure(f"call {result} @llvm.{name}.{suffix}({args})", dtype, operands)

    def broadcast(self, value: Value, lanes: int) -> Value:
        """``value`` broadcast to all lanes."""
        if value.lanes == lanes:
            return value
        if value.constants is not None:
            return integers(value.constants * lanes, value.dtype)
        if value.text[0] not in "%@":
            return Value(f"splat ({value.typed})", value.dtype, lanes)
        vector = type_name(value.dtype, lanes)
        first = self.text.pure(f"insertelement {vector} poison, {value.typed}, i64 0", value.depth)
        mask = f"<{lanes} x i32> zeroinitializer"
        name = self.text.pure(f"shufflevector {vector} {first}, {vector} poison, {mask}", value.depth)
        return Value(name, value.dtype, lanes, value.depth)

    def spread(self, single: str, dtype: DType, lanes: int, depth: int) -> Value:
        """The single element of a vector broadcast to all lanes."""
        vector = type_name(dtype, 1)
        mask = f"<{lanes} x i32> zeroinitializer"
        text = f"shufflevector <1 x {vector}> {single}, <1 x {vector}> poison, {mask}"
        return Value(self.text.pure(text, depth), dtype, lanes, depth)

    def widen(self, *values: Value) -> tuple[Value, ...]:
        """All values, broadcast to the same number of lanes."""
        lanes = max(v.lanes for v in values)
        return tuple(self.broadcast(v, lanes) for v in values)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """``a`` in the lanes where ``condition`` holds, else ``b``."""
        if condition.constants is not None and len(set(condition.constants)) == 1:
            return self.broadcast(a if condition.constants[0] else b, max(condition.lanes, a.lanes, b.lanes))
        if condition.lanes == 1:
            a, b = self.widen(a, b)
        else:
            condition, a, b = self.widen(condition, a, b)
        depth = max(condition.depth, a.depth, b.depth)
        name = self.text.pure(f"select {condition.typed}, {a.typed}, {b.typed}", depth)
        return Value(name, a.dtype, a.lanes, depth)

    def any_lane(self, mask: Value) -> Value:
        """Whether a mask has a true lane."""
        if mask.constants is not None:
            return literal(any(mask.constants), dtypes.boolean)
        if mask.lanes == 1:
            return mask
        name = f"@llvm.vector.reduce.or.v{mask.lanes}i1"
        self.text.declare(f"declare i1 {name}({mask.type})")
        return Value(self.text.pure(f"call i1 {name}({mask.typed})", mask.depth), dtypes.boolean, 1, mask.depth)

    def first_active(self, value: Value, mask: Value) -> Value:
        """The value in the first true lane of ``mask`` (any lane, if there is none)."""
        if value.lanes == 1:
            return value
        mask = self.broadcast(mask, value.lanes)
        name = f"@llvm.experimental.cttz.elts.i64.v{mask.lanes}i1"
        self.text.declare(f"declare i64 {name}({mask.type}, i1)")
        # False: defined for a mask without true lanes. LLVM counts in a type that fits the number of lanes only then.
        lane = self.text.pure(f"call i64 {name}({mask.typed}, i1 false)", mask.depth)
        depth = max(mask.depth, value.depth)
        return Value(self.text.pure(f"extractelement {value.typed}, i64 {lane}", depth), value.dtype, 1, depth)


def mangled_type(dtype: DType) -> str:
    """The part of an intrinsic's name that tells the type of an element."""
    return f"f{dtype.bits}" if dtype.is_float else f"i{dtype.bits}"

"""Scalar operations as LLVM instructions, on any number of lanes, with the semantics of ``symbolic.expr``.

No instruction here traps or gives poison for any operand, so all may be hoisted out of loops and branches.
"""

from math import inf

from tilewright.backend.cpu.halves import Halves, half_bits, half_value
from tilewright.backend.cpu.lanes import LaneEmitter, mangled_type
from tilewright.backend.cpu.text import FunctionText
from tilewright.backend.cpu.values import Value, integers, literal, type_name
from tilewright.backend.cpu.vecmath import MathFunction, emit_math
from tilewright.backend.cpu.vecmath.notation import Int, Real, Unit
from tilewright.base import dtypes
from tilewright.base.dtypes import DType, Kind
from tilewright.base.errors import InternalError, Unsupported
from tilewright.symbolic.folding import INTEGER_FOLDS
from tilewright.symbolic.operations import COMPARISONS, BinaryOp, UnaryOp

_INTEGER_COMPARE = {
    BinaryOp.LT: "lt",
    BinaryOp.LE: "le",
    BinaryOp.GT: "gt",
    BinaryOp.GE: "ge",
    BinaryOp.EQ: "eq",
    BinaryOp.NE: "ne",
}
_PLAIN_INTEGER = {
    BinaryOp.ADD: "add",
    BinaryOp.SUB: "sub",
    BinaryOp.MUL: "mul",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
    BinaryOp.XOR: "xor",
}
_PLAIN_FLOAT = {BinaryOp.ADD: "fadd", BinaryOp.SUB: "fsub", BinaryOp.MUL: "fmul", BinaryOp.DIV: "fdiv"}
_FLOAT_INTRINSIC = {
    UnaryOp.ABS: "fabs",
    UnaryOp.FLOOR: "floor",
    UnaryOp.CEIL: "ceil",
    UnaryOp.ROUND: "roundeven",
    UnaryOp.TRUNC: "trunc",
    UnaryOp.SQRT: "sqrt",
}
_MATH: dict[UnaryOp, MathFunction] = {
    op: MathFunction(op.value) for op in UnaryOp if op.value in {f.value for f in MathFunction}
}


_BINARY_MATH = {BinaryOp.POW: MathFunction.POW, BinaryOp.ATAN2: MathFunction.ATAN2}


class _MathEmitter:
    """The emitter of ``vecmath``: pure instructions, at the depth of the operands."""

    def __init__(self, text: FunctionText, depth: int) -> None:
        self._text = text
        self._depth = depth

    def emit(self, text: str) -> str:
        return self._text.pure(text, self._depth)

    def declare(self, text: str) -> None:
        self._text.declare(text)


class ArithmeticEmitter(LaneEmitter):
    """Emits operations into one function."""

    def __init__(self, text: FunctionText, *, halves: Halves = Halves.CONVERTED, packs: bool = False) -> None:
        """``halves``: what the processor does with f16; ``packs``: whether it puts vectors of 512 bits in one."""
        super().__init__(text)
        self.halves = halves
        self.packs = packs

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """``a * b + c``, with one rounding if the machine has the instruction."""
        a, b, c = self.widen(a, b, c)
        return self.intrinsic("fmuladd", (a, b, c), c.dtype)

    def fused(self, a: Value, b: Value, c: Value) -> Value:
        """``a * b + c`` with one rounding, on machines that have the instruction."""
        a, b, c = self.widen(a, b, c)
        return self.intrinsic("fma", (a, b, c), c.dtype)

    def bits(self, a: Value) -> Value:
        """The bits of f32 as i32."""
        return self.pure(f"bitcast {a.typed} to {type_name(dtypes.i32, a.lanes)}", dtypes.i32, (a,))

    def real(self, bits: Value) -> Value:
        """The number of f32 with these bits."""
        return self.pure(f"bitcast {bits.typed} to {type_name(dtypes.f32, bits.lanes)}", dtypes.f32, (bits,))

    def binary(self, op: BinaryOp, a: Value, b: Value) -> Value:
        """``a op b``."""
        folded = _fold(op, a, b)
        if folded is not None:
            return folded
        a, b = self.widen(a, b)
        if self.halves is Halves.COMPUTED and a.dtype == dtypes.f16 and op in _PLAIN_FLOAT:
            return self._float_binary(op, a, b)  # the same bits: f32 has more than twice the digits of f16
        if a.dtype.is_float and a.dtype.bits == 16:
            result = self.binary(op, self.cast(a, dtypes.f32), self.cast(b, dtypes.f32))
            return result if op in COMPARISONS else self.cast(result, a.dtype)
        if op in COMPARISONS:
            return self._compare(op, a, b)
        if op in (BinaryOp.MIN, BinaryOp.MAX):
            return self._extremum(op, a, b)
        if a.dtype.is_float:
            return self._float_binary(op, a, b)
        if op in _PLAIN_INTEGER:
            return self.pure(f"{_PLAIN_INTEGER[op]} {a.typed}, {b.text}", a.dtype, (a, b))
        if op in (BinaryOp.SHL, BinaryOp.SHR):
            return self._shift(op, a, b)
        if op in (BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD):
            return self._divide(op, a, b)
        if op is BinaryOp.POW:
            return self._integer_power(a, b)
        raise Unsupported(f"`{op.value}` on {a.dtype} has no native code yet")

    def _integer_power(self, a: Value, b: Value) -> Value:
        """By squaring, one step for each possible bit of the exponent."""
        zero, one, minus_one = (literal(v, a.dtype, a.lanes) for v in (0, 1, -1))
        # Powers of 1 and -1 depend only on a negative exponent's parity; other bases give 0.
        negative = self.binary(BinaryOp.LT, b, zero) if a.dtype.is_signed else literal(False, dtypes.boolean, a.lanes)
        left = self.select(negative, self.binary(BinaryOp.AND, b, one), b)
        result, square = one, a
        for bit in range(_exponent_bits(b)):
            here = self.binary(BinaryOp.AND, left, literal(1 << bit, a.dtype, a.lanes))
            product = self.binary(BinaryOp.MUL, result, square)
            result = self.select(self._compare(BinaryOp.NE, here, zero), product, result)
            square = self.binary(BinaryOp.MUL, square, square)
        is_unit = self.binary(BinaryOp.OR, self._compare(BinaryOp.EQ, a, one), self._compare(BinaryOp.EQ, a, minus_one))
        vanishes = self.binary(BinaryOp.AND, negative, self.unary(UnaryOp.NOT, is_unit))
        return self.select(vanishes, zero, result)

    def _float_binary(self, op: BinaryOp, a: Value, b: Value) -> Value:
        if op in _PLAIN_FLOAT:
            return self.pure(f"{_PLAIN_FLOAT[op]} {a.typed}, {b.text}", a.dtype, (a, b))
        if op is BinaryOp.TRUNCMOD:
            return self.pure(f"frem {a.typed}, {b.text}", a.dtype, (a, b))
        if op is BinaryOp.MOD:
            return self._float_floor_mod(a, b)
        if op in _BINARY_MATH:
            return self._math(_BINARY_MATH[op], (a, b))
        raise Unsupported(f"`{op.value}` on {a.dtype} has no native code yet")

    def _float_floor_mod(self, a: Value, b: Value) -> Value:
        remainder = self.pure(f"frem {a.typed}, {b.text}", a.dtype, (a, b))
        zero = literal(0.0, a.dtype, a.lanes)
        differs = self.binary(
            BinaryOp.XOR, self._compare(BinaryOp.LT, remainder, zero), self._compare(BinaryOp.LT, b, zero)
        )
        wrong = self.binary(BinaryOp.AND, differs, self._compare(BinaryOp.NE, remainder, zero))
        return self.select(wrong, self.binary(BinaryOp.ADD, remainder, b), remainder)

    def _compare(self, op: BinaryOp, a: Value, b: Value) -> Value:
        if a.dtype.is_float:
            predicate = "une" if op is BinaryOp.NE else f"o{_INTEGER_COMPARE[op]}"
            return self.pure(f"fcmp {predicate} {a.typed}, {b.text}", dtypes.boolean, (a, b))
        sign = "" if op in (BinaryOp.EQ, BinaryOp.NE) else "s" if a.dtype.is_signed else "u"
        return self.pure(f"icmp {sign}{_INTEGER_COMPARE[op]} {a.typed}, {b.text}", dtypes.boolean, (a, b))

    def _extremum(self, op: BinaryOp, a: Value, b: Value) -> Value:
        if not a.dtype.is_float:
            return self.select(self._compare(BinaryOp.LT if op is BinaryOp.MIN else BinaryOp.GT, a, b), a, b)
        # `a > b ? a : b` is one machine instruction, and gives b where either is NaN. A constant goes to the left, or
        # what an accumulator is compared with: LLVM stores this in masked parts if it may stay as it is.
        if a.text[0] in "%@":
            a, b = b, a
        if a.text == literal(inf if op is BinaryOp.MIN else -inf, a.dtype, a.lanes).text:
            return b
        chosen = self.select(self._compare(BinaryOp.LT if op is BinaryOp.MIN else BinaryOp.GT, a, b), a, b)
        if a.text[0] not in "%@":
            return chosen
        unordered = self.pure(f"fcmp uno {a.typed}, {a.text}", dtypes.boolean, (a,))
        return self.select(unordered, a, chosen)

    def _shift(self, op: BinaryOp, a: Value, b: Value) -> Value:
        bits = literal(a.dtype.bits, a.dtype, a.lanes)
        fits = self.pure(f"icmp ult {b.typed}, {bits.text}", dtypes.boolean, (b,))
        amount = self.select(fits, b, literal(0, a.dtype, a.lanes))
        name = "shl" if op is BinaryOp.SHL else "ashr" if a.dtype.is_signed else "lshr"
        shifted = self.pure(f"{name} {a.typed}, {amount.text}", a.dtype, (a, amount))
        beyond = literal(0, a.dtype, a.lanes)
        if name == "ashr":
            last = literal(a.dtype.bits - 1, a.dtype, a.lanes)
            beyond = self.pure(f"ashr {a.typed}, {last.text}", a.dtype, (a,))
        return self.select(fits, shifted, beyond)

    def _divide(self, op: BinaryOp, a: Value, b: Value) -> Value:
        wants_quotient = op in (BinaryOp.FLOORDIV, BinaryOp.TRUNCDIV)
        divisor = _splat_literal(b)
        if not a.dtype.is_signed:
            return self._divide_unsigned(wants_quotient, a, b, divisor)
        floors = op in (BinaryOp.FLOORDIV, BinaryOp.MOD)
        if floors and divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
            shift, mask = divisor.bit_length() - 1, divisor - 1
            text = f"ashr {a.type} {a.text}, {literal(shift, a.dtype, a.lanes).text}"
            if not wants_quotient:
                text = f"and {a.type} {a.text}, {literal(mask, a.dtype, a.lanes).text}"
            return self.pure(text, a.dtype, (a,))
        return self._divide_signed(wants_quotient, floors, a, b, divisor)

    def _divide_unsigned(self, wants_quotient: bool, a: Value, b: Value, divisor: int | None) -> Value:
        zero = literal(0, a.dtype, a.lanes)
        name = "udiv" if wants_quotient else "urem"
        if divisor:
            return self.pure(f"{name} {a.typed}, {b.text}", a.dtype, (a, b))
        by_zero = self._compare(BinaryOp.EQ, b, zero)
        safe = self.select(by_zero, literal(1, a.dtype, a.lanes), b)
        return self.select(by_zero, zero, self.pure(f"{name} {a.typed}, {safe.text}", a.dtype, (a, safe)))

    def _divide_signed(self, wants_quotient: bool, floors: bool, a: Value, b: Value, divisor: int | None) -> Value:
        zero, one = literal(0, a.dtype, a.lanes), literal(1, a.dtype, a.lanes)
        if divisor is not None and divisor > 0:
            safe = b
        else:
            # Division by zero, and of MIN by minus one, traps: divide by one there instead.
            plus_one = self.binary(BinaryOp.ADD, b, one)
            trivial = self.pure(f"icmp ule {plus_one.typed}, {one.text}", dtypes.boolean, (plus_one,))
            safe = self.select(trivial, one, b)
        quotient = self.pure(f"sdiv {a.typed}, {safe.text}", a.dtype, (a, safe))
        remainder = self.pure(f"srem {a.typed}, {safe.text}", a.dtype, (a, safe))
        if floors:
            signs = self.binary(BinaryOp.XOR, remainder, safe)
            adjust = self.binary(
                BinaryOp.AND, self._compare(BinaryOp.NE, remainder, zero), self._compare(BinaryOp.LT, signs, zero)
            )
            quotient = self.select(adjust, self.binary(BinaryOp.SUB, quotient, one), quotient)
            remainder = self.select(adjust, self.binary(BinaryOp.ADD, remainder, safe), remainder)
        if divisor is not None and divisor > 0:
            return quotient if wants_quotient else remainder
        by_zero = self._compare(BinaryOp.EQ, b, zero)
        if not wants_quotient:
            return self.select(by_zero, zero, remainder)
        minus_one = self._compare(BinaryOp.EQ, b, literal(-1, a.dtype, a.lanes))
        negated = self.binary(BinaryOp.SUB, zero, a)
        return self.select(by_zero, zero, self.select(minus_one, negated, quotient))

    def unary(self, op: UnaryOp, a: Value) -> Value:
        """``op(a)``."""
        if op in (UnaryOp.ISNAN, UnaryOp.ISINF):
            return self._classify(op, a)
        if a.dtype.is_float and a.dtype.bits == 16:
            return self.cast(self.unary(op, self.cast(a, dtypes.f32)), a.dtype)
        if not a.dtype.is_float:
            return self._integer_unary(op, a)
        if op is UnaryOp.NEG:
            return self.pure(f"fneg {a.typed}", a.dtype, (a,))
        if op is UnaryOp.FLUSH:
            least = literal(_SMALLEST_NORMAL[a.dtype], a.dtype, a.lanes)
            is_small = self._compare(BinaryOp.LT, self.unary(UnaryOp.ABS, a), least)
            return self.select(is_small, self.binary(BinaryOp.MUL, a, literal(0.0, a.dtype, a.lanes)), a)
        if op in _FLOAT_INTRINSIC:
            return self.intrinsic(_FLOAT_INTRINSIC[op], (a,), a.dtype)
        return self._math(_MATH[op], (a,))

    def exp_up_to_one(self, a: Value) -> Value:
        """``exp(min(a, 0))``."""
        if a.dtype.bits == 16:
            return self.cast(self.exp_up_to_one(self.cast(a, dtypes.f32)), a.dtype)
        return self._math(MathFunction.EXP_UP_TO_ONE, (a,))

    def exp_of_weight(self, a: Value) -> Value:
        """``exp(min(max(a, LEAST_WEIGHT), 0))`` of f32 or f64."""
        return self._math(MathFunction.EXP_OF_WEIGHT, (a,))

    def _classify(self, op: UnaryOp, a: Value) -> Value:
        wide = self.cast(a, dtypes.f32) if a.dtype.bits == 16 else a
        if op is UnaryOp.ISNAN:
            return self.pure(f"fcmp uno {wide.typed}, {wide.text}", dtypes.boolean, (wide,))
        infinity = literal(float("inf"), wide.dtype, wide.lanes)
        return self._compare(BinaryOp.EQ, self.unary(UnaryOp.ABS, wide), infinity)

    def _integer_unary(self, op: UnaryOp, a: Value) -> Value:
        zero = literal(0, a.dtype, a.lanes)
        if op is UnaryOp.NEG:
            return self.binary(BinaryOp.SUB, zero, a)
        if op is UnaryOp.NOT:
            if a.dtype.is_bool and a.constants is not None:
                return integers(tuple(int(not known) for known in a.constants), a.dtype)
            ones = literal(True, a.dtype, a.lanes) if a.dtype.is_bool else literal(-1, a.dtype, a.lanes)
            return self.pure(f"xor {a.typed}, {ones.text}", a.dtype, (a,))
        if op is UnaryOp.ABS:
            if not a.dtype.is_signed:
                return a
            return self.select(self._compare(BinaryOp.LT, a, zero), self.binary(BinaryOp.SUB, zero, a), a)
        raise InternalError(f"no code for `{op.value}` on {a.dtype}")

    def _math(self, function: MathFunction, operands: tuple[Value, ...]) -> Value:
        depth = max(v.depth for v in operands)
        first = operands[0]
        emitter = _MathEmitter(self.text, depth)
        name = emit_math(emitter, function, [v.text for v in operands], first.dtype, first.lanes)
        return Value(name, first.dtype, first.lanes, depth)

    def cast(self, a: Value, dtype: DType) -> Value:
        """``a`` converted."""
        if a.dtype == dtype:
            return a
        if a.dtype.kind is Kind.BFLOAT:
            return self.cast(self._from_bfloat(a), dtype)
        if dtype.kind is Kind.BFLOAT:
            return self._to_bfloat(self.cast(a, dtypes.f32))
        if a.dtype == dtypes.f16 and dtype != dtypes.f32:
            # With AVX512-FP16, LLVM's conversion to i16 makes -32768 of NaN, not 0.
            return self.cast(self.cast(a, dtypes.f32), dtype)
        if dtype.is_bool:
            return self._compare(BinaryOp.NE, a, literal(0, a.dtype, a.lanes))
        match a.dtype.is_float, dtype.is_float:
            case True, True:
                return self._float_to_float(a, dtype)
            case True, False:
                return self._float_to_integer(a, dtype)
            case False, True:
                return self._integer_to_float(a, dtype)
            case _:
                return self._integer_to_integer(a, dtype)

    def _convert(self, instruction: str, a: Value, dtype: DType) -> Value:
        return self.pure(f"{instruction} {a.typed} to {type_name(dtype, a.lanes)}", dtype, (a,))

    def _float_to_float(self, a: Value, dtype: DType) -> Value:
        if (a.dtype, dtype) == (dtypes.f64, dtypes.f16):
            return self.cast(self._convert("fptrunc", self._odd(a), dtypes.f32), dtype)
        if self.halves is Halves.NONE and dtypes.f16 in (a.dtype, dtype):
            return self._from_half(a) if a.dtype == dtypes.f16 else self._to_half(a)
        return self._convert("fpext" if dtype.bits > a.dtype.bits else "fptrunc", a, dtype)

    def _odd(self, a: Value) -> Value:
        """A double truncated to f32, with the last bit set if it is inexact (round to odd).

        Rounding the result to 16 bits equals rounding ``a`` directly, for which machines have no instruction.
        """
        lost = (1 << 29) - 1
        bits = self.pure(f"bitcast {a.typed} to {type_name(dtypes.i64, a.lanes)}", dtypes.i64, (a,))
        low = self.binary(BinaryOp.AND, bits, literal(lost, dtypes.i64, a.lanes))
        sticky = self.cast(self._compare(BinaryOp.NE, low, literal(0, dtypes.i64, a.lanes)), dtypes.i64)
        high = self.binary(BinaryOp.AND, bits, literal(~lost, dtypes.i64, a.lanes))
        odd = self.binary(BinaryOp.OR, high, self.binary(BinaryOp.SHL, sticky, literal(29, dtypes.i64, a.lanes)))
        return self.pure(f"bitcast {odd.typed} to {a.type}", dtypes.f64, (odd,))

    def _float_to_integer(self, a: Value, dtype: DType) -> Value:
        if dtype.bits <= 32 and a.dtype == dtypes.f32:
            return self._saturated(a, dtype)
        name = "fptosi.sat" if dtype.is_signed else "fptoui.sat"
        result, operand = type_name(dtype, a.lanes), a.type
        lanes = f"v{a.lanes}" if a.lanes > 1 else ""
        symbol = f"@llvm.{name}.{lanes}{mangled_type(dtype)}.{lanes}{mangled_type(a.dtype)}"
        self.text.declare(f"declare {result} {symbol}({operand})")
        return self.pure(f"call {result} {symbol}({a.typed})", dtype, (a,))

    def _saturated(self, a: Value, dtype: DType) -> Value:
        """Integers of f32, saturated by comparing: LLVM computes vectors of ``fptosi.sat`` lane by lane.

        ``fcmp ogt`` is false for NaN, which becomes the lower limit; for signed integers, it is 0 already.
        """
        zero, low = (literal(limit, a.dtype, a.lanes) for limit in (0.0, float(dtype.min)))
        if dtype.is_signed:
            ordered = self.pure(f"fcmp ord {a.typed}, {a.text}", dtypes.boolean, (a,))
            a = self.select(ordered, a, zero)
        above = self.pure(f"fcmp ogt {a.typed}, {low.text}", dtypes.boolean, (a,))
        a = self.select(above, a, low)
        if dtype.bits < 32:
            high = literal(float(dtype.max), a.dtype, a.lanes)
            below = self.pure(f"fcmp olt {a.typed}, {high.text}", dtypes.boolean, (a,))
            return self._convert("trunc", self._convert("fptosi", self.select(below, a, high), dtypes.i32), dtype)
        end = literal(float(int(dtype.max) + 1), a.dtype, a.lanes)
        fits = self.pure(f"fcmp olt {a.typed}, {end.text}", dtypes.boolean, (a,))
        whole = self._convert("fptosi" if dtype.is_signed else "fptoui", self.select(fits, a, zero), dtype)
        return self.select(fits, whole, literal(dtype.max, dtype, a.lanes))

    def _integer_to_float(self, a: Value, dtype: DType) -> Value:
        if dtype.bits == 16:
            return self.cast(self._integer_to_float(a, dtypes.f32), dtype)
        return self._convert("sitofp" if a.dtype.is_signed else "uitofp", a, dtype)

    def _integer_to_integer(self, a: Value, dtype: DType) -> Value:
        if dtype.bits == a.dtype.bits:
            known = a.constants
            return integers(known, dtype) if known is not None else Value(a.text, dtype, a.lanes, a.depth)
        if dtype.bits < a.dtype.bits:
            return self._convert("trunc", a, dtype)
        return self._convert("sext" if a.dtype.is_signed else "zext", a, dtype)

    def _from_half(self, a: Value) -> Value:
        narrow, wide = (type_name(dtype, a.lanes) for dtype in (dtypes.u16, dtypes.u32))
        bits = self.text.pure(f"bitcast {a.typed} to {narrow}", a.depth)
        unit = Unit(_MathEmitter(self.text, a.depth), dtypes.f32, a.lanes)
        whole = Int(unit, self.text.pure(f"zext {narrow} {bits} to {wide}", a.depth))
        return Value(half_value(whole).name, dtypes.f32, a.lanes, a.depth)

    def _to_half(self, a: Value) -> Value:
        unit = Unit(_MathEmitter(self.text, a.depth), dtypes.f32, a.lanes)
        narrow, wide = (type_name(dtype, a.lanes) for dtype in (dtypes.u16, dtypes.u32))
        bits = self.text.pure(f"trunc {wide} {half_bits(Real(unit, a.text)).name} to {narrow}", a.depth)
        half = type_name(dtypes.f16, a.lanes)
        return Value(self.text.pure(f"bitcast {narrow} {bits} to {half}", a.depth), dtypes.f16, a.lanes, a.depth)

    def _from_bfloat(self, a: Value) -> Value:
        bits = self._convert("zext", a, dtypes.u32)
        high = self.pure(f"shl {bits.typed}, {literal(16, dtypes.u32, a.lanes).text}", dtypes.u32, (bits,))
        return self.pure(f"bitcast {high.typed} to {type_name(dtypes.f32, a.lanes)}", dtypes.f32, (high,))

    def rounded_to_bfloat(self, a: Value) -> Value:
        """``a`` (f32) flushed and rounded by one instruction."""
        narrow = type_name(dtypes.bf16, a.lanes).replace("i16", "bfloat")
        name = self.text.pure(f"fptrunc {a.typed} to {narrow}", a.depth)
        return Value(
            self.text.pure(f"bitcast {narrow} {name} to {type_name(dtypes.bf16, a.lanes)}", a.depth),
            dtypes.bf16,
            a.lanes,
            a.depth,
        )

    def _to_bfloat(self, a: Value) -> Value:
        """Round to nearest even on the bits; NaN keeps its sign and becomes quiet."""
        lanes = a.lanes
        bits = self.pure(f"bitcast {a.typed} to {type_name(dtypes.u32, lanes)}", dtypes.u32, (a,))
        sixteen = literal(16, dtypes.u32, lanes)
        high = self.pure(f"lshr {bits.typed}, {sixteen.text}", dtypes.u32, (bits,))
        odd = self.binary(BinaryOp.AND, high, literal(1, dtypes.u32, lanes))
        bias = self.binary(BinaryOp.ADD, odd, literal(0x7FFF, dtypes.u32, lanes))
        rounded = self.binary(BinaryOp.ADD, bits, bias)
        result = self.pure(f"lshr {rounded.typed}, {sixteen.text}", dtypes.u32, (rounded,))
        quiet = self.binary(BinaryOp.OR, high, literal(0x40, dtypes.u32, lanes))
        unordered = self.pure(f"fcmp uno {a.typed}, {a.text}", dtypes.boolean, (a,))
        return self._convert("trunc", self.select(unordered, quiet, result), dtypes.bf16)


_SMALLEST_NORMAL = {dtypes.f32: 2.0**-126, dtypes.f64: 2.0**-1022}
_BITWISE = {BinaryOp.AND: int.__and__, BinaryOp.OR: int.__or__}


def _fold(op: BinaryOp, a: Value, b: Value) -> Value | None:
    """The result if both operands are known integers, or one is neutral or absorbing."""
    fold = _BITWISE[op] if op in _BITWISE and a.dtype.is_bool else INTEGER_FOLDS.get(op)
    if a.constants is not None and b.constants is not None and fold is not None:
        lanes = max(a.lanes, b.lanes)
        pairs = zip(a.constants * (lanes // a.lanes), b.constants * (lanes // b.lanes), strict=True)
        result = tuple(int(fold(x, y)) for x, y in pairs)
        return integers(result, dtypes.boolean if op in COMPARISONS else a.dtype)
    if op is BinaryOp.AND and a.dtype.is_bool:
        for known, other in ((a, b), (b, a)):
            if known.constants is not None and len(set(known.constants)) == 1 and known.lanes <= other.lanes:
                return other if known.constants[0] else integers((0,) * other.lanes, dtypes.boolean)
    return None


def _exponent_bits(b: Value) -> int:
    """The maximum number of bits of a non-negative ``b``; of a negative one, only the last bit counts."""
    if b.constants is not None:
        return max(max(known, 1).bit_length() for known in b.constants)
    return b.dtype.bits - b.dtype.is_signed


def _splat_literal(value: Value) -> int | None:
    if value.lanes == 1:
        return value.literal
    same = value.constants is not None and len(set(value.constants)) == 1
    return value.constants[0] if value.constants is not None and same else None

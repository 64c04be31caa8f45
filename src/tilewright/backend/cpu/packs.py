"""Bytes of several vectors of f32 at a time, by instructions of x86 that round, put two vectors in one, and saturate.

Four vectors are made integers, then two of words of 16 bits, to which the zero point is added, then one of bytes: ten
instructions for 64 bytes. Vectors that are saturated and truncated one by one need more than twice as many.
"""

from collections.abc import Sequence

from tilewright.backend.cpu.arithmetic import ArithmeticEmitter
from tilewright.backend.cpu.values import Value, type_name
from tilewright.base.dtypes import DType, i16, i32

_WORDS = 16
"""Lanes of a vector of 512 bits."""
_LANE_WORDS = 4
"""Those of 128 bits, in which instructions put vectors together."""
FEATURE = "avx512bw"
LEAST_LANES = 2 * _WORDS
"""From which on there are fewer instructions."""


def is_packed(ops: ArithmeticEmitter, value: Value) -> bool:
    """Whether ``value`` has so many lanes that its bytes are packed, where the processor does that."""
    return ops.packs and value.lanes in (LEAST_LANES, 2 * LEAST_LANES)


def packed_bytes(ops: ArithmeticEmitter, value: Value, zero: Value) -> Value:
    """``value`` (f32), rounded to even, plus ``zero``, saturated to the dtype of that. Numbers below all integers, and
    NaN, become the least; there are none above all integers."""
    words = [_integers(ops, value, start) for start in range(0, value.lanes, _WORDS)]
    shift = ops.broadcast(ops.cast(zero, i16), 2 * _WORDS)
    pairs = [
        _sum(ops, _joined(ops, "packssdw", *pair, i16), shift) for pair in zip(words[::2], words[1::2], strict=True)
    ]
    name = "packsswb" if zero.dtype.is_signed else "packuswb"
    return _in_order(ops, _joined(ops, name, pairs[0], pairs[-1], zero.dtype), value.lanes)


def _integers(ops: ArithmeticEmitter, value: Value, start: int) -> Value:
    """The lanes from ``start`` on, rounded; what is no integer of 32 bits becomes the least one."""
    part = _part(ops, value, range(start, start + _WORDS))
    result = type_name(i32, _WORDS)
    function = "@llvm.x86.avx512.mask.cvtps2dq.512"
    ops.text.declare(f"declare {result} {function}({part.type}, {result}, i16, i32)")
    rounding_as_set = 4
    every = f"{result} zeroinitializer, i16 -1, i32 {rounding_as_set}"
    return ops.pure(f"call {result} {function}({part.typed}, {every})", i32, (part,))


def _joined(ops: ArithmeticEmitter, name: str, a: Value, b: Value, dtype: DType) -> Value:
    """Both vectors in one of numbers that are half as wide, saturated, in turns of 128 bits."""
    result, function = type_name(dtype, 2 * a.lanes), f"@llvm.x86.avx512.{name}.512"
    ops.text.declare(f"declare {result} {function}({a.type}, {b.type})")
    depth = max(a.depth, b.depth)
    return Value(ops.text.pure(f"call {result} {function}({a.typed}, {b.typed})", depth), dtype, 2 * a.lanes, depth)


def _sum(ops: ArithmeticEmitter, a: Value, b: Value) -> Value:
    """Of words of 16 bits, saturated."""
    return ops.intrinsic("sadd.sat", (a, b), i16)


def _in_order(ops: ArithmeticEmitter, joined: Value, lanes: int) -> Value:
    """The first ``lanes`` bytes, in the order of the vectors that were put together in turns."""
    words = ops.pure(f"bitcast {joined.typed} to {type_name(i32, _WORDS)}", i32, (joined,))
    words = Value(words.text, i32, _WORDS, words.depth)
    vectors = lanes // _WORDS
    order = [part * _LANE_WORDS + vector for vector in range(vectors) for part in range(_LANE_WORDS)]
    whole = _part(ops, words, order)
    bits = f"bitcast {whole.typed} to {type_name(joined.dtype, lanes)}"
    return Value(ops.text.pure(bits, whole.depth), joined.dtype, lanes, whole.depth)


def _part(ops: ArithmeticEmitter, value: Value, lanes: Sequence[int]) -> Value:
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    line = f"shufflevector {value.typed}, {value.type} poison, <{len(lanes)} x i32> <{mask}>"
    return Value(ops.text.pure(line, value.depth), value.dtype, len(lanes), value.depth)

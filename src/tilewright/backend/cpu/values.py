"""Values of LLVM IR, and their types."""

import struct
from dataclasses import dataclass
from functools import cache, lru_cache

from tilewright.base import dtypes
from tilewright.base.dtypes import DType, Kind
from tilewright.symbolic.folding import Scalar, wrap

_TYPE_NAMES: dict[DType, str] = {
    dtypes.f16: "half",
    dtypes.bf16: "i16",  # computed in f32, moved as bits: no backend then needs bfloat instructions
    dtypes.f32: "float",
    dtypes.f64: "double",
    dtypes.boolean: "i1",
}


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: its text, dtype, number of lanes (1: a scalar, equal in all lanes) and its scope."""

    text: str
    dtype: DType
    lanes: int = 1
    depth: int = 0
    constants: tuple[int, ...] | None = None
    """The integers in the lanes (for a bool: 0 or 1), if known."""

    @property
    def type(self) -> str:
        return type_name(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.text}"

    @property
    def literal(self) -> int | None:
        """The value of a scalar integer literal, else None."""
        return self.constants[0] if self.constants is not None and self.lanes == 1 else None


def scalar_type(dtype: DType) -> str:
    """LLVM's name of a dtype in a register."""
    known = _TYPE_NAMES.get(dtype)
    return known if known else f"i{dtype.bits}"


@cache
def memory_type(dtype: DType) -> str:
    """LLVM's name of a dtype in memory: a bool is one byte."""
    return "i8" if dtype.is_bool else scalar_type(dtype)


@cache
def type_name(dtype: DType, lanes: int) -> str:
    """LLVM's name of ``lanes`` values in a register."""
    name = scalar_type(dtype)
    return name if lanes == 1 else f"<{lanes} x {name}>"


def float_bits(value: float, dtype: DType) -> str:
    """LLVM's spelling of a float literal: the bits of the nearest value of ``dtype``, as a double (bf16: its bits)."""
    if dtype.kind is Kind.BFLOAT:
        return str(int(dtype.numpy.type(value).view("uint16")))
    if dtype.bits == 16:
        return "0xH" + struct.pack(">e", dtype.numpy.type(value)).hex().upper()
    rounded = float(dtype.numpy.type(value))
    return "0x" + struct.pack(">d", rounded).hex().upper()


def literal(value: Scalar, dtype: DType, lanes: int = 1) -> Value:
    """``value`` as an operand, in all lanes."""
    if not dtype.is_float:
        return integers((int(value),) * lanes, dtype)
    text = float_bits(float(value), dtype)
    return Value(text if lanes == 1 else f"splat ({scalar_type(dtype)} {text})", dtype, lanes)


def integers(values: tuple[int, ...], dtype: DType) -> Value:
    """Known integers (of bool: 0 or 1) as lanes."""
    wrapped = values if dtype.is_bool else tuple(wrap(value, dtype) for value in values)
    element = scalar_type(dtype)
    texts = ["true" if v else "false" for v in wrapped] if dtype.is_bool else [str(v) for v in wrapped]
    if len(wrapped) == 1:
        text = texts[0]
    elif len(set(wrapped)) == 1:
        text = f"splat ({element} {texts[0]})"
    else:
        text = f"<{', '.join(f'{element} {t}' for t in texts)}>"
    return Value(text, dtype, len(wrapped), 0, wrapped)


@lru_cache(maxsize=4096)
def integer(value: int) -> Value:
    """An index literal."""
    return integers((value,), dtypes.index)


@lru_cache(maxsize=4096)
def iota(lanes: int, stride: int = 1, start: int = 0) -> Value:
    """``start, start + stride, ...`` as index lanes."""
    return integers(tuple(start + stride * lane for lane in range(lanes)), dtypes.index)

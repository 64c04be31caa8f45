"""Scalar data types.

A ``DType`` is a frozen value; the module constants (``f32``, ``i64``, ``boolean`` ...) are the only instances that the
compiler makes. ``index`` is the type of every loop variable, extent and address computation.
"""

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import cast

import ml_dtypes
import numpy as np

from tilewright.base.errors import UnsupportedDType
from tilewright.base.names import nearest, shown


class Kind(Enum):
    """What the bits of a scalar mean."""

    FLOAT = "f"
    BFLOAT = "bf"
    INT = "i"
    UINT = "u"
    BOOL = "bool"
    E4M3FN = "f8e4m3fn"
    E4M3FNUZ = "f8e4m3fnuz"
    E5M2 = "f8e5m2"
    E5M2FNUZ = "f8e5m2fnuz"
    E2M1FN = "f4e2m1fn"
    E8M0FNU = "f8e8m0fnu"


_CODED_FLOATS = (Kind.E4M3FN, Kind.E4M3FNUZ, Kind.E5M2, Kind.E5M2FNUZ, Kind.E2M1FN, Kind.E8M0FNU)
_WHOLE_NAMES = frozenset({Kind.BOOL, *_CODED_FLOATS})
"""Kinds of which there is one width."""


@dataclass(frozen=True)
class DType:
    """A scalar type: its kind and its width in bits (a bool is one bit wide and stored in one byte)."""

    kind: Kind
    bits: int
    is_float: bool = field(init=False, repr=False, compare=False)
    is_int: bool = field(init=False, repr=False, compare=False)
    """True of signed and unsigned integers, false of bool."""
    is_signed: bool = field(init=False, repr=False, compare=False)
    is_bool: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_float", self.kind in (Kind.FLOAT, Kind.BFLOAT))
        object.__setattr__(self, "is_int", self.kind in (Kind.INT, Kind.UINT))
        object.__setattr__(self, "is_signed", self.kind is Kind.INT)
        object.__setattr__(self, "is_bool", self.kind is Kind.BOOL)

    def __hash__(self) -> int:
        return id(self.kind) ^ self.bits

    def __str__(self) -> str:
        return self.kind.value if self.kind in _WHOLE_NAMES else f"{self.kind.value}{self.bits}"

    __repr__ = __str__

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return max(1, self.bits // 8)

    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype with the same bits (bf16 through ml-dtypes)."""
        return _EVERY_NUMPY[self]

    @property
    def min(self) -> float | int:
        """Smallest value: minus infinity for floats."""
        if self.is_float:
            return -float("inf")
        return -(1 << (self.bits - 1)) if self.is_signed else 0

    @property
    def max(self) -> float | int:
        """Largest value: infinity for floats."""
        if self.is_float:
            return float("inf")
        return (1 << (self.bits - 1)) - 1 if self.is_signed else (1 << self.bits) - 1


boolean = DType(Kind.BOOL, 1)
i8, i16, i32, i64 = (DType(Kind.INT, bits) for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (DType(Kind.UINT, bits) for bits in (8, 16, 32, 64))
f16, f32, f64 = (DType(Kind.FLOAT, bits) for bits in (16, 32, 64))
bf16 = DType(Kind.BFLOAT, 16)
index = i64

ALL: tuple[DType, ...] = (boolean, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
"""What programs compute with."""
i2, i4 = (DType(Kind.INT, bits) for bits in (2, 4))
u2, u4 = (DType(Kind.UINT, bits) for bits in (2, 4))
f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f4e2m1fn, f8e8m0fnu = (DType(kind, 8) for kind in _CODED_FLOATS)
CODED: tuple[DType, ...] = (i2, i4, u2, u4, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f4e2m1fn, f8e8m0fnu)
"""What inputs and outputs of a model may have besides: an element is a byte, which programs have as a code."""
STORED: tuple[DType, ...] = (*ALL, *CODED)

_NUMPY: dict[DType, np.dtype[np.generic]] = {
    boolean: np.dtype(np.bool_),
    **{DType(Kind.INT, b): np.dtype(f"int{b}") for b in (8, 16, 32, 64)},
    **{DType(Kind.UINT, b): np.dtype(f"uint{b}") for b in (8, 16, 32, 64)},
    **{DType(Kind.FLOAT, b): np.dtype(f"float{b}") for b in (16, 32, 64)},
    bf16: np.dtype(ml_dtypes.bfloat16),
}
_CODED_NUMPY: dict[DType, np.dtype[np.generic]] = {
    i2: np.dtype(ml_dtypes.int2),
    i4: np.dtype(ml_dtypes.int4),
    u2: np.dtype(ml_dtypes.uint2),
    u4: np.dtype(ml_dtypes.uint4),
    f8e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    f8e4m3fnuz: np.dtype(ml_dtypes.float8_e4m3fnuz),
    f8e5m2: np.dtype(ml_dtypes.float8_e5m2),
    f8e5m2fnuz: np.dtype(ml_dtypes.float8_e5m2fnuz),
    f4e2m1fn: np.dtype(ml_dtypes.float4_e2m1fn),
    f8e8m0fnu: np.dtype(ml_dtypes.float8_e8m0fnu),
}
_EVERY_NUMPY = {**_NUMPY, **_CODED_NUMPY}
_BY_NAME: dict[str, DType] = {str(t): t for t in ALL}
_CODED_BY_NAME: dict[str, DType] = {str(t): t for t in CODED}
_BY_LONG_NAME: dict[str, DType] = {numpy.name: t for t, numpy in _NUMPY.items()}
_BY_NUMPY: dict[np.dtype[np.generic], DType] = {n: t for t, n in _NUMPY.items()}


def parse(name: str) -> DType:
    """The dtype written ``name`` (``f32``, ``bf16``, ``bool``); also NumPy's long names (``float32``).

    Raises ``UnsupportedDType`` for any other name.
    """
    found = (_BY_NAME.get(name) or _BY_LONG_NAME.get(name)) if isinstance(cast(object, name), str) else None
    if found is None:
        near = nearest(name, (*_BY_NAME, *_BY_LONG_NAME), 1) if isinstance(cast(object, name), str) else []
        meant = f"did you mean {near[0]}? " if near else ""
        raise UnsupportedDType(f"{shown(name)} is no data type; {meant}known: {', '.join(_BY_NAME)}")
    return found


def parse_stored(name: str) -> DType:
    """As ``parse``, of the types of inputs and outputs: also those in ``CODED``."""
    return _CODED_BY_NAME.get(name) or parse(name)


def named(dtype: DType | str) -> DType:
    """The dtype itself, or the one of that name (``parse``)."""
    return dtype if isinstance(dtype, DType) else parse(dtype)


def from_numpy(dtype: np.dtype[np.generic]) -> DType:
    """The dtype of a NumPy array's elements. Raises ``UnsupportedDType`` if there is none (strings, complex ...)."""
    found = _BY_NUMPY.get(np.dtype(dtype).newbyteorder("="))
    if found is None:
        raise UnsupportedDType(f"arrays of {dtype} are not supported; known: {', '.join(_BY_NAME)}")
    return found

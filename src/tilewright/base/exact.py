"""Dictionary keys that are equal only for bit-identical numbers.

In Python ``0.0 == -0.0`` and ``True == 1 == 1.0``, and a NaN differs from itself. But results differ between the former
(``1 / 0.0`` and ``1 / -0.0``), and do not between equal NaNs.
"""

import struct
from collections.abc import Hashable
from typing import Generic, TypeVar, cast

Held = TypeVar("Held")


def float_bits(value: float) -> int:
    """The 64 bits of ``value``, with the sign of a zero and the payload of a NaN."""
    found: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return found


def from_float_bits(bits: int) -> float:
    """The number that has these 64 bits."""
    found: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return found


class Exact(Generic[Held]):
    """``value`` as a key: equal if types and bits are equal, in tuples at any depth."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Held) -> None:
        self.value = value
        self._key = _key(value)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and self._key == cast(Exact[object], other)._key


def _key(value: object) -> Hashable:
    if isinstance(value, float):
        return type(value), float_bits(value)
    if isinstance(value, tuple):
        return tuple, tuple(map(_key, cast(tuple[object, ...], value)))
    return type(value), value

"""Addresses: of a buffer, and of one access to it."""

from dataclasses import dataclass, field

from tilewright.backend.cpu.values import Value
from tilewright.symbolic.expr import Var


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a buffer's memory."""

    pointer: Value
    constant: bool
    """Whether it is read-only while this kernel runs."""
    alignment: int
    private: int = 0
    """Elements of a buffer on the stack, else 0. LLVM promotes it to registers if all accesses are plain."""
    ahead: int = 0
    """Prefetch distance of loads in bytes; 0: no prefetch."""
    ahead_cache: int = 1
    """The nearest cache level that prefetches load into."""
    ahead_steps: tuple[tuple[Var, int], ...] = ()
    """Loops, each with the bytes that an iteration adds to the prefetch distance."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address: a pointer for a scalar or contiguous access; else (no ``stride``) a pointer and lane offsets."""

    pointer: Value
    stride: int | None
    alignment: int
    offsets: Value | None = None
    """In elements."""
    known: int | None = None
    """The offset from the start of the buffer in elements, if it is a literal."""


@dataclass(slots=True)
class Spot:
    """An access in one scope: its address without the contributions of unrolled variables."""

    place: Place
    lane: Var | None
    pointer: Value
    alignment: int
    offset: int
    stride: int
    """The lanes' stride, in elements."""
    unrolled: tuple[tuple[Var, int], ...]
    """The variables with known values, each with its stride in elements."""
    vectors: tuple[tuple[Value, int], ...]
    """Other offsets that differ between the lanes."""
    is_moved: bool
    """Whether ``pointer`` is not the start of the buffer."""
    is_fixed: bool
    """Whether it is the same in all iterations of unrolled loops, regardless of stores."""
    addresses: dict[int, Address] = field(default_factory=dict[int, Address])
    """Cached addresses, by offset."""


def active_lanes(mask: Value | None) -> tuple[int, ...] | None:
    """For each lane, whether it is active, as far as known; empty if unknown."""
    return () if mask is None else mask.constants


def near_lanes(offsets: Value | None, active: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The lanes' offsets, if known and those of ``active`` lanes (empty: all) are within the length of two vectors; the
    others are moved to one of these."""
    known = None if offsets is None else offsets.constants
    if known is None or active is None:
        return None
    needed = [offset for offset, is_active in zip(known, active, strict=True) if is_active] if active else list(known)
    if not needed or max(needed) - min(needed) >= 2 * len(known):
        return None
    return tuple(min(max(offset, min(needed)), max(needed)) for offset in known)


def vector_of(element: str, lanes: int) -> str:
    """LLVM's type of lanes in memory."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def suffix_of(element: str) -> str:
    """The suffix of an element type in names of intrinsics."""
    return {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)


def common_alignment(alignment: int, offset: int) -> int:
    """The alignment of an address ``offset`` bytes after an aligned one."""
    return min(alignment, offset & -offset) if offset else alignment

"""Addresses: of a buffer, and of one access to it."""

from dataclasses import dataclass, field

from tilewright.backend.cpu.values import Value
from tilewright.symbolic.expr import Var


@dataclass(frozen=True, slots=True)
class Place:
    """Where a buffer's memory is."""

    pointer: Value
    constant: bool
    """Nobody writes to it while this kernel runs."""
    alignment: int
    private: int = 0
    """Elements of a buffer on the stack, 0 elsewhere. LLVM makes registers of it if all accesses are plain."""
    ahead: int = 0
    """Bytes from what is loaded to what is asked for at the same time; 0: nothing is."""
    ahead_cache: int = 1
    """The level of the nearest cache to which that comes."""


@dataclass(frozen=True, slots=True)
class Address:
    """A pointer for a scalar or contiguous access; with offsets from it for each lane otherwise (``stride`` None)."""

    pointer: Value
    stride: int | None
    alignment: int
    offsets: Value | None = None
    """In elements."""
    known: int | None = None
    """The offset from the start of the buffer, in elements, where it is a literal."""


@dataclass(slots=True)
class Spot:
    """An access as it is in one scope: its address but for the numbers that unrolled loops give to variables."""

    place: Place
    lane: Var | None
    pointer: Value
    alignment: int
    offset: int
    stride: int
    """Of the lanes, in elements."""
    unrolled: tuple[tuple[Var, int], ...]
    """The variables that have numbers, each with the elements from one to the next."""
    vectors: tuple[tuple[Value, int], ...]
    """What else differs between the lanes."""
    is_moved: bool
    """``pointer`` is not the start of the buffer."""
    is_fixed: bool
    """It is the same in all iterations of unrolled loops, and whatever is stored."""
    addresses: dict[int, Address] = field(default_factory=dict[int, Address])
    """By their offsets."""


def active_lanes(mask: Value | None) -> tuple[int, ...] | None:
    """For each lane, whether it is active, as far as that is known now: none if it is not."""
    return () if mask is None else mask.constants


def near_lanes(offsets: Value | None, active: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The lanes' offsets, if they are known and those of ``active`` lanes (empty: all) lie within the length of two
    vectors; the others are moved to one of these."""
    known = None if offsets is None else offsets.constants
    if known is None or active is None:
        return None
    needed = [offset for offset, is_active in zip(known, active, strict=True) if is_active] if active else list(known)
    if not needed or max(needed) - min(needed) >= 2 * len(known):
        return None
    return tuple(min(max(offset, min(needed)), max(needed)) for offset in known)


def vector_of(element: str, lanes: int) -> str:
    """LLVM's name of lanes in memory."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def suffix_of(element: str) -> str:
    """What intrinsics call an element."""
    return {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)


def common_alignment(alignment: int, offset: int) -> int:
    """How what is ``offset`` bytes after something aligned is aligned."""
    return min(alignment, offset & -offset) if offset else alignment

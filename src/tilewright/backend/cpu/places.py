"""Addresses: of a buffer, and of one access to it."""

from bisect import bisect_right
from dataclasses import dataclass, field

from tilewright.backend.cpu.values import Value
from tilewright.symbolic.expr import Var

MOST_RUNS = 4
"""Maximum number of vectors that are loaded and permuted in place of a gather, which loads each lane."""


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


@dataclass(frozen=True, slots=True)
class Runs:
    """Where the elements of lanes are, in a few runs of at most as many contiguous elements as there are lanes."""

    spans: tuple[tuple[int, int], ...]
    """The offset of the first element of each run, and how many elements it has."""
    places: tuple[tuple[int, int], ...]
    """For each lane, its run and the position in it."""


def runs_of(offsets: Value | None, active: tuple[int, ...] | None, *, has_masks: bool = False) -> Runs | None:
    """The runs of the elements at ``offsets``, if these are known and so are the ``active`` lanes (empty: all), and
    there are fewer runs than a gather has loads. Other lanes are moved to the first of these elements.

    A run begins and ends with an active lane's element, or between two of these: all of it is in the buffer. All but
    the last one are as long as a vector; so is this, if it may begin earlier. ``has_masks``: short ones take as long.
    """
    known = None if offsets is None else offsets.constants
    if known is None or active is None:
        return None
    lanes = len(known)
    needed = sorted({o for o, is_active in zip(known, active, strict=True) if is_active} if active else set(known))
    starts: list[int] = []
    for offset in needed:
        if not starts or offset >= starts[-1] + 2 * lanes:
            starts.append(offset)
        elif offset >= starts[-1] + lanes:  # next to the one before: lanes of odd strides then differ (``_picked``)
            starts.append(starts[-1] + lanes)
    if not 0 < len(starts) <= min(MOST_RUNS, max(2, lanes // 2)):
        return None
    starts = starts if has_masks else _within(starts, needed, lanes)
    run_of = {offset: bisect_right(starts, offset) - 1 for offset in needed}
    spans = tuple((start, min(lanes, needed[-1] + 1 - start)) for start in starts)
    near = (offset if offset in run_of else needed[0] for offset in known)
    return Runs(spans, tuple((run_of[offset], offset - starts[run_of[offset]]) for offset in near))


def _within(starts: list[int], needed: list[int], lanes: int) -> list[int]:
    """``starts`` of runs that hold the elements ``needed``, such that the last run ends with the last one of these, if
    there are.

    Positions in three runs and more must stay different. Lanes of a stride of 2, 3 or 4 do in runs that share an
    element with the next one, if they are 8.
    """
    last, count = needed[-1] + 1 - lanes, len(starts)
    sharing = [needed[0] + run * (lanes - 1) for run in range(count)]
    for moved in (sharing, [*starts[:-1], last]):
        runs = [bisect_right(moved, offset) - 1 for offset in needed]
        positions = [offset - moved[run] for run, offset in zip(runs, needed, strict=True)]
        ends_there = moved == sorted(moved) and moved[-1] == last
        if count > 1 and ends_there and (count == 2 or len({*positions}) == len(needed)):
            return moved
    return starts


def vector_of(element: str, lanes: int) -> str:
    """LLVM's type of lanes in memory."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def suffix_of(element: str) -> str:
    """The suffix of an element type in names of intrinsics."""
    return {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)


def common_alignment(alignment: int, offset: int) -> int:
    """The alignment of an address ``offset`` bytes after an aligned one."""
    return min(alignment, offset & -offset) if offset else alignment

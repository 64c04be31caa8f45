"""Loops around a micro-op: two become those of an instruction, the rest is unrolled into micro-ops.

Their order does not matter: GEMM adds, and so do operations of ALU on what they reduce; others have a ``dst`` of their
own for each ``src``. Loops that are as long as each other's steps are merged first, so that two of them suffice more
often.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.instructions import Uop
from tilewright.backend.vta.kernels import ONCE, Loop, unrolled

_MOST_ITERATIONS = (1 << 14) - 1
_KERNELS = 8
"""Of the largest size, that the micro-op memory has room for: those of two virtual threads, and of what comes next."""


@dataclass(frozen=True, slots=True)
class MicroLoops:
    """Micro-ops and the two loops of an instruction."""

    uops: tuple[Uop, ...]
    outer: Loop
    inner: Loop


def micro_loops(loops: Sequence[Loop], first: Uop, source: Scratchpad, config: Config) -> Iterator[MicroLoops]:
    """The loops as instructions: one, or more where micro-ops would take too much of their memory.

    ``source``: the memory of ``src``.
    """
    left = sorted(_merged(loops), key=lambda loop: -loop.extent)
    own = [loop for loop in left if _fits(loop, source, config)][:2]
    for loop in own:
        left.remove(loop)
    outside: list[Loop] = []
    while prod(loop.extent for loop in left) > config.depth(Scratchpad.UOP) // _KERNELS:
        outside.append(left.pop(0))
    outer, inner = [*own, ONCE, ONCE][:2]
    left.sort(key=lambda loop: -loop.dst)  # micro-ops of a result follow each other: `cuts`
    for point in product(*(range(loop.extent) for loop in outside)):
        moved = list(zip(point, outside, strict=True))
        start = Uop(
            first.dst + sum(at * loop.dst for at, loop in moved),
            first.src + sum(at * loop.src for at, loop in moved),
            first.wgt + sum(at * loop.wgt for at, loop in moved),
        )
        yield MicroLoops(unrolled(left, start), outer, inner)


def _fits(loop: Loop, source: Scratchpad, config: Config) -> bool:
    """Whether an instruction's loop can be it: fields have as many bits as addresses."""
    return (
        loop.extent <= _MOST_ITERATIONS
        and 0 <= loop.dst < config.depth(Scratchpad.ACC)
        and 0 <= loop.src < config.depth(source)
        and 0 <= loop.wgt < config.depth(Scratchpad.WGT)
    )


def _merged(loops: Sequence[Loop]) -> list[Loop]:
    """The same micro-ops with fewer loops."""
    found = [loop for loop in loops if loop.extent > 1]
    while (pair := next((p for p in product(found, found) if p[0] is not p[1] and _follows(*p)), None)) is not None:
        outer, inner = pair
        found = [loop for loop in found if loop is not outer and loop is not inner]
        found.append(Loop(outer.extent * inner.extent, inner.dst, inner.src, inner.wgt))
    return found


def _follows(outer: Loop, inner: Loop) -> bool:
    if outer.extent * inner.extent > _MOST_ITERATIONS:
        return False
    steps = ((outer.dst, inner.dst), (outer.src, inner.src), (outer.wgt, inner.wgt))
    return all(mine == its * inner.extent for mine, its in steps)

"""The end of a program: nothing hides what is stored last.

So the last product and the operations of ALU after it are cut: what a first part stores, it stores while compute works
on the next one. Each part takes compute as long as it takes to store the one before it, so they become smaller.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.backend.vta.compiler.cuts import axes, conflict, cut, kernel_of, multiplies, part, pieces
from tilewright.backend.vta.compiler.durations import START, cycles, fetching
from tilewright.backend.vta.compiler.recording import Recorded
from tilewright.backend.vta.config import Config, Module
from tilewright.backend.vta.kernels import Loop
from tilewright.backend.vta.program import Call

_MOST_LEFT = 3
"""Quarters of what is cut that are left, at most."""


def ended(steps: Sequence[Recorded], config: Config) -> list[Recorded]:
    """The same steps; the last product is cut, and what follows it."""
    stop = 1 + max((at for at, one in enumerate(steps) if one.module is Module.COMPUTE), default=-1)
    begin = _begin_of_last(steps, stop)
    applied, rest = steps[begin:stop], steps[stop:]
    stored = [one for one in rest if any(conflict(one, each) for each in applied)]
    others = [one for one in rest if not any(one is each for each in stored)]
    if any(one.module is not Module.STORE for one in rest) or not stored:
        return list(steps)
    has_product = begin > 0 and multiplies(steps[begin - 1])
    products = tuple(steps[begin - 1 : begin]) if has_product else ()
    if any(conflict(one, each) for one in others for each in products):
        return list(steps)
    return [*steps[: begin - len(products)], *others, *_cut(_End(products, tuple(applied), tuple(stored)), config)]


def _begin_of_last(steps: Sequence[Recorded], stop: int) -> int:
    """Where the operations of ALU begin that end before ``stop`` and work on the same accumulators."""
    begin = stop
    while begin > 0 and isinstance((one := steps[begin - 1]).step, Call) and not multiplies(one):
        if begin < stop and not any(conflict(one, other) for other in steps[begin:stop]):
            break
        begin -= 1
    return begin


@dataclass(frozen=True, slots=True)
class _End:
    """Products, operations of ALU after them, and the stores of their results."""

    products: tuple[Recorded, ...]
    applied: tuple[Recorded, ...]
    stored: tuple[Recorded, ...]

    @property
    def steps(self) -> tuple[Recorded, ...]:
        """All in order."""
        return *self.products, *self.applied, *self.stored

    def cycles_of_stores(self, config: Config) -> float:
        """One after another."""
        return sum(cycles(one, config) for one in self.stored)

    @property
    def kernels(self) -> tuple[Recorded, ...]:
        """What compute does."""
        return *self.products, *self.applied


def _cut(end: _End, config: Config) -> Iterator[Recorded]:
    """The steps, cut as long as that saves time: with the products, or the operations of ALU alone."""
    found = _halves(end, config)
    if found is None and end.products:
        yield from end.products
        end = _End((), end.applied, end.stored)
        found = _halves(end, config)
    if found is None:
        yield from end.steps
        return
    head, rest = found
    yield from head.steps
    yield from _cut(rest, config)


def _halves(end: _End, config: Config) -> tuple[_End, _End] | None:
    """What comes first, and the rest; None if that takes longer, or they do not depend on parts of each other only."""
    kernels = end.kernels
    if not kernels or not end.stored:
        return None
    chosen = [_furthest(axes(kernel_of(one))) for one in kernels]
    extents = [axes(kernel_of(one))[at].extent for one, at in zip(kernels, chosen, strict=True)]
    count = min(extents)
    size = _rest(end, count, config)
    if size >= count or any(extent % count for extent in extents):
        return None
    first, second = (
        [
            part(kernel_of(one), {at: range(span.start * extent // count, span.stop * extent // count)})
            for one, at, extent in zip(kernels, chosen, extents, strict=True)
        ]
        for span in (range(count - size), range(count - size, count))
    )
    if any(conflict(a, b) for a in first for b in second):
        return None
    stores = [_cut_store(one, second) for one in end.stored]
    own, others = (tuple(one for pair in stores for one in pair[at]) for at in range(2))
    place = len(end.products)
    head = _End(tuple(first[:place]), tuple(first[place:]), own)
    rest = _End(tuple(second[:place]), tuple(second[place:]), others)
    saved = end.cycles_of_stores(config) - rest.cycles_of_stores(config)
    costs = len(second) * START + sum(fetching(one, whole, config) for one, whole in zip(second, kernels, strict=True))
    return (head, rest) if saved > costs else None


def _furthest(own: Sequence[Loop]) -> int:
    """The axis along which results are furthest apart."""
    return max(range(len(own)), key=lambda at: own[at].dst if own[at].extent > 1 else 0)


def _rest(end: _End, count: int, config: Config) -> int:
    """How many of ``count`` parts are left: in the first part of these, cut alike, compute works as long as the store.

    Parts are then shorter in the ratio of both.
    """
    work, store = sum(cycles(one, config) for one in end.kernels), end.cycles_of_stores(config)
    return max(1, min(math.ceil(count * store / work), count * _MOST_LEFT // 4))


def _cut_store(one: Recorded, rest: Sequence[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    """The part of a store that does not need the rest, and the one that does."""
    own = pieces(one)
    written = [tiles for step in rest for tiles in step.writes]
    waits = [any(a.start < b.stop and b.start < a.stop for b in written) for a in own]
    place = waits.index(True) if any(waits) else len(own)
    if place in (0, len(own)):
        return ([], [one]) if place == 0 else ([one], [])
    head, last = cut(one, [0, place])
    return [head], [last]

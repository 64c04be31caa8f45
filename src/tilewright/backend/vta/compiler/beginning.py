"""The beginning of a program: nothing hides what is loaded first.

So the first product is cut along lines of the data and blocks of the result, and what it needs is loaded in the order
in which its parts need it: compute begins with the first part. Parts become larger, as loads are ahead after the first
ones; how small these are is chosen by the cycles until the whole product has ended. Where it still has to wait, the
accumulators of other virtual threads are reset meanwhile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.compiler.cuts import axes, conflict, cut, kernel_of, multiplies, part, pieces, resets
from tilewright.backend.vta.compiler.durations import cycles, fetching
from tilewright.backend.vta.compiler.recording import Recorded
from tilewright.backend.vta.config import Config, Module, Scratchpad

_SMALLEST = (1, 2, 4, 8)
"""The first part along an axis is this part of it."""
_LEAST_CYCLES = 64
"""Of device memory, for a part of a transfer: each of them waits for its latency."""


def begun(steps: Sequence[Recorded], config: Config) -> list[Recorded]:
    """The same steps; the first product is cut, and what it needs."""
    first = next((at for at, one in enumerate(steps) if multiplies(one)), None)
    if first is None:
        return list(steps)
    loads = [at for at in range(first) if steps[at].module is Module.LOAD and conflict(steps[at], steps[first])]
    if not loads:
        return list(steps)
    plans = [_Plan.of(steps, first, loads, spans, config) for spans in _ways(steps[first])]
    early = _early_resets(steps, first)
    before = [one for one in steps[:first] if one.module is Module.COMPUTE]
    both = [(plan, moved) for moved in ([], early) for plan in plans]
    best, moved = min(both, key=lambda pair: pair[0].cycles([*before, *pair[1]], early, config))
    ahead = [at for at in range(first) if _is_free(steps, at)]
    between = [one for at, one in enumerate(steps[:first]) if at not in loads and at not in ahead]
    after = [one for one in steps[first + 1 :] if not any(one is other for other in moved)]
    return [*(steps[at] for at in ahead), *moved, *best.loads, *between, *best.parts, *after]


def _early_resets(steps: Sequence[Recorded], first: int) -> list[Recorded]:
    """Resets after the first product, before ALU or store do anything, that nothing keeps from being before it."""
    found: list[Recorded] = []
    for at in range(first + 1, len(steps)):
        one = steps[at]
        if one.module is not Module.LOAD and not multiplies(one) and not resets(one):
            break
        if _is_free(steps, at):
            found.append(one)
    return found


def _is_free(steps: Sequence[Recorded], at: int) -> bool:
    """Whether a step is a reset that may come first: then micro-ops are loaded before anything takes device memory."""
    return resets(steps[at]) and not any(conflict(steps[at], other) for other in steps[:at])


# Cuts -----------------------------------------------------------------------------------------------------------------


def _ways(one: Recorded) -> Iterator[dict[int, list[range]]]:
    """Parts of the axes of a product, the coarsest first; the axis of lines is the outer one."""
    own = axes(kernel_of(one))
    blocks = next((at for at, axis in enumerate(own) if axis.wgt and axis.dst), None)
    lines = max((at for at in range(len(own)) if at != blocks), key=lambda at: own[at].src)
    chosen = [lines] if blocks is None else [lines, blocks]
    sizes = [list(dict.fromkeys(-(-own[at].extent // count) for count in _SMALLEST)) for at in chosen]
    for firsts in product(*sizes):
        yield {at: _growing(own[at].extent, size) for at, size in zip(chosen, firsts, strict=True)}


def _growing(extent: int, size: int) -> list[range]:
    """Parts of which each is as large as all before it."""
    found = [range(size)]
    while (stop := found[-1].stop) < extent:
        found.append(range(stop, min(2 * stop, extent)))
    return found


@dataclass(frozen=True, slots=True)
class _Plan:
    """The parts of a product, and of its loads in the order in which they are needed."""

    whole: Recorded
    parts: tuple[Recorded, ...]
    loads: tuple[Recorded, ...]
    needs: tuple[int, ...]
    """Which part is the first one that needs each load."""

    @staticmethod
    def of(
        steps: Sequence[Recorded], first: int, loads: Sequence[int], spans: dict[int, list[range]], config: Config
    ) -> "_Plan":
        """The plan for spans of the axes."""
        kernel = kernel_of(steps[first])
        chosen = [dict(zip(spans, own, strict=True)) for own in product(*spans.values())]
        parts = [part(kernel, own) for own in chosen] if len(chosen) > 1 else [steps[first]]
        first_needs = _first_needs(parts, config)
        cuts = [pair for at in loads for pair in _by_need(steps[at], first_needs, config)]
        ordered = sorted(cuts, key=lambda pair: pair[0])
        own = tuple(load for _, load in ordered)
        return _Plan(steps[first], tuple(parts), own, tuple(need for need, _ in ordered))

    def cycles(self, before: Sequence[Recorded], resets: Sequence[Recorded], config: Config) -> float:
        """Until the product and ``resets`` have ended, of which some may be in ``before``, which comes first."""
        fetched = sum(fetching(one, self.whole, config) for one in self.parts)
        clock, there = float(fetched), dict[int, float]()
        for need, load in zip(self.needs, self.loads, strict=True):
            clock += cycles(load, config)
            there[need] = clock
        now = fetched + sum(cycles(one, config) for one in before)
        for number, one in enumerate(self.parts):
            now = max(now, there.get(number, 0.0)) + cycles(one, config)
        return now + sum(cycles(one, config) for one in resets if not any(one is other for other in before))


def _first_needs(parts: Sequence[Recorded], config: Config) -> dict[Scratchpad, NDArray[np.int64]]:
    """For each tile of inp and wgt, the first part that reads it; those that none reads are for the last one."""
    found = {pad: np.full(config.depth(pad), len(parts) - 1, np.int64) for pad in (Scratchpad.INP, Scratchpad.WGT)}
    for number, one in reversed(list(enumerate(parts))):
        for tiles in one.reads:
            if tiles.pad in found:
                found[tiles.pad][tiles.start : tiles.stop] = number
    return found


def _by_need(
    load: Recorded, first_needs: dict[Scratchpad, NDArray[np.int64]], config: Config
) -> Iterator[tuple[int, Recorded]]:
    """The parts of a load, each with the first product that needs it."""
    own = pieces(load)
    needs = [int(first_needs[tiles.pad][tiles.start : tiles.stop].min()) for tiles in own]
    least = max(1, round(_LEAST_CYCLES * len(own) / cycles(load, config)))
    places = [0]
    for at in range(1, len(own)):
        if needs[at] != needs[at - 1] and least <= at - places[-1] and least <= len(own) - at:
            places.append(at)
    for place, one in zip(places, cut(load, places), strict=True):
        following = [other for other in places if other > place]
        yield min(needs[place : following[0] if following else len(own)]), one

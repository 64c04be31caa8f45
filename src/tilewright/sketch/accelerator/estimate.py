"""About how many cycles a candidate takes.

With one virtual thread, modules work one after another. With more, a stage is loaded while another one multiplies, and
one stage ahead while ALU works; what a load takes longer is waited for. What is kept on the chip for several tiles is
loaded while nothing else works. In all, no program is faster than device memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.cycles import Timing
from tilewright.sketch.accelerator.computation import Part, Positions
from tilewright.sketch.accelerator.decision import Decision

_BEGINNINGS, _ENDINGS = 4, 8
"""What is loaded before the first product is one of so many parts (``vta.compiler.beginning``); so is what is stored
last (``vta.compiler.ending``)."""


_CUT = 3
"""Kernels of as many micro-ops as that of a stage, at both ends: each micro-op is loaded in a cycle."""


def estimate(decision: Decision, config: Config, timing: Timing) -> float:
    """Cycles."""
    return _Times(decision, config, timing).total()


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Cycles of tiles of one size: how many; products of a stage, all products, ALU with its loads, stores."""

    count: int
    multiply: Mapping[str, float]
    products: float
    compute: float
    store: float


@dataclass(frozen=True)
class _Times:
    decision: Decision
    config: Config
    timing: Timing

    def total(self) -> float:
        decision, kinds = self.decision, list(self._kinds())
        largest, smallest = kinds[0], kinds[-1]
        load, once = self._stage_loads, self._once
        first = sum(load.values()) + self._private + once
        begin = max(first / _BEGINNINGS, first - largest.products * (1 - 1 / _BEGINNINGS))
        begin = max(begin - decision.threads * prod(decision.sizes), 0.0)  # accumulators are reset meanwhile
        end = max(smallest.store / _ENDINGS, smallest.store - sum(smallest.multiply.values()) - smallest.compute)
        ragged = self._ragged() + self._micro_ops * (decision.threads + _CUT)
        if decision.threads == 1:
            staged = sum(self._stages[name] * time for name, time in load.items())
            alone = sum(one.count * (staged + self._private + one.products + one.compute + one.store) for one in kinds)
            waited = alone + ragged + once - (first - begin) - (smallest.store - end)
        else:
            staged = sum(self._stages[name] * time for name, time in load.items())
            waited = sum(self._together(one, largest.store) for one in kinds) + begin + end + ragged
            waited += decision.alone * (staged + self._private)
        return max(waited + self._exposed, self._bus())

    def _together(self, tiles: _Tiles, store: float) -> float:
        """Of all tiles of a size, while stages of others are loaded and their results stored."""
        load = self._stage_loads
        waiting = sum((self._stages[n] - 1) * max(0.0, time - tiles.multiply[n]) for n, time in load.items())
        last = sum(load.values()) + self._private + store
        waiting += max(0.0, last - sum(tiles.multiply.values()) - tiles.compute)
        return tiles.count * (tiles.products + tiles.compute + waiting)

    # Tiles ------------------------------------------------------------------------------------------------------------

    def _kinds(self) -> Iterator[_Tiles]:
        """Tiles by size, the largest one first: those at the end of a dimension may be smaller."""
        kinds: list[tuple[int, Positions]] = [(1, ())]
        for extent, size in zip(self.decision.computation.sizes, self.decision.sizes, strict=True):
            whole, rest = divmod(extent, size)
            here = [(whole, size), *([(1, rest)] if rest else [])]
            kinds = [(count * more, (*sizes, own)) for count, sizes in kinds for more, own in here]
        fetch = self._fetched / prod(self.decision.counts)
        for count, sizes in kinds:
            yield self._tiles(count, sizes, fetch)

    def _tiles(self, count: int, sizes: Positions, fetch: float) -> _Tiles:
        computation, overhead = self.decision.computation, self.timing.gemm_depth + self.timing.issue
        needed = computation.needed(sizes)
        multiply = {name: count / self._stages[name] + overhead for name, count in needed.products.items()}
        products = sum(time * self._stages[name] for name, time in multiply.items())
        compute = fetch + needed.passed + computation.passes * overhead
        store = prod(sizes) * self.config.tile_bytes(Scratchpad.OUT) / self.timing.bus_bytes
        return _Tiles(count, multiply, products, compute, store + self.decision.sizes[0] * self._start)

    @cached_property
    def _micro_ops(self) -> int:
        """Of the products of a stage: two loops are those of an instruction."""
        decision = self.decision
        return sum(
            prod(sorted((*decision.regions[product.buffer], *decision.depths[product.name]))[:-2])
            for product in decision.computation.products
        )

    def _ragged(self) -> int:
        """STOREs of single rows: tiles at the end of a row that are narrower are no rectangles on the chip."""
        extent, size = self.decision.computation.sizes[-1], self.decision.sizes[-1]
        if extent % size == 0:
            return 0
        return prod(self.decision.counts[:-1]) * prod(self.decision.sizes[:-1]) * self._start

    # Loads ------------------------------------------------------------------------------------------------------------

    @cached_property
    def _start(self) -> int:
        return self.timing.latency + self.timing.issue

    @cached_property
    def _stages(self) -> Mapping[str, int]:
        return {part.name: self.decision.stages(part) for part in self.decision.computation.products}

    @cached_property
    def _transfers(self) -> Mapping[str, float]:
        """Of each load: its bytes, and the start of each rectangle."""
        return {load.name: self._transfer(load) for load in self.decision.computation.loads}

    def _transfer(self, load: Part) -> float:
        positions = self.decision.loaded[load.name]
        loaded = prod(positions) * self.config.tile_bytes(load.pad) / self.timing.bus_bytes
        is_plane = load.pad is not Scratchpad.WGT and len(positions) > 2
        return loaded + (prod(positions[:-2]) if is_plane else 1) * self._start

    @cached_property
    def _stage_loads(self) -> Mapping[str, float]:
        """What is loaded for a stage of each product."""
        computation, kept = self.decision.computation, self.decision.kept
        return {
            product.name: sum(
                self._transfers[load.name] for load in computation.factors(product) if load.name not in kept
            )
            for product in computation.products
        }

    @cached_property
    def _kept(self) -> tuple[Part, ...]:
        """Loads to inp and wgt that are in no stage."""
        return tuple(load for load in self._loads(of_acc=False) if load.name in self.decision.kept)

    def _loads(self, *, of_acc: bool) -> Iterator[Part]:
        for load in self.decision.computation.loads:
            if (load.pad.storage is Scratchpad.ACC) == of_acc:
                yield load

    @cached_property
    def _once(self) -> float:
        """What is loaded for the whole program."""
        return sum(self._transfers[load.name] for load in self._kept if self.decision.runs(load) == 1)

    @cached_property
    def _private(self) -> float:
        """What each virtual thread loads for each tile, beside stages."""
        return sum(self._transfers[load.name] for load in self._kept if self._is_private(load))

    def _is_private(self, load: Part) -> bool:
        return self.decision.inside(load) == self.decision.around and self.decision.runs(load) > 1

    @cached_property
    def _exposed(self) -> float:
        """What is loaded at times for the tiles that follow, while nothing else works."""
        return sum(
            self._transfers[load.name] * self.decision.runs(load)
            for load in self._kept
            if self.decision.runs(load) > 1 and not self._is_private(load)
        )

    @cached_property
    def _fetched(self) -> float:
        """What is loaded to acc, by compute itself."""
        return sum(self._transfers[load.name] * self.decision.runs(load) for load in self._loads(of_acc=True))

    def _bus(self) -> float:
        """The least time of all transfers."""
        tiles = prod(self.decision.counts)
        staged = sum(tiles * self._stages[name] * time for name, time in self._stage_loads.items())
        kept = sum(self._transfers[load.name] * self.decision.runs(load) for load in self._kept)
        stored = prod(self.decision.computation.sizes) * self.config.tile_bytes(Scratchpad.OUT) / self.timing.bus_bytes
        return staged + kept + self._fetched + stored

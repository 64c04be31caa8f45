"""The search: all configurations are screened; the most promising ones, and the presets, are compiled and rated.

found = search(LayerNetwork(RESNET18), Space.of(Design(VTA), ECP5, bound))
for rated in found.front:
    print(rated)
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.config_file import Design
from tilewright.backend.vta.synthesis.area import Area
from tilewright.base.errors import BadInput
from tilewright.codesign.networks import Network
from tilewright.codesign.screening import Screen
from tilewright.codesign.space import Space

RATED = 24
"""Configurations that are compiled, besides presets."""


@dataclass(frozen=True, slots=True)
class Rated:
    """A configuration that was compiled for, by the cycle simulator and the fitted area."""

    design: Design
    area: Area
    share: float
    """The largest part of what there is of a cell."""
    cycles: int
    """Of the network, with as many images as a batch has."""

    @property
    def microseconds(self) -> float:
        """For an image, at the configuration's clock."""
        return self.cycles / self.design.config.batch / self.design.config.clock_mhz


@dataclass(frozen=True, slots=True)
class Found:
    """``front``: those that were rated and of which no other is faster and smaller, the fastest one first."""

    front: tuple[Rated, ...]
    rated: tuple[Rated, ...]
    screened: int
    """How many were estimated."""

    @property
    def best(self) -> Rated:
        """The fastest one, and of these the smallest."""
        return self.front[0]


def search(network: Network, space: Space, presets: Iterable[Config] = (), rated: int = RATED) -> Found:
    """The best configurations. ``presets`` that fit are rated, too: so the best one is never slower than they are.

    About ``rated`` promising ones are compiled, and then neighbours of the best one, as many at most.
    Raises ``BadInput`` if no configuration that fits has room for the layers.
    """
    rating = _Rating(network, space)
    for design in _fitting(presets, space):
        rating.rate(design)
    screened = _screened(network, space)
    for design in _promising(screened, rated):
        rating.rate(design)
    rating.climb(rated)
    if not rating.known:
        raise BadInput(f"no configuration within {space.bound} has room for the layers: give a larger area")
    ordered = sorted(rating.known.values(), key=lambda item: (item.microseconds, item.share))
    return Found(tuple(_front(ordered)), tuple(ordered), len(screened))


def _fitting(presets: Iterable[Config], space: Space) -> Iterator[Design]:
    """The presets at the clock of the others, as far as they fit."""
    for config in presets:
        design = replace(space.base, config=replace(config, clock_mhz=space.base.config.clock_mhz))
        if space.area(design).fits(space.bound):
            yield design


@dataclass(frozen=True, slots=True)
class _Screened:
    """A configuration with its estimate."""

    design: Design
    cycles: float
    share: float


def _screened(network: Network, space: Space) -> list[_Screened]:
    """All configurations that fit and have room for the layers; those with the least time for an image first."""
    found: list[_Screened] = []
    for blocks in space.blocks:
        designs = list(space.designs(blocks))
        if not designs:
            continue
        screen = Screen.of(network.layers, space.unlimited(blocks), space.base.timing)
        for design in designs:
            cycles = screen.estimate(design.config) / blocks.batch
            if cycles < inf:
                found.append(_Screened(design, cycles, space.area(design).share(space.bound)))
    return sorted(found, key=lambda item: (item.cycles, item.share))


def _promising(screened: Sequence[_Screened], count: int) -> Iterator[Design]:
    """Of those of which none is estimated to be faster and is smaller: the fastest ones, and some of the others."""
    front: list[_Screened] = []
    for item in screened:
        if not front or item.share < front[-1].share:
            front.append(item)
    first, others = front[: count // 2], front[count // 2 :]
    step = max(1, -(-len(others) // max(1, count - len(first))))
    yield from (item.design for item in (*first, *others[::step]))


def _front(ordered: Iterable[Rated]) -> Iterator[Rated]:
    least = inf
    for item in ordered:
        if item.share < least:
            least = item.share
            yield item


@dataclass(slots=True)
class _Rating:
    """What was compiled so far."""

    network: Network
    space: Space
    known: dict[Config, Rated] = field(default_factory=dict[Config, Rated])
    failed: set[Config] = field(default_factory=set[Config])

    def rate(self, design: Design) -> None:
        """Compile for a configuration, unless that was done; it is left out if a layer has no room."""
        config = design.config
        if config in self.known or config in self.failed:
            return
        cycles = self.network.cycles(design)
        if cycles is None:
            self.failed.add(config)
            return
        area = self.space.area(design)
        self.known[config] = Rated(design, area, area.share(self.space.bound), cycles)

    def climb(self, most: int) -> None:
        """Rate neighbours of the best one, and go on from a better one, until there is none or ``most`` were rated."""
        end = len(self.known) + len(self.failed) + most
        while self.known:
            before = self._best()
            for design in self.space.neighbours(before.design):
                if len(self.known) + len(self.failed) >= end:
                    return
                self.rate(design)
            if self._best().microseconds >= before.microseconds:
                return

    def _best(self) -> Rated:
        return min(self.known.values(), key=lambda item: (item.microseconds, item.share))

"""The decisions of a candidate, by what they are about."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tilewright.sketch.accelerator.computation import Computation, Part, Positions
from tilewright.sketch.accelerator.rules.load import kept_knob
from tilewright.sketch.accelerator.rules.multiply import depth_knob
from tilewright.sketch.accelerator.rules.tile_result import axis_knob, order_knob, size_knob, threads_knob
from tilewright.space.knobs import Value


@dataclass(frozen=True, slots=True)
class Around:
    """A loop around tiles: the dimension of the result, and how often it runs."""

    dimension: int
    count: int
    is_thread: bool = False


@dataclass(frozen=True)
class Decision:
    """A candidate: ``order`` of the dimensions' loops around tiles; ``kept``: loads that are not in stages."""

    computation: Computation
    sizes: Positions
    depths: Mapping[str, Positions]
    order: tuple[int, ...]
    axis: int
    asked: int
    """Virtual threads, if there are as many tiles along ``axis``."""
    kept: frozenset[str]

    @staticmethod
    def of(computation: Computation, values: Mapping[str, Value]) -> "Decision":
        """By the names of knobs."""
        name = computation.result.name
        order = values[order_knob(name)]
        assert isinstance(order, tuple)
        return Decision(
            computation,
            tuple(_number(values[size_knob(name, at)]) for at in range(len(computation.sizes))),
            {
                part.name: tuple(_number(values[depth_knob(part.name, at)]) for at in range(len(part.summed)))
                for part in computation.products
            },
            tuple(_number(place) for place in order if isinstance(place, int)),
            _number(values[axis_knob(name)]),
            _number(values[threads_knob(name)]),
            frozenset(load.name for load in computation.loads if values.get(kept_knob(load.name), 1)),
        )

    @cached_property
    def counts(self) -> Positions:
        """Tiles along each dimension."""
        return tuple(-(-extent // size) for extent, size in zip(self.computation.sizes, self.sizes, strict=True))

    @cached_property
    def threads(self) -> int:
        """Virtual threads."""
        return min(self.asked, self.counts[self.axis])

    @property
    def alone(self) -> int:
        """Tiles that one virtual thread computes while the others have none."""
        count = self.counts[self.axis]
        return prod(self.counts) // count if count % self.threads == 1 else 0

    @property
    def is_plain(self) -> bool:
        """Whether no other candidate is the same schedule: with one thread, the axis is the first dimension."""
        return self.threads == self.asked and (self.asked > 1 or self.axis == 0)

    @cached_property
    def around(self) -> tuple[Around, ...]:
        """The loops around tiles that run more than once, outermost first."""
        turns = [-(-count // (self.threads if at == self.axis else 1)) for at, count in enumerate(self.counts)]
        loops = (*(Around(at, turns[at]) for at in self.order), Around(self.axis, self.threads, is_thread=True))
        return tuple(loop for loop in loops if loop.count > 1)

    def inside(self, load: Part) -> tuple[Around, ...]:
        """The loops that a load which is kept is in: from the outermost one to the last in which it is another."""
        moving = self.computation.dependence[load.buffer]
        places = [place for place, loop in enumerate(self.around) if loop.dimension in moving]
        return self.around[: max(places, default=-1) + 1]

    def runs(self, load: Part) -> int:
        """How often a load that is kept is run."""
        return prod(loop.count for loop in self.inside(load))

    def copies(self, load: Part) -> int:
        """How many virtual threads have a copy of their own of what is loaded."""
        is_kept = load.name in self.kept
        return self.threads if not is_kept or any(loop.is_thread for loop in self.inside(load)) else 1

    def stages(self, product: Part) -> int:
        """Of a product, for each tile."""
        return prod(-(-extent // size) for extent, size in zip(product.summed, self.depths[product.name], strict=True))

    @cached_property
    def regions(self) -> Mapping[str, Positions]:
        """Positions of each buffer for a tile of the largest size."""
        return self.computation.needed(self.sizes).regions

    @cached_property
    def loaded(self) -> Mapping[str, Positions]:
        """Positions that each load copies at once, for tiles of the largest size."""
        found = {load.name: self.regions[load.buffer] for load in self.computation.loads}
        for product in self.computation.products:
            along = (*self.regions[product.buffer], *self.depths[product.name])
            for load in self.computation.factors(product):
                if load.name not in self.kept:
                    found[load.name] = self.computation.read(product, load.buffer, along)
        return found


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value

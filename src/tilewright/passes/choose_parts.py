"""Chooses which groups run for a part of the batch at a time (``parts_of_batches``), and for how many images.

A loop over parts saves traffic: values between its groups stay in the second cache, if those of the whole batch do not.
It costs to start kernels, and to read their weights, for each part. Cores share the images of a part as they do those
of the whole batch: each finds in its own cache what it wrote.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf, prod

from tilewright.cost.reuse import passing_cycles
from tilewright.graph import Node, Value
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.passes.fuse import Group
from tilewright.passes.layout import LaidOut
from tilewright.passes.parts_of_batches import InParts, images_of
from tilewright.target.target import Target

_CONVOLUTION = require("Conv")
MOST_GROUPS = 128
"""Maximum groups in one loop: all loops are tried."""
WORTH = 20_000
"""The least cycles that a loop saves for each part: estimates of less mean little."""
ROWS = 128
"""The least rows of a part that each core has: with fewer, tiles of registers are not as large as for the batch."""


def choose_parts(laid_out: LaidOut, groups: Sequence[Group], target: Target) -> tuple[InParts, ...]:
    """The loops that are estimated to save most, in order."""
    makers = {value: at for at, group in enumerate(groups) for value in group.outputs}
    sizes = _Sizes(laid_out)
    if sum(map(sizes.moved, groups)) <= target.machine.cache_part * target.l2_bytes:
        return ()
    found: list[InParts] = []
    images = [images_of(group, laid_out.graph) for group in groups]
    for count, places in groupby(range(len(groups)), images.__getitem__):
        run = list(places)
        if count > 1:
            found += _Run(groups, makers, sizes, target, count).loops(run[0], run[-1] + 1)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Bytes of values of a graph, as stored."""

    laid_out: LaidOut

    def of(self, value: Value) -> int:
        """The bytes of a value that is not constant."""
        return prod(static(value.shape) or (0,)) * self.laid_out.stored(value).itemsize

    def data(self, group: Group) -> list[Value]:
        """The inputs of a group that are not constant."""
        return [value for value in group.inputs if value not in self.laid_out.graph.constants]

    def moved(self, group: Group) -> int:
        """The bytes of the values that a group reads and writes."""
        return sum(map(self.of, (*self.data(group), *group.outputs)))

    def padded(self, group: Group) -> int:
        """The bytes of the data of convolutions of a group that it copies, with padding, before it reads them."""
        data = (node.inputs[0] for node in group.nodes if node.op == _CONVOLUTION and _has_padding(node))
        return sum(self.of(value) for value in data if value in self.data(group))

    def weights(self, group: Group) -> int:
        """The bytes of the constants that a group reads."""
        constants, narrow = self.laid_out.graph.constants, self.laid_out.narrow.dtype
        factors = self.laid_out.weights(group.nodes)
        known = (value for value in group.inputs if value in constants)
        sizes = ((v, narrow.itemsize if narrow is not None and v in factors else v.dtype.itemsize) for v in known)
        return sum(prod(static(value.shape) or (0,)) * size for value, size in sizes)


def _has_padding(node: Node) -> bool:
    pads = dict(node.attributes).get("pads")
    return isinstance(pads, tuple) and any(pad != 0 for pad in pads)


@dataclass(frozen=True, slots=True)
class _Rated:
    """A loop, and the cycles that it saves."""

    loop: InParts
    saved: float


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive groups, each of as many ``images``. ``makers``: the numbers of the groups that make values."""

    groups: Sequence[Group]
    makers: Mapping[Value, int]
    sizes: _Sizes
    target: Target
    images: int

    def loops(self, start: int, stop: int) -> list[InParts]:
        """The best loop of these groups, and those before and after it."""
        rated = [one for size in self._parts() for one in self._rated(start, stop, size)]
        best = max(rated, key=lambda one: one.saved, default=None)
        if best is None:
            return []
        return [*self.loops(start, best.loop.start), best.loop, *self.loops(best.loop.stop, stop)]

    def _parts(self) -> Iterator[int]:
        """Numbers of images of a part: as many for each core."""
        size = self.target.cores
        while 2 * size <= self.images:
            if self.images % size == 0:
                yield size
            size *= 2

    def _rated(self, start: int, stop: int, size: int) -> Iterator[_Rated]:
        """The best loop of these groups over parts of ``size`` images, if it is worth it."""
        count, every = self.images // size, range(start, stop)
        gains = [self._gains(at, start, size) for at in every]
        costs = [self._cost(at, count) if self._has_rows(at, size) else inf for at in every]
        best = _Rated(InParts(start, start, count), WORTH * count)
        for first in every:
            total = 0.0
            for at in range(first, min(stop, first + MOST_GROUPS)):
                total += sum(saved for maker, saved in gains[at - start] if maker >= first) - costs[at - start]
                if total > best.saved:
                    best = _Rated(InParts(first, at + 1, count), total)
        if best.loop.stop > start:
            yield best

    def _has_rows(self, at: int, size: int) -> bool:
        """Whether each result of a group has enough rows for each core, whatever its rows are."""
        shapes = (static(value.shape) or () for value in self.groups[at].outputs)
        return all(size * prod(shape[1:]) >= ROWS * self.target.cores * max(shape[1:], default=1) for shape in shapes)

    def _gains(self, reader: int, start: int, size: int) -> list[tuple[int, float]]:
        """The cycles that are saved by each value that a group reads, with the number of the group that makes it, and
        by its own padded data."""
        found: list[tuple[int, float]] = []
        for value in self.sizes.data(self.groups[reader]):
            maker = self.makers.get(value, -1)
            if start <= maker < reader <= maker + MOST_GROUPS:
                between = self.groups[maker : reader + 1]
                own, weights = self.sizes.of(value), sum(map(self.sizes.weights, between))
                whole = sum(map(self.sizes.moved, between)) - own
                saved = self._passing(own, whole, weights) - self._passing(own, whole * size / self.images, weights)
                found.append((maker, saved))
        padded = self.sizes.padded(self.groups[reader])
        part = padded * size / self.images
        found.append((reader, self._passing(padded, 2 * padded, 0) - self._passing(padded, 2 * part, 0)))
        return found

    def _passing(self, own: int, values: float, weights: int) -> float:
        """The cycles to pass on a value, if so many bytes are used meanwhile: each core has its images."""
        cores = self.target.cores
        return passing_cycles(own / cores, values / cores + weights, self.target)

    def _cost(self, at: int, count: int) -> float:
        """The cycles to start a kernel for each further part, and to read its weights again."""
        machine, is_shared = self.target.machine, self.target.cores > 1
        begin = machine.shared_kernel_start + machine.region_cycles if is_shared else machine.kernel_start
        return (count - 1) * (begin + self.sizes.weights(self.groups[at]) / machine.third_bytes)

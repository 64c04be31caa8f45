"""The cheapest split of a graph between two devices: a minimum cut (Ford and Fulkerson, 1956).

Each item costs something on either device; each value costs something if it has to pass to the other device, once for
all its readers. Without limits on what fits together, the minimum of the sum is that of a cut between two terminals.
"""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import TypeAlias, TypeVar

Item: TypeAlias = Hashable
Key = TypeVar("Key", bound=Hashable)
_HERE, _THERE = object(), object()
"""The terminals: items that end up with ``_HERE`` are offloaded."""


@dataclass(frozen=True, slots=True)
class Passing:
    """A value: who makes it, who reads it (None: something that is not offloaded), and what it costs to pass it."""

    maker: Item | None
    readers: tuple[Item | None, ...]
    cost: float


def cheapest(offloaded: Mapping[Key, float], kept: Mapping[Key, float], values: Sequence[Passing]) -> frozenset[Key]:
    """The items to offload. ``offloaded`` and ``kept``: the cost of each item, where it is offloaded or not.

    Of several cheapest splits, the one that offloads least.
    """
    network = _Network()
    for item, cost in offloaded.items():
        network.add(_HERE, item, kept[item])
        network.add(item, _THERE, cost)
    for number, value in enumerate(values):
        maker = _THERE if value.maker is None else value.maker
        readers = [_THERE if reader is None else reader for reader in value.readers]
        out, back = (number, "out"), (number, "back")
        network.add(maker, out, value.cost)
        network.add(back, maker, value.cost)
        for reader in readers:
            network.add(out, reader, inf)
            network.add(reader, back, inf)
    network.saturate()
    reached = network.reached()
    return frozenset(item for item in offloaded if item in reached)


@dataclass(slots=True)
class _Network:
    """Capacities that are left, by both ends."""

    left: dict[Item, dict[Item, float]] = field(default_factory=dict[Item, dict[Item, float]])

    def add(self, start: Item, end: Item, capacity: float) -> None:
        if start is not end and capacity > 0:
            ways = self.left.setdefault(start, {})
            ways[end] = ways.get(end, 0.0) + capacity
            self.left.setdefault(end, {}).setdefault(start, 0.0)

    def saturate(self) -> None:
        """Send as much as possible, each time over the fewest edges (Edmonds and Karp, 1972)."""
        while (path := self._path()) is not None:
            edges = list(pairwise(path))
            amount = min(self.left[start][end] for start, end in edges)
            for start, end in edges:
                self.left[start][end] -= amount
                self.left[end][start] += amount

    def _path(self) -> list[Item] | None:
        came_from = self.reached()
        if _THERE not in came_from:
            return None
        path: list[Item] = [_THERE]
        while path[-1] is not _HERE:
            path.append(came_from[path[-1]])
        return path[::-1]

    def reached(self) -> dict[Item, Item]:
        """What can be reached over edges with capacity left, and from where."""
        found: dict[Item, Item] = {_HERE: _HERE}
        queue: deque[Item] = deque([_HERE])
        while queue:
            start = queue.popleft()
            for end, capacity in self.left.get(start, {}).items():
                if capacity > 0 and end not in found:
                    found[end] = start
                    queue.append(end)
        return found

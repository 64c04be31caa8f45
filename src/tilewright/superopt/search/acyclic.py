"""Removes nodes of an e-graph so that no cycles remain. A *way* is a node: it makes one class and reads others.

An e-graph has cycles where a value equals one computed from it (``x`` and ``Neg(Neg(x))``). A graph has none: without
cycles, any choice of nodes is a graph. Yang et al., "Equality Saturation for Tensor Graph Superoptimization" (MLSys
2021), remove the newest node of each cycle. Here, a way is removed only if it closes a cycle of older ones.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Thing = TypeVar("Thing", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to make ``made``, which needs all that it ``reads``."""

    made: str
    reads: tuple[str, ...]


def without_cycles(ways: Sequence[Way]) -> tuple[list[str], list[int]]:
    """All classes in topological order, and the positions of the remaining ways.

    ``ways``: oldest first. A class whose oldest way reads only older classes still has a way.
    """
    tangled = {name for members in components(_edges(ways)) if len(members) > 1 for name in members}
    tangled |= {way.made for way in ways if way.made in way.reads}
    staying = _Staying({name: set() for name in tangled})
    positions = [position for position, way in enumerate(ways) if way.made not in tangled or staying.takes(way)]
    edges = _edges(ways, positions)
    return [name for (name,) in components(edges)], positions


@dataclass(frozen=True, slots=True)
class _Staying:
    """Edges of the remaining ways, among classes on cycles."""

    reads: Mapping[str, set[str]]

    def takes(self, way: Way) -> bool:
        """Whether ``way`` closes no cycle; then it is added."""
        inside = [name for name in way.reads if name in self.reads]
        if self._reaches(inside, way.made):
            return False
        self.reads[way.made].update(inside)
        return True

    def _reaches(self, starts: Sequence[str], goal: str) -> bool:
        waiting, seen = [*starts], set[str]()
        while waiting:
            name = waiting.pop()
            if name == goal:
                return True
            if name not in seen:
                seen.add(name)
                waiting += self.reads[name]
        return False


def _edges(ways: Sequence[Way], positions: Iterable[int] | None = None) -> Mapping[str, Sequence[str]]:
    """The classes that each class reads directly, by the ways at ``positions``; None for all."""
    edges: dict[str, list[str]] = {name: [] for way in ways for name in (*way.reads, way.made)}
    for position in range(len(ways)) if positions is None else positions:
        edges[ways[position].made] += ways[position].reads
    return edges


def components(edges: Mapping[Thing, Sequence[Thing]]) -> Iterator[list[Thing]]:
    """Strongly connected components in reverse topological order."""
    search = _Search(edges)
    for root in edges:
        yield from search.components(root)


@dataclass(slots=True)
class _Search(Generic[Thing]):
    """Tarjan, "Depth-First Search and Linear Graph Algorithms" (1972), without recursion."""

    edges: Mapping[Thing, Sequence[Thing]]
    numbers: dict[Thing, int] = field(default_factory=dict)
    lowest: dict[Thing, int] = field(default_factory=dict)
    """The lowest number known to be in the component of each vertex."""
    open: dict[Thing, None] = field(default_factory=dict)
    """Vertices with a number, but without a component."""
    path: list[tuple[Thing, Iterator[Thing]]] = field(default_factory=list)

    def components(self, root: Thing) -> Iterator[list[Thing]]:
        """The components reachable from ``root`` that were not found before."""
        if root not in self.numbers:
            self._enter(root)
        while self.path:
            name, rest = self.path[-1]
            below = next(rest, None)
            if below is None:
                yield from self._leave(name)
            elif below not in self.numbers:
                self._enter(below)
            elif below in self.open:
                self.lowest[name] = min(self.lowest[name], self.numbers[below])

    def _enter(self, name: Thing) -> None:
        self.numbers[name] = self.lowest[name] = len(self.numbers)
        self.open[name] = None
        self.path.append((name, iter(self.edges[name])))

    def _leave(self, name: Thing) -> Iterator[list[Thing]]:
        self.path.pop()
        if self.path:
            above = self.path[-1][0]
            self.lowest[above] = min(self.lowest[above], self.lowest[name])
        if self.lowest[name] == self.numbers[name]:
            found = [self.open.popitem()[0]]
            while found[-1] != name:
                found.append(self.open.popitem()[0])
            yield found

"""Assigns the vertices of a directed acyclic graph to layers, with edges pointing down, and orders each layer.

The layer of a vertex is the length of the longest path to it (Sugiyama, Tagawa and Toda, "Methods for visual
understanding of hierarchical system structures", 1981); a vertex without predecessors is just above its first
successor. An edge over several layers has a bend in each layer between. Vertices and bends of a layer are sorted by the
mean position of their neighbours, layer by layer, down and up a few times.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 4
Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Layered:
    """Layers from the top, each with its vertices from left to right, and the path of each edge.

    Vertices from ``count`` on are bends.
    """

    count: int
    layers: tuple[tuple[int, ...], ...]
    paths: tuple[tuple[int, ...], ...]


def layered(count: int, edges: Sequence[Edge]) -> Layered:
    """Layers for ``count`` vertices; the first vertex of each edge has a smaller number than the second."""
    depth = _depths(count, edges)
    layers: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for vertex, level in enumerate(depth):
        layers[level].append(vertex)
    paths: list[tuple[int, ...]] = []
    bends = count
    for begin, end in edges:
        path = [begin]
        for level in range(depth[begin] + 1, depth[end]):
            layers[level].append(bends)
            path.append(bends)
            bends += 1
        paths.append((*path, end))
    return Layered(count, tuple(map(tuple, _ordered(layers, paths))), tuple(paths))


def neighbours(paths: Iterable[Sequence[int]]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """The neighbours of each vertex above it, and those below it."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for path in paths:
        for begin, end in pairwise(path):
            above.setdefault(end, []).append(begin)
            below.setdefault(begin, []).append(end)
    return above, below


def _depths(count: int, edges: Sequence[Edge]) -> list[int]:
    depth = [0] * count
    for begin, end in sorted(edges, key=lambda edge: edge[1]):
        depth[end] = max(depth[end], depth[begin] + 1)
    ends = {end for _, end in edges}
    nearest = {begin: depth[end] - 1 for begin, end in sorted(edges, key=lambda edge: -depth[edge[1]])}
    return [level if vertex in ends else nearest.get(vertex, 0) for vertex, level in enumerate(depth)]


def _ordered(layers: list[list[int]], paths: Iterable[Sequence[int]]) -> list[list[int]]:
    above, below = neighbours(paths)
    for _ in range(_SWEEPS):
        for before, layer in pairwise(layers):
            _sort(layer, before, above)
        for after, layer in pairwise(reversed(layers)):
            _sort(layer, after, below)
    return layers


def _sort(layer: list[int], fixed: Sequence[int], neighbours: Mapping[int, Sequence[int]]) -> None:
    """Sort ``layer`` by the mean position of neighbours in ``fixed``; vertices without any keep their position."""
    place = {vertex: (number + 0.5) / len(fixed) for number, vertex in enumerate(fixed)}
    own = {vertex: (number + 0.5) / len(layer) for number, vertex in enumerate(layer)}

    def mean(vertex: int) -> float:
        near = [place[one] for one in neighbours.get(vertex, ())]
        return sum(near) / len(near) if near else own[vertex]

    layer.sort(key=mean)

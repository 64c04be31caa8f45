"""Computes horizontal positions of the vertices of a layered graph: near their neighbours, without overlap.

Layer by layer, down and up a few times, vertices move to the mean position of their neighbours in the previous layer:
the order within a layer is kept, and the sum of squared distances from these means is minimal subject to the gaps
(isotonic regression by pooling adjacent violators: Ayer et al., "An empirical distribution function for sampling with
incomplete information", 1955).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tilewright.report.layers import Layered, neighbours

_SWEEPS = 8


def placed(found: Layered, widths: Mapping[int, float], gap: float) -> dict[int, float]:
    """The centre of each vertex; the left edge of the leftmost one is at 0."""
    above, below = neighbours(found.paths)
    centres: dict[int, float] = {}
    for layer in found.layers:
        centres.update(zip(layer, _apart([0.0] * len(layer), layer, widths, gap), strict=True))
    for _ in range(_SWEEPS):
        for layers, near in ((found.layers, above), (found.layers[::-1], below)):
            for _, layer in pairwise(layers):
                wanted = [_mean([centres[one] for one in near.get(vertex, (vertex,))]) for vertex in layer]
                centres.update(zip(layer, _apart(wanted, layer, widths, gap), strict=True))
    left = min((centre - widths[vertex] / 2 for vertex, centre in centres.items()), default=0.0)
    return {vertex: centre - left for vertex, centre in centres.items()}


def _apart(wanted: Sequence[float], layer: Sequence[int], widths: Mapping[int, float], gap: float) -> list[float]:
    """The centres closest to ``wanted`` at which the vertices of ``layer``, in order, do not overlap."""
    offsets = [0.0] * len(layer)
    for place, (a, b) in enumerate(pairwise(layer), 1):
        offsets[place] = offsets[place - 1] + (widths[a] + widths[b]) / 2 + gap
    blocks: list[list[float]] = []
    for centre, offset in zip(wanted, offsets, strict=True):
        blocks.append([centre - offset])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    levels = [_mean(block) for block in blocks for _ in block]
    return [level + offset for level, offset in zip(levels, offsets, strict=True)]


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)

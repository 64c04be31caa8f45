"""Where the vertices of a layered graph stand from left to right: near those they are joined to, and apart.

Layer by layer, down and up a few times, each vertex is drawn to the mean of its neighbours in the layer before; the
order in a layer stays, and the sum of the squared distances from those means is the least that leaves the gaps between
vertices (isotonic regression, by pooling adjacent violators: Ayer et al., "An empirical distribution function for
sampling with incomplete information", 1955).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tilewright.report.layers import Layered, neighbours

_SWEEPS = 8


def placed(found: Layered, widths: Mapping[int, float], gap: float) -> dict[int, float]:
    """The centre of each vertex; the left side of the leftmost is at 0."""
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
    """Centres nearest to ``wanted`` at which the vertices of ``layer``, in their order, do not overlap."""
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

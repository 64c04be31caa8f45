"""Relation features: accessed data as a function of loop lengths, for any loop structure (Chen et al., NeurIPS 2018).

``count``, ``reuse`` and ``topdown`` of the loops around an access, each sorted and on a scale of log2 with a 0 before
them, are curves over each other. Each is sampled at 0, 1, 2 ...: its value at the last point not beyond the sample, and
the distance to that point. The number of features depends on the number of buffers only, so a model of them serves
programs of other structures.
"""

import re

import numpy as np

from tilewright.base.errors import BadInput
from tilewright.loops.memory import MEMORIES
from tilewright.tune.features.nest import Arithmetic, Structure, Touch
from tilewright.tune.features.quantities import Extractor, Factors, Floats, Quantities

SAMPLES = 20
"""Number of samples, as in AutoTVM's tuner."""
_TOLERANCE = 1e-6
"""Tolerance of a logarithm: a point rounded to slightly above a sample is not beyond it."""
_COPY = re.compile(rf"(_({'|'.join(MEMORIES)})(_\d+)?)+$")
"""Suffixes that ``cache_read`` and ``cache_write`` add to the name of a buffer."""


def curve_buffers(structure: Structure) -> tuple[Touch, ...]:
    """The accesses that have curves, by name: the last one to each buffer in the deepest loops.

    Only loops with float arithmetic count, if there are any: a copy within the loops of a product may be nested deeper
    than the product. Copies of a buffer (``A_local``) count as that buffer.
    """
    loops = structure.loops
    calculating = {position for position, loop in enumerate(loops) if loop.arithmetic != Arithmetic()}
    wanted = calculating or set(range(len(loops)))
    depth = max(loops[position].level for position in wanted)
    deepest = (t for t in structure.touches if len(t.steps) == depth and t.steps[-1].loop in wanted)
    last: dict[str, Touch] = {}
    for touch in sorted(deepest, key=lambda touch: touch.steps[-1].loop):
        last[_COPY.sub("", touch.buffer)] = touch
    return tuple(sorted(last.values(), key=lambda touch: touch.name))


def curve_features(extractor: Extractor, factors: Factors, sample_n: int = SAMPLES) -> Floats:
    """The features of all candidates: (candidates, ``len(curve_buffers) * 4 * sample_n * 2``).

    For each buffer: reuse over count, count over reuse, topdown over count, count over topdown; for each of these
    ``sample_n`` pairs of a value and a distance. Raises ``BadInput`` if ``sample_n`` is not positive, or ``factors``
    lacks a positive number for a symbol.
    """
    if isinstance(sample_n, bool) or sample_n < 1:
        raise BadInput(f"sample_n is how many points of a curve are taken: 1 or more, not {sample_n}")
    structure = extractor.structure
    buffers = [structure.touches.index(touch) for touch in curve_buffers(structure)]

    def features(quantities: Quantities) -> Floats:
        rows = [_sampled(x, y, sample_n) for buffer in buffers for x, y in _curves(structure, quantities, buffer)]
        return np.concatenate([np.empty((0, quantities.lengths.shape[1])), *rows])

    return extractor.features(factors, len(buffers) * 4 * sample_n * 2, features)


def _curves(structure: Structure, quantities: Quantities, position: int) -> tuple[tuple[Floats, Floats], ...]:
    """The four curves of an access: points of ``x``, and of ``y``."""
    touch, measured = structure.touches[position], quantities.touches[position]
    count, reuse = _points(measured.counts), _points(measured.reuses)
    topdown = _points(quantities.topdown[[step.loop for step in touch.steps]])
    return (count, reuse), (reuse, count), (count, topdown), (topdown, count)


def _points(numbers: Floats) -> Floats:
    """The points of a curve along one axis, in order: (loops + 1, candidates)."""
    points = np.zeros((len(numbers) + 1, numbers.shape[1]))
    points[1:] = np.sort(np.log2(np.maximum(numbers, 1.0)), axis=0)
    return points


def _sampled(x: Floats, y: Floats, sample_n: int) -> Floats:
    """Pairs of a value of ``y`` and the distance back to its ``x``: (2 * sample_n, candidates)."""
    samples = np.arange(float(sample_n))[:, None]
    last = np.sum(x[:, None] < samples + _TOLERANCE, axis=0) - 1
    values, points = np.take_along_axis(y, last, axis=0), np.take_along_axis(x, last, axis=0)
    return np.stack([values, samples - points], axis=1).reshape(2 * sample_n, -1)

"""The values of the float model on the calibration data: it is compiled with them as outputs, and run.

There are two runs over the data: the first finds the range of each value, the second counts values in bins of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed
from tilewright.base.names import readable
from tilewright.graph import Graph, Value
from tilewright.quantization.layers import Layer
from tilewright.quantization.ranges import BINS, Counts, Distribution
from tilewright.quantization.samples import Samples

Run = Callable[[Mapping[str, Array]], Sequence[Array]]
"""Runs a compiled graph: its outputs, in order, for inputs by name."""
Build = Callable[[Graph], Run]
"""Compiles a graph."""

Means = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """The ``distributions`` of values, and the ``means`` of what layers with a weight read, by the layers' results.

    Means are over all but the dimension that the layer sums over.
    """

    distributions: Mapping[Value, Distribution]
    means: Mapping[Value, Means]


def collect(
    graph: Graph, layers: Sequence[Layer], values: Iterable[Value], samples: Samples, build: Build
) -> Statistics:
    """The statistics of ``values`` of ``graph``, and of what ``layers`` read.

    Raises ``BadFeed`` if the float model computes NaN or infinity.
    """
    observed = tuple(dict.fromkeys(values))
    weighted = [layer for layer in layers if layer.weight is not None]
    read = (value for layer in weighted for value in layer.activations)
    run = _exposing(graph, dict.fromkeys((*observed, *read)), build)
    low, high = dict.fromkeys(observed, 0.0), dict.fromkeys(observed, 0.0)
    means: dict[Value, Means] = {}
    for batch in samples.batches:
        found = run(batch)
        for value in observed:
            least, largest = _ends(value, found[value])
            low[value], high[value] = min(low[value], least), max(high[value], largest)
        for layer in weighted:
            mean = _mean(found[layer.activations[0]], layer.contracted) / len(samples.batches)
            means[layer.result] = means[layer.result] + mean if layer.result in means else mean
    counts: dict[Value, Counts] = {value: np.zeros(2 * BINS, np.int64) for value in observed}
    for batch in samples.batches:
        found = run(batch)
        for value in observed:
            counts[value] += _binned(found[value], max(-low[value], high[value]))
    return Statistics({value: Distribution(low[value], high[value], counts[value]) for value in observed}, means)


def _exposing(
    graph: Graph, values: Iterable[Value], build: Build
) -> Callable[[Mapping[str, Array]], Mapping[Value, Array]]:
    """A function that runs ``graph``, and returns ``values`` of it."""
    wanted = tuple(values)
    inner = tuple(value for value in wanted if value not in graph.inputs)
    run = build(replace(graph, outputs=inner)) if inner else None

    def values_of(feeds: Mapping[str, Array]) -> Mapping[Value, Array]:
        given = {value: feeds[value.name] for value in graph.inputs}
        return given if run is None else {**given, **dict(zip(inner, run(feeds), strict=True))}

    return values_of


def _ends(value: Value, array: Array) -> tuple[float, float]:
    ends = float(array.min(initial=0)), float(array.max(initial=0))
    if not np.isfinite(ends).all():
        raise BadFeed(
            f"the float model computes NaN or infinity on the calibration data (value {readable(value.name)}); "
            "leave such samples out"
        )
    return ends


def _mean(array: Array, kept: int) -> Means:
    axes = tuple(axis for axis in range(array.ndim) if axis != kept % array.ndim)
    return np.asarray(array.mean(axis=axes, dtype=np.float64))


def _binned(array: Array, limit: float) -> Counts:
    """How many elements are in each bin from ``-limit`` to ``limit``, without zeros."""
    if not limit:
        return np.zeros(2 * BINS, np.int64)
    elements = array.reshape(-1)
    elements = elements[elements != 0].astype(np.float64)
    places = np.clip(np.floor(elements * (BINS / limit)) + BINS, 0, 2 * BINS - 1)
    return np.bincount(places.astype(np.int64), minlength=2 * BINS)

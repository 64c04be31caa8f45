"""Times of units, in microseconds: by the library, and by kernels of our own.

Both are measured in turns, on the model's threads, as parts of a model: data are row-major before and after, and a call
of the library takes one entry into native code more than a kernel among others does.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.base.arrays import Array, random_array
from tilewright.base.dtypes import f32
from tilewright.base.errors import Unsupported
from tilewright.compilation import Options, Services
from tilewright.driver import compile_graph
from tilewright.graph import Graph
from tilewright.offload.library.units import Unit
from tilewright.runtime.library.primitive import Layout
from tilewright.runtime.library.step import StepExecutable
from tilewright.runtime.manifest import Manifest, TensorSpec

_LEAST_GAIN = 0.05
"""The share of a time by which the library has to be faster: less may be an error of the measurement."""
_LEAST_ROUNDS = 7
_LEAST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Times:
    """What a unit takes; ``layout``: that in which the library is fastest."""

    own: float
    library: float
    layout: Layout

    @property
    def is_gain(self) -> bool:
        """Whether the library is faster."""
        return is_faster(self.library, self.own)


def is_faster(time: float, other: float) -> bool:
    """Whether a time is shorter than another, and not by an error of the measurement."""
    return time < other * (1 - _LEAST_GAIN)


@dataclass(slots=True)
class Stopwatch:
    """Times by what they depend on: equal layers are timed once."""

    graph: Graph
    options: Options
    services: Services
    _times: dict[object, Times] = field(default_factory=dict[object, Times])

    def times(self, unit: Unit) -> Times:
        """What a unit takes. Raises ``Unsupported`` if the library does not implement it."""
        key = unit.function, unit.shapes, unit.weights.shape, unit.bias is None
        if key not in self._times:
            self._times[key] = self._measured(unit)
        return self._times[key]

    def _measured(self, unit: Unit) -> Times:
        own = compile_graph(graph_of(unit, self.graph), self.options, self.services).executable
        data = random_array(f32, unit.shapes[0], np.random.default_rng(0))
        feeds = {unit.source.name: data}
        calls = {layout: step for layout in _layouts(unit) if (step := _step(unit, layout, own.threads)) is not None}
        if not calls:
            raise Unsupported("the library does not implement it on this processor")
        bound = own.bind(feeds)
        runs: list[Callable[[], object]] = [lambda: bound.run(None), lambda: own.run(feeds)]
        runs += [lambda step=step: step.run(feeds) for step in calls.values()]
        alone, entered, *found = in_turns(runs)
        times = dict(zip(calls, found, strict=True))
        best = min(times, key=times.__getitem__)
        return Times(min(alone, entered), times[best] + max(entered - alone, 0.0), best)


def graph_of(unit: Unit, graph: Graph) -> Graph:
    """The nodes of a unit as a graph of their own."""
    read = {value for node in unit.nodes for value in node.inputs}
    constants = {value: array for value, array in graph.constants.items() if value in read}
    parts = {"inputs": (unit.source,), "outputs": (unit.result,), "nodes": unit.nodes, "constants": constants}
    return replace(graph, name="unit", limits=(), **parts)


def step_of(unit: Unit, layout: Layout, threads: int | None, name: str = "call") -> StepExecutable:
    """What calls the library for a unit. Raises ``Unsupported`` if there is none, or if it does not implement it."""
    function = replace(unit.function, layout=layout)
    constants: list[Array] = [unit.weights] if unit.bias is None else [unit.weights, unit.bias]
    known = (TensorSpec(label, f32, array.shape) for label, array in zip(("weights", "bias"), constants, strict=False))
    source, result = unit.shapes
    entering, leaving = TensorSpec(unit.source.name, f32, source), TensorSpec(unit.result.name, f32, result)
    manifest = Manifest((entering,), (leaving,), tuple(known), calls=(name,))
    return StepExecutable(function, manifest, constants, threads)


def in_turns(runs: Sequence[Callable[[], object]], seconds: float = _LEAST_SECONDS) -> list[float]:
    """The least microseconds of each, called in turns: what other programs disturbed does not count.

    ``seconds``: for each; more rounds for short calls.
    """
    for run in runs:
        run()
    times: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds * len(runs)
    while len(times[0]) < _LEAST_ROUNDS or time.perf_counter() < end:
        for own, run in zip(times, runs, strict=True):
            begin = time.perf_counter()
            run()
            own.append(time.perf_counter() - begin)
    return [min(own) * 1e6 for own in times]


def _layouts(unit: Unit) -> Sequence[Layout]:
    """Those that are tried; for row-major images the library has general code only."""
    return (Layout.ROWS,) if unit.function.window is None else (Layout.CHANNELS_LAST, Layout.CHOSEN)


def _step(unit: Unit, layout: Layout, threads: int) -> StepExecutable | None:
    try:
        return step_of(unit, layout, threads)
    except Unsupported:
        return None

"""The graph of a model with calls of a library in place of units.

By measured times, a unit is given away if the library is faster at it. Then the model is run both ways, as a cut costs
what no time of a unit has: values that stay in a layout of our own, and are not written, between kernels of one part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.base.arrays import random_array
from tilewright.base.dtypes import f32
from tilewright.base.errors import BadInput, Unsupported
from tilewright.base.numerics import Precision
from tilewright.compilation import Options, Services, prepare
from tilewright.driver import compile_graph
from tilewright.graph import Graph, Node, verify
from tilewright.interface import staged_manifest
from tilewright.offload.library.choice import Given, LibraryChoice
from tilewright.offload.library.timing import Stopwatch, Times, in_turns, is_faster, step_of
from tilewright.offload.library.units import Kept, Unit, find_units, place_of
from tilewright.ops.called import Caller, TensorType, called
from tilewright.ops.shapes import static
from tilewright.passes.between import Between
from tilewright.passes.parts import parts
from tilewright.runtime.elsewhere import misfit
from tilewright.runtime.library.onednn import library
from tilewright.runtime.library.primitive import Layout
from tilewright.runtime.stages import Stage, StagedExecutable
from tilewright.staged import ExecutedOperator, stage_of

_SECONDS = 0.5
"""To measure a model in one of both ways."""


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A unit that the library computes, in a layout. ``times``: None if they were not measured."""

    unit: Unit
    layout: Layout
    times: Times | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Placing:
    """A graph with its calls, by the names of their operators, and what our own kernels compute.

    ``whole``: microseconds of the model without calls and with them; None if they were not measured.
    """

    graph: Graph
    calls: Mapping[str, Placed]
    kept: tuple[Kept, ...]
    whole: tuple[float, float] | None
    version: str
    """Of the library."""


@dataclass(slots=True)
class LibraryPlacing:
    """A library, and how it is given parts of graphs: a graph that is imported again is split as it was."""

    choice: LibraryChoice
    _placed: dict[str, Placing] = field(default_factory=dict[str, Placing])

    @staticmethod
    def asked(given: LibraryChoice | str, options: Options) -> "LibraryPlacing":
        """By words. Raises ``BadInput`` for others, and for policies that the library does not keep; ``Unsupported``
        without the library."""
        choice = LibraryChoice.named(given)
        if options.math.keeps_terms or options.precision is not Precision.FP32:
            raise BadInput(
                "library= computes in float32, and adds in an order of its own: leave it out, or math= and precision="
            )
        if (reason := misfit(options.target.platform, options.target.features)) is not None:
            raise BadInput(f"library= is measured here, and the target is elsewhere ({reason}): leave one out")
        library()
        return LibraryPlacing(choice)

    def split(self, graph: Graph, options: Options, services: Services) -> Placing:
        """An imported graph with its calls."""
        key = str(graph)
        if key not in self._placed:
            self._placed[key] = placed(graph, self.choice, options, services)
        return self._placed[key]

    def of(self, graph: Graph) -> Placing | None:
        """What made ``graph``."""
        return next((found for found in self._placed.values() if found.graph is graph), None)


def placed(graph: Graph, choice: LibraryChoice, options: Options, services: Services) -> Placing:
    """``graph`` with its calls.

    Raises ``Unsupported`` without the library, for a model in stages, and for sizes that are known only at run time.
    """
    version = library().version
    if (found := Between.first(graph)) is not None:
        raise Unsupported(f"library=: a model in stages can't be split further; leave library= out. {found}")
    if any(static(value.shape) is None for value in graph.inputs):
        raise Unsupported("library= needs sizes that are known: give them by shapes= or --shape")
    graph = prepare(graph, math=options.math)
    units, kept = find_units(graph)
    measured = choice.given is Given.MEASURED
    chosen, others = (
        _faster(units, Stopwatch(graph, options, services)) if measured else _possible(units, options.threads)
    )
    made, calls = _with_calls(graph, chosen, options.threads)
    whole = _whole(graph, made, options, services) if measured and calls else None
    if whole is not None and not is_faster(whole[1], whole[0]):
        others = [*others, *(_outvoted(each, *whole) for each in chosen)]
        made, calls = _with_calls(graph, (), options.threads)
    order = {place_of(node): at for at, node in enumerate(graph.nodes)}
    told = sorted((*kept, *others), key=lambda item: order[item.place])
    return Placing(made, calls, tuple(told), whole, version)


def _possible(units: Sequence[Unit], threads: int | None) -> tuple[list[Placed], list[Kept]]:
    """Units that the library implements, and others."""
    chosen: list[Placed] = []
    others: list[Kept] = []
    for unit in units:
        try:
            step_of(unit, _usual(unit), threads)
        except Unsupported as error:
            others.append(_kept(unit, str(error)))
        else:
            chosen.append(Placed(unit, _usual(unit)))
    return chosen, others


def _usual(unit: Unit) -> Layout:
    """The layout, where it is not measured."""
    return Layout.ROWS if unit.function.window is None else Layout.CHOSEN


def _faster(units: Sequence[Unit], stopwatch: Stopwatch) -> tuple[list[Placed], list[Kept]]:
    """Units at which the library is faster, and others."""
    chosen: list[Placed] = []
    others: list[Kept] = []
    for unit in units:
        try:
            times = stopwatch.times(unit)
        except Unsupported as error:
            others.append(_kept(unit, str(error)))
            continue
        if times.is_gain:
            chosen.append(Placed(unit, times.layout, times))
        else:
            others.append(_kept(unit, f"it takes {times.own:.1f} us here, and {times.library:.1f} us by the library"))
    return chosen, others


def _outvoted(placed: Placed, own: float, split: float) -> Kept:
    """A unit at which the library is faster, but not in the model."""
    assert placed.times is not None, "measured, as the model is"
    alone = f"alone it takes {placed.times.own:.1f} us here, and {placed.times.library:.1f} us by the library"
    return _kept(placed.unit, f"{alone}, but the model {own:.1f} us without such calls, and {split:.1f} us with them")


def _kept(unit: Unit, reason: str) -> Kept:
    return Kept(unit.place, unit.nodes[0].op.name, reason)


def _with_calls(graph: Graph, chosen: Sequence[Placed], threads: int | None) -> tuple[Graph, Mapping[str, Placed]]:
    """``graph`` with a node for each of ``chosen``, where its last node was."""
    calls = {f"library{number}": placed for number, placed in enumerate(chosen)}
    ends = {placed.unit.nodes[-1]: _node(name, placed, threads) for name, placed in calls.items()}
    gone = {node for placed in chosen for node in placed.unit.nodes}
    nodes = tuple(ends.get(node, node) for node in graph.nodes if node in ends or node not in gone)
    read = {value for node in nodes for value in node.inputs}.union(graph.outputs)
    constants = {value: array for value, array in graph.constants.items() if value in read}
    made = replace(graph, nodes=nodes, constants=constants)
    verify(made)
    return made, calls


def _node(name: str, placed: Placed, threads: int | None) -> Node:
    unit = placed.unit
    executable = step_of(unit, placed.layout, threads, name)
    plain = called(name, tuple, [TensorType(f32, unit.shapes[1])])
    op = ExecutedOperator(
        name, plain.function, plain.kind, results=plain.results, by=Caller.LIBRARY, executable=executable
    )
    return Node(op, (unit.source,), (unit.result,), (), unit.place)


def _whole(graph: Graph, made: Graph, options: Options, services: Services) -> tuple[float, float]:
    """Microseconds of the model without calls and with them."""
    alone = compile_graph(graph, options, services).executable
    stages = [_stage(step, at, options, services) for at, step in enumerate(parts(made))]
    read = {name for stage in stages for name in stage.plan.reads}
    own = {value: array for value, array in made.constants.items() if value.name in read}
    split = StagedExecutable(staged_manifest(made, list(own), {}), list(own.values()), stages, options.threads)
    random = np.random.default_rng(0)
    feeds = {spec.name: random_array(spec.dtype, spec.static_shape or (), random) for spec in alone.manifest.inputs}
    without, with_calls = in_turns([lambda: alone.run(feeds), lambda: split.run(feeds)], _SECONDS)
    return without, with_calls


def _stage(step: Graph | Node, at: int, options: Options, services: Services) -> Stage:
    if isinstance(step, Graph):
        return stage_of(step, at, (compile_graph(step, options, services).executable,))
    return stage_of(step, at, ())

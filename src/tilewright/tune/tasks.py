"""Tasks: computations of a model with alternative algorithms and layouts, as routes.

So algorithm and layout are chosen by measurement as well; any other kernel has a single route.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.base.exact import Exact
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.kernels.relayout import blocked
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives import Facts, Way
from tilewright.passes.alternatives.routes import Route, route, steps_of
from tilewright.passes.blocks import Blocks, width_of
from tilewright.passes.choose import Choices, Copy
from tilewright.passes.layout import LaidOut


@dataclass(frozen=True, slots=True)
class Task:
    """``routes``: first the analytic choice; ``weight``: how often the model computes it."""

    name: str
    routes: tuple[Route, ...]
    weight: int


def tasks(choices: Choices) -> tuple[Task, ...]:
    """The distinct nodes of a graph with several algorithms or layouts. Names are those of the first such node in the
    model."""
    found: dict[tuple[object, ...], Task] = {}
    for node, every in nodes_with_routes(choices.graph, choices.facts):
        chosen = choices.states[node.outputs[0]].way.name
        known = found.get((form(node, every), chosen))
        ordered = sorted(every, key=lambda route: route.name != chosen)
        found[form(node, every), chosen] = (
            Task(node.source, tuple(ordered), 1) if known is None else replace(known, weight=known.weight + 1)
        )
    return tuple(found.values())


def nodes_with_routes(graph: Graph, facts: Facts) -> Iterator[tuple[Node, Sequence[Route]]]:
    """The nodes of fixed extents with several algorithms or layouts, with any layout of inputs; equal ones share
    routes."""
    known: dict[tuple[object, ...], Sequence[Route]] = {}
    alone = replace(facts, may_be_blocked=set())
    for node in graph.nodes:
        ways = alone.ways(node) if is_static(*node.inputs, *node.outputs) else ()
        if len(ways) > 1:
            key = form(node, ways)
            if key not in known:
                known[key] = [route(node, way, facts) for way in ways]
            yield node, known[key]


def is_static(*values: Value | None) -> bool:
    """Whether all extents are fixed."""
    return all(value is None or static(value.shape) is not None for value in values)


def form(node: Node, ways: Iterable[Way | Route]) -> tuple[object, ...]:
    """A key of a node's computation and its alternatives, independent of names of values."""
    shapes = [None if value is None else (value.dtype, value.shape) for value in node.inputs]
    return node.op.name, Exact(node.attributes), tuple(shapes), tuple(way.name for way in ways)


def copying(copy: Copy, blocks: Blocks) -> Route:
    """A copy to the other layout."""
    node = make_node(require("Copy"), [copy.value], ["copied"], {}, "")
    in_blocks = copy.value if copy.from_blocks else node.outputs[0]
    layouts = {in_blocks: blocked(len(copy.value.shape), width_of(copy.value, blocks))}
    graph = Graph("copy", (copy.value,), node.outputs, (node,), {})
    return Route("copy", tuple(steps_of(LaidOut(graph, layouts), blocks.target)))

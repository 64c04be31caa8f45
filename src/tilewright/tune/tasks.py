"""Tasks: what a model has to compute, each with all ways to compute it.

A *route* is one way: kernels that run one after the other. A convolution has a route for each alternative, in
blocks or plain, so that algorithm and layout are chosen by measurement as well; any other kernel has one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.base.exact import Exact
from tilewright.base.numerics import Math
from tilewright.graph import Graph, Node, make_node
from tilewright.kernels.relayout import blocked
from tilewright.loops.program import Program
from tilewright.ops.operator import require
from tilewright.passes.alternatives import Alternative, Ways, rewrite
from tilewright.passes.blocks import Reads, can_be_blocked, width_of
from tilewright.passes.choose import Choices, Copy
from tilewright.passes.flatten import flatten_reductions
from tilewright.passes.fuse import fuse
from tilewright.passes.layout import LaidOut
from tilewright.passes.lower import Lowering
from tilewright.target.target import Target

CONVOLUTIONS = frozenset({"Conv", "PhaseConv"})


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel of a route, and which of its inputs are weights."""

    naive: Program
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """One way to compute a task. ``name`` says which alternative it is."""

    name: str
    steps: tuple[Step, ...]

    @property
    def kernels(self) -> tuple[Program, ...]:
        """Naive programs that run one after the other."""
        return tuple(step.naive for step in self.steps)


@dataclass(frozen=True, slots=True)
class Task:
    """``routes``: first the one that the analytic model has chosen; ``weight``: how often the model computes it."""

    name: str
    routes: tuple[Route, ...]
    weight: int


def convolution_tasks(choices: Choices, target: Target, math: Math) -> tuple[Task, ...]:
    """The distinct convolutions of a graph. The names are those of the first node that computes each in the model."""
    found: dict[tuple[object, ...], Task] = {}
    for node in choices.graph.nodes:
        if node.op.name in CONVOLUTIONS:
            chosen = choices.states[node.outputs[0]].way
            key = (*form(node), chosen.name)
            known = found.get(key)
            found[key] = _task(node, choices.graph, chosen, target, math) if known is None else _once_more(known)
    return tuple(found.values())


def form(node: Node) -> tuple[object, ...]:
    """What a node computes, whatever its values are called."""
    shapes = [None if value is None else (value.dtype, value.shape) for value in node.inputs]
    return node.op.name, Exact(node.attributes), tuple(shapes)


def routes(node: Node, graph: Graph, target: Target, math: Math) -> tuple[Route, ...]:
    """All ways to compute a convolution of ``graph``."""
    alone = _alone(node, graph)
    ways = Ways(graph.constants, graph.names(), target, math).of(node, ())
    return tuple(_route(alone, way, target) for way in ways)


def copying(copy: Copy, target: Target) -> Route:
    """A copy to the other layout."""
    node = make_node(require("Copy"), [copy.value], ["copied"], {}, "")
    in_blocks = copy.value if copy.from_blocks else node.outputs[0]
    layouts = {in_blocks: blocked(len(copy.value.shape), width_of(copy.value, target))}
    graph = Graph("copy", (copy.value,), node.outputs, (node,), {})
    return Route("copy", tuple(_steps(LaidOut(graph, layouts), target)))


def _once_more(task: Task) -> Task:
    return replace(task, weight=task.weight + 1)


def _task(node: Node, graph: Graph, chosen: Alternative, target: Target, math: Math) -> Task:
    found = routes(node, graph, target, math)
    first = [route for route in found if route.name == chosen.name]
    return Task(node.source, (*first, *(route for route in found if route.name != chosen.name)), 1)


def _alone(node: Node, graph: Graph) -> Graph:
    """A graph of one node."""
    read = [value for value in node.inputs if value is not None]
    inputs = tuple(dict.fromkeys(value for value in read if value not in graph.constants))
    own = {value: graph.constants[value] for value in read if value in graph.constants}
    return Graph(node.op.name, inputs, node.outputs, (node,), own)


def _route(graph: Graph, way: Alternative, target: Target) -> Route:
    """The kernels of one node computed so.

    What it makes is stored as the alternative wants it; what it reads, too, and where that wants nothing as the result
    is, as mostly in a model.
    """
    (result,), data = graph.outputs, graph.inputs[0]
    rewritten, in_blocks = rewrite(graph, {result: way}, graph.names())
    follows = way.reads is Reads.AS_THEY_ARE and way.is_blocked and can_be_blocked(data, target)
    if follows or way.reads in (Reads.BLOCKED, Reads.RATHER_BLOCKED):
        in_blocks |= {data}
    layouts = {value: blocked(len(value.shape), width_of(value, target)) for value in in_blocks}
    return Route(way.name, tuple(_steps(flatten_reductions(LaidOut(rewritten, layouts)), target)))


def _steps(laid_out: LaidOut, target: Target) -> Iterator[Step]:
    lowering = Lowering(laid_out, target, {})
    for group in fuse(laid_out.graph):
        kernel = lowering.kernel(group)
        values = zip(kernel.program.params, kernel.arguments, strict=True)
        weights = tuple(parameter.name for parameter, value in values if value in laid_out.graph.constants)
        yield Step(replace(kernel.program, name=group.name), weights)

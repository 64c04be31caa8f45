"""Tasks: what a model has to compute, each with all ways to compute it.

A *route* is one way: naive programs that run one after the other. A convolution has a route for each alternative, in
blocks or plain, so that algorithm and layout are chosen by measurement as well; any other kernel has one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.base.exact import Exact
from tilewright.base.numerics import Math
from tilewright.base.target import Target
from tilewright.graph import Graph, Node
from tilewright.kernels.relayout import blocked
from tilewright.loops.program import Program
from tilewright.passes.alternatives import Alternative, Ways, rewrite
from tilewright.passes.blocks import Reads, can_be_blocked, width_of
from tilewright.passes.choose import Choices
from tilewright.passes.flatten import flatten_reductions
from tilewright.passes.fuse import fuse
from tilewright.passes.layout import LaidOut
from tilewright.passes.lower import Lowering

CONVOLUTIONS = frozenset({"Conv", "PhaseConv"})


@dataclass(frozen=True, slots=True)
class Route:
    """One way to compute a task. ``name`` says which alternative it is."""

    name: str
    kernels: tuple[Program, ...]


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
            key = (*_form(node), _name(chosen))
            known = found.get(key)
            found[key] = _task(node, choices.graph, chosen, target, math) if known is None else _once_more(known)
    return tuple(found.values())


def _once_more(task: Task) -> Task:
    return replace(task, weight=task.weight + 1)


def _form(node: Node) -> tuple[object, ...]:
    """What a node computes, whatever its values are called."""
    shapes = [None if value is None else (value.dtype, value.shape) for value in node.inputs]
    return node.op.name, Exact(node.attributes), tuple(shapes)


def _task(node: Node, graph: Graph, chosen: Alternative, target: Target, math: Math) -> Task:
    ways = Ways(graph.constants, graph.names(), target, math).of(node, ())
    first = [way for way in ways if _name(way) == _name(chosen)]
    others = [way for way in ways if _name(way) != _name(chosen)]
    alone = _alone(node, graph)
    return Task(node.source, tuple(_route(alone, way, target) for way in [*first, *others]), 1)


def _name(way: Alternative) -> str:
    """The alternative without what it is estimated to cost."""
    return str(way).rpartition(",")[0]


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
    laid_out = flatten_reductions(LaidOut(rewritten, layouts))
    return Route(_name(way), tuple(_kernels(laid_out, target)))


def _kernels(laid_out: LaidOut, target: Target) -> Iterator[Program]:
    lowering = Lowering(laid_out, target, {})
    for group in fuse(laid_out.graph):
        yield replace(lowering.kernel(group).program, name=group.name)

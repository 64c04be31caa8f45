"""Routes: the kernels of one way to compute a single node, for estimates and measurements."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilewright.graph import Array, Graph, Node, Value
from tilewright.kernels.relayout import blocked
from tilewright.loops.program import Program
from tilewright.passes.alternatives.api import Facts, Way, computed
from tilewright.passes.blocks import Reads, can_be_blocked, width_of
from tilewright.passes.flatten import flatten_reductions
from tilewright.passes.fuse import fuse
from tilewright.passes.layout import LaidOut
from tilewright.passes.lower import Lowering
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class Step:
    """A kernel of a route, and which of its inputs are weights."""

    naive: Program
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """Kernels that run in sequence. ``name``: of the way."""

    name: str
    steps: tuple[Step, ...]

    @property
    def kernels(self) -> tuple[Program, ...]:
        """Their naive programs."""
        return tuple(step.naive for step in self.steps)


def route(node: Node, way: Way, facts: Facts) -> Route:
    """The kernels of ``node`` computed by ``way``.

    The result has the layout of the way; so have inputs, or by default that of the result, as usual in a model. Raises
    ``Unsupported`` for nodes without a program.
    """
    graph, target = _alone(node, facts.constants), facts.target
    result = node.outputs[0]
    made = computed(graph, {result: way}, graph.names())
    stored = set(made.in_blocks)
    for data in graph.inputs[:1]:
        follows = way.reads is Reads.AS_THEY_ARE and way.is_blocked and can_be_blocked(data, target)
        if follows or way.reads in (Reads.BLOCKED, Reads.RATHER_BLOCKED):
            stored.add(data)
    layouts = {value: blocked(len(value.shape), width_of(value, facts.blocks)) for value in stored}
    laid_out = LaidOut(made.graph, layouts, narrow=facts.narrow.multiplying(made.narrow, made.rounded))
    return Route(way.name, tuple(steps_of(flatten_reductions(laid_out), target)))


def steps_of(laid_out: LaidOut, target: Target) -> Iterator[Step]:
    """The kernels of a graph."""
    lowering = Lowering(laid_out, target, {})
    for group in fuse(laid_out.graph):
        kernel = lowering.kernel(group)
        values = zip(kernel.program.params, kernel.arguments, strict=True)
        weights = tuple(parameter.name for parameter, value in values if value in laid_out.graph.constants)
        yield Step(replace(kernel.program, name=group.name), weights)


def _alone(node: Node, constants: Mapping[Value, Array]) -> Graph:
    """A graph of one node."""
    read = [value for value in node.inputs if value is not None]
    inputs = tuple(dict.fromkeys(value for value in read if value not in constants))
    own = {value: constants[value] for value in read if value in constants}
    return Graph(node.op.name, inputs, node.outputs, (node,), own)

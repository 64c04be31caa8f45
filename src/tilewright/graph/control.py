"""Operators with graphs inside: branches and loops that are decided when the model runs.

The bodies read values around them by name: these are inputs of the body, and of the node. Run-time extents around a
body are known in it; those that it reads off data are its own.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from tilewright.graph.ir import Graph, Node, Value
from tilewright.ops.hosted import READ_SIZES, HostOperator
from tilewright.ops.operator import Function
from tilewright.symbolic.expr import Extent, Var
from tilewright.tensor import build as te
from tilewright.tensor.ir import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Control(HostOperator):
    """A branch or a loop. ``sizes``: the extents of its results that are known only when it has run."""

    sizes: tuple[Extent, ...]

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    @abstractmethod
    def bodies(self) -> tuple[Graph, ...]:
        """Its graphs."""

    @property
    def own(self) -> tuple[Extent, ...]:
        """The extents of its bodies' inputs that only the bodies know."""
        return ()

    @abstractmethod
    def around(self, bodies: Sequence[Graph]) -> Self:
        """The same with other ``bodies``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(Control):
    """One of two bodies, by the first input of the node, one bool. The other inputs are what the bodies read."""

    then: Graph = field(compare=False)
    otherwise: Graph = field(compare=False)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def bodies(self) -> tuple[Graph, ...]:
        return (self.then, self.otherwise)

    def around(self, bodies: Sequence[Graph]) -> Self:
        then, otherwise = bodies
        return replace(self, then=then, otherwise=otherwise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeat(Control):
    """A body, again and again: ONNX's Loop.

    The node's inputs are the most steps, the first condition, ``states`` values, and what the body reads. The first
    inputs of the body are the number of the step, the condition, and the states; its outputs are the next condition,
    the next states, and elements of the further results, which are stacked. ``changing``: the extents of states that
    may change from step to step.
    """

    body: Graph = field(compare=False)
    states: int
    changing: tuple[Extent, ...]

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def bodies(self) -> tuple[Graph, ...]:
        return (self.body,)

    @property
    def own(self) -> tuple[Extent, ...]:
        return self.changing

    def around(self, bodies: Sequence[Graph]) -> Self:
        (body,) = bodies
        return replace(self, body=body)


def typed(results: Sequence[Value]) -> Function:
    """A te function with results of the types of ``results``."""

    def types(*inputs: Tensor) -> tuple[Tensor, ...]:
        del inputs
        return tuple(te.placeholder(value.shape, value.dtype) for value in results)

    return types


def made_by(node: Node) -> tuple[Extent, ...]:
    """The run-time extents that are known only when ``node`` has run."""
    if isinstance(node.op, Control):
        return node.op.sizes
    return tuple(v for v in node.dims if isinstance(v, Extent)) if node.op is READ_SIZES else ()


def free_extents(part: Graph | Node) -> frozenset[Extent]:
    """The run-time extents on which a graph, or the bodies of a node, depend, and which must be known before."""
    if isinstance(part, Node):
        bodies = part.op.bodies if isinstance(part.op, Control) else ()
        own = part.op.own if isinstance(part.op, Control) else ()
        return frozenset[Extent]().union(*map(free_extents, bodies)) - frozenset(own)
    found = _mentioned(part).union(*map(free_extents, part.nodes))
    return found - {extent for node in part.nodes for extent in made_by(node)}


def _mentioned(graph: Graph) -> frozenset[Extent]:
    """The extents in shapes, attributes and conditions of ``graph``, without those in bodies."""
    values = (*graph.inputs, *graph.outputs, *(value for node in graph.nodes for value in node.outputs))
    found: set[Var] = {v for value in values for extent in value.shape for v in extent.variables}
    found.update(v for node in graph.nodes for v in node.dims)
    found.update(v for limit in graph.limits for v in limit.value.variables)
    return frozenset(v for v in found if isinstance(v, Extent))

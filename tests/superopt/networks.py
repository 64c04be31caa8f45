"""Small graphs, written as one writes networks."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import f32
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.symbolic.expr import Expr, as_expr

Array = NDArray[np.generic]


class Net:
    """Makes a graph. Weights of one name are the same numbers in every graph."""

    def __init__(self) -> None:
        self.inputs: list[Value] = []
        self.constants: dict[Value, Array] = {}
        self.nodes: list[Node] = []

    def x(self, name: str, *shape: int | Expr) -> Value:
        """An input."""
        value = Value(name, f32, tuple(map(as_expr, shape)))
        if value not in self.inputs:
            self.inputs.append(value)
        return value

    def w(self, name: str, *shape: int) -> Value:
        """A weight."""
        random = np.random.default_rng(sum(name.encode()))
        return self.constant(name, random.standard_normal(shape).astype(np.float32))

    def positive(self, name: str, *shape: int) -> Value:
        """A weight of positive numbers."""
        random = np.random.default_rng(sum(name.encode()))
        return self.constant(name, random.uniform(0.5, 1.5, shape).astype(np.float32))

    def number(self, value: float) -> Value:
        """A constant of rank 0."""
        return self.constant(f"number {value}", np.asarray(value, np.float32))

    def constant(self, name: str, array: Array) -> Value:
        value = Value(name, f32, tuple(map(as_expr, array.shape)))
        self.constants.setdefault(value, array)
        return value

    def __call__(self, op: str, *operands: Value, name: str = "", **attributes: Attribute) -> Value:
        """The first result of an operator; of a new name, if it has none."""
        made = make_node(require(op), operands, [name or f"{op.lower()}{len(self.nodes)}"], attributes)
        self.nodes.append(made)
        return made.outputs[0]

    def graph(self, *outputs: Value) -> Graph:
        return Graph("net", tuple(self.inputs), outputs, tuple(self.nodes), self.constants)


Builder = Callable[[Net], None]


def graph_of(build: Callable[[Net], None]) -> Graph:
    """The graph that ``build`` makes; its outputs are the values whose names begin with ``y``."""
    net = Net()
    build(net)
    made = {value.name: value for node in net.nodes for value in node.outputs}
    return net.graph(*(made[name] for name in sorted(made) if name.startswith("y")))

"""What the raising of quantized models shares: the graph under construction, and bytes with their scales."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from tilewright.base.dtypes import f32, from_numpy, i8, u8
from tilewright.base.names import Names
from tilewright.graph import Array, Graph, Node, Value
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import const

_DEQUANTIZE = require("DequantizeLinear")


@dataclass(slots=True)
class Making:
    """The nodes and constants of the new graph, and how values are computed in the old one."""

    graph: Graph
    constants: dict[Value, Array] = field(init=False)
    names: Names = field(init=False)
    producers: Mapping[Value, Node] = field(init=False)
    consumers: Mapping[Value, Sequence[Node]] = field(init=False)
    leaving: frozenset[Value] = field(init=False)
    nodes: list[Node] = field(default_factory=list[Node])

    def __post_init__(self) -> None:
        self.constants, self.names = dict(self.graph.constants), self.graph.names()
        self.producers, self.consumers = self.graph.producers(), self.graph.consumers()
        self.leaving = frozenset(self.graph.outputs)

    def made(self) -> Graph:
        """The new graph."""
        return replace(self.graph, nodes=tuple(self.nodes), constants=self.constants)

    def constant(self, like: str, array: Array) -> Value:
        """A new constant."""
        value = Value(self.names.fresh(like), from_numpy(array.dtype), tuple(map(const, array.shape)))
        self.constants[value] = array
        return value

    def readers(self, value: Value) -> Sequence[Node]:
        """The nodes that read ``value``; none if it leaves the graph, where nothing may replace it."""
        return () if value in self.leaving else self.consumers.get(value, ())


def producer_of(value: Value | None, making: Making) -> Node | None:
    """What computes ``value``."""
    return None if value is None else making.producers.get(value)


def is_scalar(value: Value | None) -> bool:
    """Whether ``value`` has one element."""
    shape = None if value is None else static(value.shape)
    return shape is not None and prod(shape) == 1


@dataclass(frozen=True, slots=True)
class Coded:
    """Quantized elements, with one scale and zero point for all."""

    bytes: Value
    scale: Value
    zero: Value | None

    def has(self, scale: Value | None, zero: Value | None) -> bool:
        """Whether these are its parameters."""
        return (self.scale, self.zero) == (scale, zero)


def coded_by(node: Node | None) -> Coded | None:
    """What ``node`` dequantizes, if all has one scale."""
    if node is None or node.op != _DEQUANTIZE or node.outputs[0].dtype != f32:
        return None
    source, scale, zero = (*node.inputs, None)[:3]
    if source is None or scale is None or source.dtype not in (u8, i8) or scale.dtype != f32:
        return None
    is_one = is_scalar(scale) and (zero is None or is_scalar(zero))
    return Coded(source, scale, zero) if is_one and not dict(node.attributes).get("block_size") else None


def is_positive(scale: Value, making: Making) -> bool:
    """Whether the scale is known and positive, and bytes times it are exact to a few units in the last place."""
    array = making.constants.get(scale)
    if array is None:
        return False
    exact = array.astype(np.float64)
    return bool(np.all((exact >= np.finfo(np.float32).tiny) & (exact <= _LARGEST_SCALE)))


_LARGEST_SCALE = 2.0**100
"""All bytes times it are finite."""

"""Which values of a graph are quantized if certain layers are, and who reads them so.

1. The activations of a quantized layer, by that layer.
2. The result of a quantized convolution, after an activation that a quantizer absorbs (Relu, Clip), by all its
   readers: runtimes compute such convolutions in integers.
3. What moves elements or selects them (reshape, transpose, maximum pooling) before a quantized value: it works on
   integers with the same scale.
4. The operands of what combines values (residual additions, concatenations, other pooling) before a quantized value, if
   all are quantized, or are such combinations of quantized values.

All else reads the float values. A value is quantized once, whoever reads it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.dtypes import f32
from tilewright.graph import Graph, Node, Value
from tilewright.ops import Trait
from tilewright.quantization.layers import Layer

Operand = tuple[Value, int]
"""An operand of a node: the first output of the node, and the position."""

_ABSORBED = frozenset({"Relu", "Clip"})
"""Operators that only cut off what is outside of a range: so does the quantization after them."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The result. ``scaled_as``: the quantized values, each with the value whose scale and zero point it shares.

    ``readers``: the operands that read a quantized value.
    """

    scaled_as: Mapping[Value, Value]
    readers: frozenset[Operand]


def place(graph: Graph, layers: Sequence[Layer]) -> Placement:
    """The placement for the quantized ``layers`` of ``graph``. That of fewer layers is a part of it."""
    placing = _Placing(graph)
    for layer in layers:
        placing.layer(layer)
    placing.combinations()
    return placing.placement()


class _Placing:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._producers = graph.producers()
        self._consumers = graph.consumers()
        self._scaled_as: dict[Value, Value] = {}
        self._readers: set[Operand] = set()

    def placement(self) -> Placement:
        roots = {value: self._root(value) for value in self._scaled_as}
        return Placement(roots, frozenset(self._readers))

    def layer(self, layer: Layer) -> None:
        """Rules 1 and 2, and 3 for what they quantize."""
        for position in layer.data:
            self._reads(layer.node, position)
        if layer.node.op.has(Trait.SUMS_CHANNELS):
            result = self.after_absorbed(layer.result)
            if result not in self._graph.outputs and result in self._consumers:
                self._quantize(result)
                self._readers.update(self._operands_that_read(result))

    def combinations(self) -> None:
        """Rule 4: forwards for what is possible, then backwards from what is quantized."""
        found = [(node, operands) for node in self._graph.nodes if (operands := self._combined(node))]
        possible = set(self._scaled_as)
        for node, operands in found:
            if possible.issuperset(operands.values()):
                possible.add(self.after_absorbed(node.outputs[0]))
        for node, operands in reversed(found):
            if self.after_absorbed(node.outputs[0]) in self._scaled_as and possible.issuperset(operands.values()):
                for position in operands:
                    self._reads(node, position)

    def _combined(self, node: Node) -> dict[int, Value]:
        """The activations that ``node`` combines, as runtimes do on integers, by position; none if it does not."""
        read = {at: value for at, value in enumerate(node.inputs) if value is not None and self._is_float(value)}
        several = node.op.has(Trait.ELEMENTWISE) or node.op.has(Trait.MOVES)
        return read if (several and len(read) > 1) or (node.op.has(Trait.POOLS) and len(read) == 1) else {}

    def after_absorbed(self, value: Value) -> Value:
        """``value``, or the result of the absorbed activation that alone reads it."""
        readers = self._consumers.get(value, [])
        is_alone = len(readers) == 1 and value not in self._graph.outputs
        return readers[0].outputs[0] if is_alone and readers[0].op.name in _ABSORBED else value

    def _reads(self, node: Node, position: int) -> None:
        value = node.inputs[position]
        if value is not None:
            self._readers.add((node.outputs[0], position))
            self._quantize(value)

    def _quantize(self, value: Value) -> None:
        """Rule 3: on the way back over nodes that only move elements, which keep the scale."""
        while value not in self._scaled_as:
            self._scaled_as[value] = value
            node = self._producers.get(value)
            source = None if node is None else self._moved(node)
            if node is None or source is None:
                return
            self._readers.add((node.outputs[0], 0))
            self._join(value, source)
            value = source

    def _join(self, value: Value, source: Value) -> None:
        self._scaled_as[value] = self._root(source) if source in self._scaled_as else source

    def _root(self, value: Value) -> Value:
        while (above := self._scaled_as.get(value, value)) != value:
            value = above
        return value

    def _moved(self, node: Node) -> Value | None:
        """The one float operand whose elements are those of the result of ``node``."""
        moves = (node.op.has(Trait.MOVES) and not node.op.has(Trait.ELEMENTWISE)) or node.op.name == "MaxPool"
        source = node.inputs[0]
        others = [v for v in node.inputs[1:] if v is not None and v.dtype == f32]
        return source if moves and source is not None and self._is_float(source) and not others else None

    def _is_float(self, value: Value) -> bool:
        return value.dtype == f32 and value not in self._graph.constants

    def _operands_that_read(self, value: Value) -> Iterable[Operand]:
        for node in self._consumers.get(value, []):
            yield from ((node.outputs[0], at) for at, operand in enumerate(node.inputs) if operand == value)

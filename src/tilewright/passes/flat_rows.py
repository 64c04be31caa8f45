"""Multiplies the rows of many short matrices with one matrix as rows of a single one.

``[n, m, k]`` times ``[k, c]`` is computed matrix by matrix, in tiles of some of the ``m`` rows. If there are few, tiles
are small. As rows of ``[n * m, k]`` they fill whole tiles. What is computed element
by element from the result is computed in that shape, too, so that it stays in one kernel with the product. Reshapes
cost nothing, as kernels read the same memory in another shape.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import prod

from tilewright.base.names import Names
from tilewright.graph import Node, Value, make_node
from tilewright.ops import Trait
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.passes.flatten import reshaped
from tilewright.passes.layout import LaidOut

_MATMUL, _RESHAPE = require("MatMul"), require("Reshape")
FEW_ROWS = 16
"""Rows of a matrix that are more than those of one tile."""


def flatten_rows(laid_out: LaidOut) -> LaidOut:
    """``laid_out`` with products of many short matrices as products of one, if equivalent."""
    flattening = _Flattening(laid_out)
    nodes = tuple(new for node in laid_out.graph.nodes for new in flattening.nodes(node))
    nodes += tuple(flattening.as_they_were(laid_out.graph.outputs, ""))
    copies = {**laid_out.copies, **flattening.copies}
    return replace(laid_out, graph=replace(laid_out.graph, nodes=nodes), copies=copies)


@dataclass(slots=True)
class _Flattening:
    """One pass. ``flat``: values that are matrices of all rows now."""

    laid_out: LaidOut
    flat: dict[Value, Value] = field(default_factory=dict[Value, Value])
    copies: dict[str, str] = field(default_factory=dict[str, str])
    restored: set[Value] = field(default_factory=set[Value])
    readers: dict[Value, list[Node]] = field(default_factory=dict[Value, list[Node]])
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.names = self.laid_out.graph.names()
        for node in self.laid_out.graph.nodes:
            for value in {value for value in node.inputs if value is not None}:
                self.readers.setdefault(value, []).append(node)

    def nodes(self, node: Node) -> Iterator[Node]:
        """``node``, or its equivalent over rows, with the reshapes that it needs."""
        if node.op == _MATMUL and self._has_short_rows(node):
            data, matrix = node.inputs
            yield from self._over_rows(node, [data], [matrix])
        elif set(node.inputs) & self.flat.keys() and self._is_over_rows(node):
            yield from self._over_rows(node, list(node.inputs), [])
        elif node.op == _RESHAPE and node.inputs[0] in self.flat and (shape := static(node.outputs[0].shape)):
            yield reshaped(self.flat[node.inputs[0]], shape, node.outputs[0].name, node.source)
        else:
            yield from self.as_they_were(node.inputs, node.source)
            yield node

    def as_they_were(self, values: Iterable[Value | None], source: str) -> Iterator[Node]:
        """Reshapes of those of ``values`` that are matrices of all rows."""
        for value in values:
            if value in self.flat and value not in self.restored:
                self.restored.add(value)
                yield reshaped(self.flat[value], static(value.shape) or (), value.name, source)

    def _has_short_rows(self, node: Node) -> bool:
        data, matrix = node.inputs
        assert data is not None and matrix is not None, "a product has two factors"
        shape, result = static(data.shape), node.outputs[0]
        if shape is None or static(matrix.shape) is None or {data, matrix, result} & self.laid_out.layouts.keys():
            return False
        is_short = len(shape) > 2 and 1 < shape[-2] < FEW_ROWS and prod(shape[:-2]) > 1 and prod(shape) > 0
        return is_short and len(matrix.shape) == 2 and self._stays_in_rows(result)

    def _stays_in_rows(self, value: Value) -> bool:
        """Whether all that is computed element by element from ``value``, in one kernel with it, is over rows."""
        elementwise = [node for node in self.readers.get(value, ()) if node.op.has(Trait.ELEMENTWISE)]
        return all(self._is_over_rows(node) and self._stays_in_rows(node.outputs[0]) for node in elementwise)

    def _is_over_rows(self, node: Node) -> bool:
        """Whether ``node`` computes each element from those at its place, and from a row that is the same for all."""
        if not node.op.has(Trait.ELEMENTWISE) or len(node.outputs) != 1:
            return False
        if {node.outputs[0], *node.inputs} & self.laid_out.layouts.keys():
            return False
        shapes = [() if value is None else static(value.shape) for value in node.inputs]
        shape = static(node.outputs[0].shape)
        return all(own is not None and (own == shape or prod(own[:-1]) == 1) for own in shapes)

    def _over_rows(self, node: Node, data: list[Value | None], others: list[Value | None]) -> Iterator[Node]:
        """``node`` with ``data``, those of more than one dimension, as matrices of all rows."""
        rows: list[Value | None] = []
        for value in data:
            shape = () if value is None else static(value.shape) or ()
            if value is not None and len(shape) > 1 and value not in self.flat:
                name = self._fresh(value, "rows")
                flat = reshaped(value, (prod(shape[:-1]), shape[-1]), name, node.source)
                yield flat
                rows.append(flat.outputs[0])
            else:
                rows.append(value if value is None else self.flat.get(value, value))
        result = node.outputs[0]
        made = make_node(node.op, [*rows, *others], [self._fresh(result, "flat")], dict(node.attributes), node.source)
        self.flat[result] = made.outputs[0]
        yield made

    def _fresh(self, value: Value, suffix: str) -> str:
        """A name for ``value`` as a matrix, which is stored in the same dtype."""
        name = self.names.fresh(f"{value.name}.{suffix}")
        self.copies[name] = self.laid_out.copies.get(value.name, value.name)
        return name

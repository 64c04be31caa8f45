"""Sizes that are read off data when the model runs: they become extents, and the model is cut where they are read
(``passes.parts``).

What follows from sizes that have been read is derived from these, so that equal sizes are known to be equal.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tilewright.base.dtypes import i64
from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.base.exact import Exact
from tilewright.frontend.onnx.read.symbolic_values import SymbolicValues
from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.hosted import READ_SIZES
from tilewright.ops.operator import require
from tilewright.symbolic.expr import ONE, Binary, Expr, Extent
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.sharing import size_of
from tilewright.symbolic.traversal import walk
from tilewright.tensor.elements import Elements

_LONGEST = 8
"""Maximum operations and operands of an extent that is known late, unless it is a product."""
_DEPTH = 8
"""How many nodes are followed back from a value that is read as sizes."""


@dataclass(frozen=True, slots=True)
class LateSizes:
    """The sizes of one model. ``nodes``: its graph so far, to which it adds; ``fresh``: makes names."""

    symbolic: SymbolicValues
    constants: Mapping[Value, Array]
    nodes: list[Node]
    fresh: Callable[[], str]
    _read: dict[object, Value] = field(default_factory=dict[object, Value])
    """Values that have been read, by what computes them."""

    def elements(self, value: Value) -> Elements | None:
        """The elements of ``value``, if it is a small constant, or they depend on sizes only that are known."""
        known = self.symbolic.elements(value, self.constants)
        return self._followed(value, _DEPTH) if known is None and self.symbolic.has_late else known

    def sizes(self, value: Value, place: str) -> Elements:
        """The same; what is data is read as sizes."""
        known = self._followed(value, _DEPTH)
        if known is None:
            same = self._read.setdefault(self._key(value, _DEPTH), value)
            known = self.elements(same) or self._read_off(value, place)
            self.symbolic.define_made([value], [known])
        return known

    def shortened(self, value: Value, place: str) -> Value:
        """``value`` with extents of a few operations, of those that are known late: longer ones are read as new ones.

        Kernels are slow to make, and to run, if their extents are sums of many sizes.
        """
        if not self.symbolic.has_late:
            return value
        shape = tuple(self._short_extent(extent, place) for extent in value.shape)
        if shape == value.shape:
            return value
        node = make_node(require("Declared"), [value], [self.fresh()], {"shape": shape}, place)
        self.nodes.append(node)
        return node.outputs[0]

    def misfit(self, text: str, inputs: Iterable[Value | None]) -> InvalidModel | UnsupportedModel:
        """The error for inputs that do not fit, as far as is known: sizes that are known late may fit in a run."""
        extents = (extent for value in inputs if value is not None for extent in value.shape)
        return UnsupportedModel(text) if any(map(self.symbolic.is_late, extents)) else InvalidModel(text)

    def _short_extent(self, extent: Expr, place: str) -> Expr:
        if size_of(extent).nodes <= _LONGEST or not self.symbolic.is_late(extent) or _is_product(extent):
            return extent
        if extent not in self.symbolic.named:
            counted = Value(self.fresh(), i64, (ONE,))
            self.symbolic.define(counted, (extent,))
            self.nodes.append(self.symbolic.node(counted, place))
            (self.symbolic.named[extent],) = self._read_off(counted, place)
        return self.symbolic.named[extent]

    def _read_off(self, value: Value, place: str) -> tuple[Extent, ...]:
        """The elements of ``value`` as extents, read between two parts of the model."""
        extents = self.symbolic.read_off(value, place)
        names = [self.fresh() for _ in extents]
        self.nodes.append(make_node(READ_SIZES, [value], names, {"sizes": extents}, place))
        return extents

    def _followed(self, value: Value, depth: int) -> Elements | None:
        """The elements of ``value``, if they follow from sizes that have been read since it was made."""
        known = self.symbolic.elements(value, self.constants)
        node = self._producer(value) if known is None and depth else None
        if node is None:
            return known
        inputs = [each for each in node.inputs if each is not None]
        if not inputs or any(self._followed(each, depth - 1) is None for each in inputs):
            return None
        found = self.symbolic.results(node, self.constants)
        if found is None:
            return None
        self.symbolic.define_made(node.outputs, found.outputs)
        return self.symbolic.elements(value, self.constants)

    def _producer(self, value: Value) -> Node | None:
        return next((node for node in reversed(self.nodes) if value in node.outputs), None)

    def _key(self, value: Value, depth: int) -> object:
        """Equal for values that are computed alike."""
        node = self._producer(value) if depth else None
        if node is None:
            return value
        inputs = tuple(None if each is None else self._key(each, depth - 1) for each in node.inputs)
        return (node.op, inputs, Exact(node.attributes), node.outputs.index(value))


def _is_product(extent: Expr) -> bool:
    operations = (part.op for part in walk(extent) if isinstance(part, Binary))
    return all(operation is BinaryOp.MUL for operation in operations)

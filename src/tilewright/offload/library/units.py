"""What a call of the library computes: a convolution or a product by constant weights, in float32.

A constant bias that is added, and a ``Relu`` or ``Clip`` of the result that nothing else reads, belong to the unit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.base.dtypes import f32
from tilewright.graph import Graph, Node, Value
from tilewright.ops.shapes import static
from tilewright.runtime.library.primitive import Function, Window

Floats = NDArray[np.float32]

_LOWEST, _HIGHEST = (float(limit) for limit in (np.finfo(np.float32).min, np.finfo(np.float32).max))
_PRODUCTS = ("Conv", "MatMul", "Gemm")


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One call. ``nodes``: those of the graph in whose place it is, in order; the last one makes ``result``."""

    function: Function
    nodes: tuple[Node, ...]
    source: Value
    result: Value
    weights: Floats
    bias: Floats | None = None

    @property
    def place(self) -> str:
        """The node of the model that it begins with."""
        return place_of(self.nodes[0])

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of source and result."""
        source, result = static(self.source.shape), static(self.result.shape)
        assert source is not None, "units have known sizes"
        assert result is not None, "units have known sizes"
        return source, result


@dataclass(frozen=True, slots=True)
class Kept:
    """A convolution or product of our own kernels, and why."""

    place: str
    operator: str
    reason: str


def place_of(node: Node) -> str:
    """The name of a node for people."""
    return node.source or node.outputs[0].name


def find_units(graph: Graph) -> tuple[tuple[Unit, ...], tuple[Kept, ...]]:
    """All units of a graph in order, and the convolutions and products that are none."""
    finder = _Finder(graph, graph.consumers())
    found = [finder.found(node) for node in graph.nodes if node.op.name in _PRODUCTS]
    units = tuple(each for each in found if isinstance(each, Unit))
    return units, tuple(each for each in found if isinstance(each, Kept))


@dataclass(frozen=True, slots=True)
class _Finder:
    graph: Graph
    consumers: Mapping[Value, list[Node]]

    def found(self, node: Node) -> Unit | Kept:
        """The unit that begins with ``node``."""
        reason = self._refusal(node)
        made = self._convolution if node.op.name == "Conv" else self._product
        unit = made(node) if reason is None else None
        if unit is None:
            return Kept(place_of(node), node.op.name, reason or "its operands or attributes are not those of a call")
        return self._with_limits(self._with_bias(unit))

    def _refusal(self, node: Node) -> str | None:
        """Why it is none, if that does not depend on the operator."""
        source, weights = node.inputs[:2]
        assert source is not None, "it has operands"
        values = (source, node.outputs[0])
        if any(value.dtype != f32 for value in values):
            return f"it computes in {source.dtype}"
        if weights not in self.graph.constants or source in self.graph.constants:
            return "its weights are no constants"
        if any(static(value.shape) is None or 0 in (static(value.shape) or ()) for value in values):
            return "its sizes are known only at run time, or it is empty"
        return None

    def _convolution(self, node: Node) -> Unit | None:
        source, weights, *rest = node.inputs
        given = dict(node.attributes)
        assert source is not None, "as checked"
        rank = len(source.shape) - 2
        ones, zeros = (1,) * rank, (0,) * 2 * rank
        strides, dilations, pads = (
            _whole(given.get(name), usual) for name, usual in (("strides", ones), ("dilations", ones), ("pads", zeros))
        )
        bias = None if not rest or rest[0] is None else self._array(rest[0])
        if strides is None or dilations is None or pads is None or (rest and rest[0] is not None and bias is None):
            return None
        groups = cast(int, given.get("group", 1))
        window = Window(strides, dilations, pads[:rank], pads[rank:], groups)
        return self._unit(Function(window), node, source, weights, bias)

    def _product(self, node: Node) -> Unit | None:
        """Of ``MatMul``, and of ``Gemm`` without factors."""
        source, weights, *rest = node.inputs
        given = dict(node.attributes)
        assert source is not None, "as checked"
        if given.get("transpose_a") or given.get("alpha", 1.0) != 1.0:
            return None
        bias: Array | None = None
        if rest and rest[0] is not None:
            bias = self._row(rest[0], node.outputs[0])
            if bias is None or given.get("beta", 1.0) != 1.0:
                return None
        return self._unit(Function(None, bool(given.get("transpose_b"))), node, source, weights, bias)

    def _unit(
        self, function: Function, node: Node, source: Value, weights: Value | None, bias: Array | None
    ) -> Unit | None:
        array = None if weights is None else self._array(weights)
        if array is None:
            return None
        unit = Unit(function, (node,), source, node.outputs[0], array, None if bias is None else _floats(bias))
        data, result = unit.shapes
        return unit if function.result(data, array.shape) == result else None

    def _with_bias(self, unit: Unit) -> Unit:
        """A product with the row that is added to it."""
        after = self._next(unit)
        if unit.function.window is not None or unit.bias is not None or after is None or after.op.name != "Add":
            return unit
        other = next((value for value in after.inputs if value is not None and value != unit.result), unit.result)
        row = self._row(other, unit.result)
        if row is None or after.outputs[0].shape != unit.result.shape:
            return unit
        return replace(unit, nodes=(*unit.nodes, after), result=after.outputs[0], bias=_floats(row))

    def _with_limits(self, unit: Unit) -> Unit:
        """A unit with the ``Relu`` or ``Clip`` of its result."""
        after = self._next(unit)
        limits = None if after is None or after.inputs[0] != unit.result else self._limits(after)
        if after is None or limits is None:
            return unit
        function = replace(unit.function, low=limits[0], high=limits[1])
        return replace(unit, function=function, nodes=(*unit.nodes, after), result=after.outputs[0])

    def _limits(self, node: Node) -> tuple[float, float | None] | None:
        """The least and the greatest result of a node; None if it is no limit, or depends on data."""
        if node.op.name == "Relu":
            return 0.0, None
        if node.op.name != "Clip":
            return None
        given = (*node.inputs[1:], None, None)
        low, high = self._limit(given[0], _LOWEST), self._limit(given[1], _HIGHEST)
        return None if low is None or high is None else (low, high)

    def _limit(self, value: Value | None, usual: float) -> float | None:
        array = None if value is None else self._array(value)
        return usual if value is None else None if array is None else float(array.item())

    def _next(self, unit: Unit) -> Node | None:
        """The node that alone reads the result."""
        readers = self.consumers.get(unit.result, [])
        return readers[0] if len(readers) == 1 and unit.result not in self.graph.outputs else None

    def _array(self, value: Value) -> Floats | None:
        """A constant of float32."""
        array = self.graph.constants.get(value)
        return None if array is None or array.dtype != np.float32 else _floats(array)

    def _row(self, value: Value, result: Value) -> Floats | None:
        """A constant that is added to each row of a result, as a vector."""
        array, columns = self._array(value), (static(result.shape) or (0,))[-1]
        if array is None or array.size not in (1, columns) or array.ndim > len(result.shape):
            return None
        if array.size == 1 or array.shape[-1] == columns == prod(array.shape):
            return _floats(np.broadcast_to(array.reshape(-1), (columns,)))
        return None


def _floats(array: Array) -> Floats:
    return np.ascontiguousarray(array, np.float32)


def _whole(given: object, usual: Sequence[int]) -> tuple[int, ...] | None:
    """The numbers of an attribute; None if some are known only at run time."""
    numbers = usual if given is None else cast(Sequence[object], given)
    found = tuple(number for number in numbers if isinstance(number, int))
    return found if len(found) == len(numbers) else None

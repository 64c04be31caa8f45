"""Scales and shifts by channel, folded into the convolution before them.

Batch normalization with known statistics is ``a * x + b`` for each channel (Ioffe and Szegedy, 2015). After a
convolution that nobody else reads, ``a`` goes into its weights and ``b`` into its bias; elsewhere the multiplication
and the addition are left, without the square root and the division. Where a folded number would not be finite (a
variance of 0 without an epsilon), nodes are left alone: ``inf * x - inf`` is NaN where ``inf * (x - mean)`` is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.base.names import Names
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops import Operator
from tilewright.ops.operator import require
from tilewright.symbolic.expr import const

_WEIGHTED = {"Conv": 0, "PhaseConv": 0}
"""Operators whose weight can take up a scale, and the dimension of the weight that is the result's channel."""


def fold_affine(graph: Graph) -> Graph:
    """``graph`` with batch normalizations as scale and shift, in the weights of convolutions where possible."""
    return _Folding(graph).folded()


@dataclass(frozen=True, slots=True)
class _Affine:
    """``scale * x + shift`` by channel; in float64, as the rounding of both would add up."""

    source: Value
    scale: NDArray[np.float64]
    shift: NDArray[np.float64]


@dataclass(slots=True)
class _Folding:
    """One pass over a graph: nodes that are kept so far, by what they make, and the constants."""

    graph: Graph
    nodes: dict[Value, Node] = field(default_factory=dict[Value, Node])
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.names = self.graph.names()

    def folded(self) -> Graph:
        self.constants.update(self.graph.constants)
        readers = self.graph.consumers()
        for node in self.graph.nodes:
            affine = self._affine(node)
            made = None if affine is None else self._into_weights(node, affine, readers)
            if made is None and affine is not None and node.op.name == "BatchNormalization":
                made = self._multiply_add(node, affine)
            self.nodes.update((each.outputs[0], each) for each in made or [node])
        return replace(self.graph, nodes=tuple(self.nodes.values()), constants=self.constants)

    def _into_weights(self, node: Node, affine: _Affine, readers: Mapping[Value, list[Node]]) -> list[Node] | None:
        """The convolution before ``node`` with what that does to its result, if it can go into the weights."""
        before = self.nodes.get(affine.source)
        if before is None or not self._takes_up(before) or not self._is_only_reader(affine.source, readers):
            return None
        merged = self._merged(before, affine, node)
        if merged is not None:
            del self.nodes[affine.source]
        return merged

    def _is_only_reader(self, value: Value, readers: Mapping[Value, list[Node]]) -> bool:
        return len(readers.get(value, ())) == 1 and value not in self.graph.outputs

    def _takes_up(self, node: Node) -> bool:
        """Whether ``node`` has constant weights (and bias) into which a scale and a shift can go."""
        parameters = [v for v in node.inputs[1:] if v is not None]
        return node.op.name in _WEIGHTED and all(v in self.constants for v in parameters)

    def _affine(self, node: Node) -> _Affine | None:
        """What ``node`` does, if it scales and shifts channels by constants."""
        source = node.inputs[0] if node.inputs else None
        if source is None or not source.dtype.is_float or len(source.shape) < 3 or len(node.outputs) != 1:
            return None
        if node.op.name == "BatchNormalization":
            return self._batch_normalization(node, source)
        if node.op.name not in ("Mul", "Add") or node.inputs[0] == node.inputs[1]:
            return None
        for data, other in (node.inputs, node.inputs[::-1]):
            vector = self._by_channel(other, node.outputs[0]) if data in self.nodes else None
            if data is not None and vector is not None and data.shape == node.outputs[0].shape:
                return (
                    _Affine(data, vector, np.zeros_like(vector))
                    if node.op.name == "Mul"
                    else _Affine(data, np.ones_like(vector), vector)
                )
        return None

    def _batch_normalization(self, node: Node, source: Value) -> _Affine | None:
        parameters = [self.constants.get(v) for v in node.inputs[1:] if v is not None]
        if len(parameters) != 4 or any(array is None for array in parameters):
            return None
        scale, bias, mean, variance = (np.asarray(array, np.float64) for array in parameters)
        epsilon = dict(node.attributes).get("epsilon", 1e-5)
        assert isinstance(epsilon, float), "the operator has checked its attributes"
        with np.errstate(all="ignore"):  # what is not finite is left alone
            factor = scale / np.sqrt(variance + epsilon)
            return _Affine(source, factor, bias - mean * factor)

    def _by_channel(self, value: Value | None, result: Value) -> NDArray[np.float64] | None:
        """The constant ``value`` as one number for each channel of ``result``, if it is that."""
        array = None if value is None else self.constants.get(value)
        channels = result.shape[1]
        if array is None or array.ndim > len(result.shape):
            return None
        shape = (1,) * (len(result.shape) - array.ndim) + array.shape
        if any(extent != 1 for position, extent in enumerate(shape) if position != 1) or const(shape[1]) != channels:
            return None
        return array.astype(np.float64).reshape(-1)

    def _merged(self, before: Node, affine: _Affine, node: Node) -> list[Node] | None:
        """The convolution ``before``, which makes what ``node`` made; None if its weights would not be finite."""
        data, weight, bias = (*before.inputs, None)[:3]
        assert weight is not None, "a convolution has a weight"
        axis = _WEIGHTED[before.op.name]
        old = self.constants[weight]
        scale = affine.scale.reshape([-1 if d == axis else 1 for d in range(old.ndim)])
        # In float64, piece by piece: all of it at once would be three passes over memory for large weights.
        with np.errstate(all="ignore"):
            scaled = np.multiply(old, scale, out=np.empty_like(old), dtype=np.float64, casting="unsafe")
            offset = 0.0 if bias is None else self.constants[bias].astype(np.float64)
            shift = offset * affine.scale + affine.shift
        result = node.outputs[0]
        made = self._finite_constants({f"{result.name}.weight": scaled, f"{result.name}.bias": shift}, weight)
        if made is None:
            return None
        source = ", ".join(dict.fromkeys((before.source, node.source)))
        return [replace(before, inputs=(data, *made), outputs=node.outputs, source=source)]

    def _finite_constants(self, arrays: Mapping[str, Array], like: Value) -> list[Value] | None:
        """``arrays`` as constants of the dtype of ``like``; None, and no constants, if that can't hold them."""
        with np.errstate(all="ignore"):
            narrowed = {name: array.astype(like.dtype.numpy, copy=False) for name, array in arrays.items()}
        if not all(bool(np.isfinite(array).all()) for array in narrowed.values()):
            return None
        made = {
            Value(self.names.fresh(name), like.dtype, tuple(map(const, array.shape))): array
            for name, array in narrowed.items()
        }
        self.constants.update(made)
        return list(made)

    def _multiply_add(self, node: Node, affine: _Affine) -> list[Node] | None:
        """``node`` as a multiplication and an addition; None if their operands would not be finite."""
        result = node.outputs[0]
        shape = (-1, *[1] * (len(result.shape) - 2))
        factors = {f"{result.name}.scale": affine.scale, f"{result.name}.shift": affine.shift}
        made = self._finite_constants({name: factor.reshape(shape) for name, factor in factors.items()}, result)
        if made is None:
            return None
        scale, shift = made
        name = self.names.fresh(f"{result.name}.scaled")
        scaled = make_node(_MUL, [affine.source, scale], [name], {}, node.source)
        return [scaled, make_node(_ADD, [scaled.outputs[0], shift], [result.name], {}, node.source)]


_MUL: Operator = require("Mul")
_ADD: Operator = require("Add")

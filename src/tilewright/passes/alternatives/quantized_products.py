"""Products of quantized operands: summed in integers and scaled once, or dequantized and multiplied in f32.

The sum of integers is exact, and its terms of zero points and bias are integers, too. If the result is quantized, one
factor scales the sum to its steps: it is rounded once, as ``QLinearConv`` is. Without dot-product instructions, f32 is
faster than integers, but for filters of single channels.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from tilewright.base.dtypes import f32, i32
from tilewright.cost.kernels import sum_cycles
from tilewright.graph import Node, Value, make_node
from tilewright.ops.operator import Attribute, require
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.alternatives.integer_products import IN_CHANNELS, IN_GROUPS, in_channels, in_groups
from tilewright.passes.blocks import points

_CONVOLUTION, _MATMUL = require("QuantizedConv"), require("QuantizedMatMul")


class Scaled:
    """In integers, where it takes bytes to compute their product."""

    name = "scaled sums of bytes"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op not in (_CONVOLUTION, _MATMUL):
            return
        sums = _of_integers(node, node.outputs[0].name)
        for alternative, make in ((IN_GROUPS, in_groups), (IN_CHANNELS, in_channels)):
            for way in alternative.ways(sums, facts):
                yield Way(self.name, way.cycles, make=partial(_scaled, sums=partial(make, blocks=facts.blocks)))


class Dequantized:
    """In f32, for any operands and target."""

    name = "dequantized"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op in (_CONVOLUTION, _MATMUL):
            weight = node.inputs[3]
            assert weight is not None, "a product has two operands"
            terms = weight.shape[1:] if node.op == _CONVOLUTION else weight.shape[-2:-1]
            products = points(node.outputs[0].shape) * points(terms)
            yield Way(self.name, sum_cycles(products, points(weight.shape), facts.target), make=_dequantized)


SCALED, DEQUANTIZED = Scaled(), Dequantized()


class Sums(Protocol):
    """Adds the nodes that compute a product of integers and add ``addend`` to it."""

    def __call__(self, node: Node, building: Building, *, addend: Value | None) -> None: ...


def _of_integers(node: Node, name: str) -> Node:
    """The product of the integers of ``node``."""
    x, _, x_zero, weight, _, weight_zero = node.inputs[:6]
    op = require("ConvInteger" if node.op == _CONVOLUTION else "MatMulInteger")
    return make_node(op, [x, weight, x_zero, weight_zero], [name], dict(node.attributes), node.source)


def _scaled(node: Node, building: Building, sums: Sums) -> None:
    _Quantized(node, building).scaled(sums)


def _dequantized(node: Node, building: Building) -> None:
    _Quantized(node, building).dequantized()


@dataclass(frozen=True, slots=True)
class _Quantized:
    """Adds the nodes that compute ``node``."""

    node: Node
    building: Building

    def scaled(self, sums: Sums) -> None:
        """The sum of integers, scaled; by one factor to the steps of the result, if all its terms are integers."""
        _, x_scale, _, _, weight_scale, *_ = self.node.inputs
        bias, y_scale, y_zero = self._ending
        addend, bias = (self._by_channel(bias), None) if bias is not None and bias.dtype == i32 else (None, bias)
        product = _of_integers(self.node, self.building.names.fresh(f"{self._result.name}.sums"))
        sums(product, self.building, addend=addend)
        total, factor = product.outputs[0], self._add("Mul", x_scale, weight_scale)
        if bias is None and y_scale is not None:
            factor = self._by_channel(self._add("Div", factor, y_scale))
            self._add("Requantize", total, factor, self._by_channel(y_zero))
        else:
            wide = self._add("Cast", total, to=f32)
            product = self._add("Mul", wide, self._by_channel(factor))
            self._end(product, None if bias is None else self._by_channel(bias))
        self.building.finish(self.node)

    def dequantized(self) -> None:
        """The operands in f32, and their product."""
        x, x_scale, x_zero, weight, weight_scale, weight_zero = self.node.inputs[:6]
        left = self._add("DequantizeLinear", x, x_scale, x_zero)
        axis = 0 if self._is_convolution else -1
        right = self._add("DequantizeLinear", weight, weight_scale, weight_zero, axis=axis)
        bias, *_ = self._ending
        if bias is not None and bias.dtype == i32:
            factor = self._add("Mul", x_scale, weight_scale)
            bias = self._add("Mul", self._add("Cast", bias, to=f32), factor)
        if self._is_convolution:
            self._end(self._add("Conv", left, right, bias, **dict(self.node.attributes)), None)
        else:
            self._end(self._add("MatMul", left, right), bias)
        self.building.finish(self.node)

    def _end(self, product: Value, bias: Value | None) -> None:
        """The product with the constant term, quantized if that is asked for."""
        _, y_scale, y_zero = self._ending
        total = product if bias is None else self._add("Add", product, bias)
        if y_scale is not None:
            self._add("QuantizeLinear", total, y_scale, y_zero)

    @property
    def _result(self) -> Value:
        return self.node.outputs[0]

    @property
    def _is_convolution(self) -> bool:
        return self.node.op == _CONVOLUTION

    @property
    def _ending(self) -> tuple[Value | None, Value | None, Value | None]:
        """The bias, and the scale and zero point of the result."""
        bias, scale, zero = (*self.node.inputs, None, None, None)[6:9]
        return bias, scale, zero

    def _by_channel(self, parameter: Value | None) -> Value | None:
        """One number for all, or one for each channel, so that it broadcasts."""
        rank = len(self._result.shape)
        is_vector = parameter is not None and len(parameter.shape) == 1 and self._is_convolution
        return self._add("Unsqueeze", parameter, axes=tuple(range(1, rank - 1))) if is_vector else parameter

    def _add(self, op: str, *inputs: Value | None, **attributes: Attribute) -> Value:
        return self.building.add(require(op), inputs, self.node, op.lower(), attributes)

"""Products of dequantized operands as ``QuantizedConv`` and ``QuantizedMatMul``, with the quantization of their result.

A ``Relu`` before that is left out where quantizing saturates at 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.base.dtypes import f32, i8, i32, u8
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.passes.quantized_values import Coded, Making, coded_by, is_positive, is_scalar, producer_of
from tilewright.passes.transposed_products import Transposed, transposed
from tilewright.symbolic.expr import const

_QUANTIZE, _DEQUANTIZE, _RELU = map(require, ("QuantizeLinear", "DequantizeLinear", "Relu"))
_CONVOLUTION, _MATMUL, _GEMM, _TRANSPOSE = map(require, ("Conv", "MatMul", "Gemm", "Transpose"))
_PHASES, _PLACES = require("PhaseConv"), require("PhasesToSpace")

LARGEST_SUM = 1 << 31
"""Sums of products of bytes stay below."""
_MOST_OF_TERM = 255 * 255


@dataclass(frozen=True, slots=True)
class _Product:
    """The operands of a product of dequantized values, and the constant term."""

    op: str
    left: Coded
    right: tuple[Value, Value, Value | None]
    bias: Value | None
    attributes: Mapping[str, Attribute]
    places: Mapping[str, Attribute] | None = None
    """Of what brings phases of the result to their places."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """The node that quantizes a product, its scale and its zero point."""

    node: Node
    scale: Value
    zero: Value | None


def with_products(graph: Graph) -> Graph:
    """``graph`` with these products; what they replace remains where other nodes read it."""
    making = Making(graph)
    at_end: dict[Value, tuple[_Product, _Ending]] = {}
    for node in graph.nodes:
        result = node.outputs[0]
        if result in at_end:
            product, ending = at_end[result]
            making.nodes.extend(_made(product, node, making, ending))
            continue
        found = _product(node, making)
        if found is None:
            making.nodes.append(node)
            continue
        ending = _ending(result, making)
        if ending is None:
            making.nodes.extend(_made(found, node, making))
        else:
            at_end[ending.node.outputs[0]] = found, ending
            making.nodes.append(node)
    return making.made()


def _made(product: _Product, node: Node, making: Making, ending: _Ending | None = None) -> Iterator[Node]:
    """The product, with the results of ``node``."""
    left = product.left
    last = () if ending is None else (ending.scale, ending.zero)
    inputs = (left.bytes, left.scale, left.zero, *product.right, _integer_bias(product, making), *last)
    name = node.outputs[0].name
    own = name if product.places is None else making.names.fresh(f"{name}.phases")
    made = make_node(require(product.op), inputs, [own], product.attributes, node.source)
    yield made
    if product.places is not None:
        yield make_node(_PLACES, [made.outputs[0]], [name], product.places, node.source)


def _product(node: Node, making: Making) -> _Product | None:
    if node.op in (_CONVOLUTION, _PHASES):
        found = transposed(node, making.producers)
        return _of_convolution(node, making) if found is None else _of_transposed(node, found, making)
    return _of_matrices(node, making) if node.op in (_MATMUL, _GEMM) else None


def _of_convolution(node: Node, making: Making) -> _Product | None:
    if node.op != _CONVOLUTION:
        return None
    data, weight, bias = (*node.inputs, None)[:3]
    left, right = coded_by(producer_of(data, making)), _parameters(weight, 0, making)
    if left is None or right is None or not _is_bounded(right[0].shape[1:]):
        return None
    return _Product("QuantizedConv", left, right, bias, dict(node.attributes))


def _of_transposed(node: Node, found: Transposed, making: Making) -> _Product | None:
    """All phases as filters of one convolution."""
    data, _, bias = (*node.inputs, None)[:3]
    left, right = coded_by(producer_of(data, making)), _parameters(found.weight, 1, making)
    if left is None or right is None or not _is_bounded(right[0].shape[:1] + tuple(map(const, found.taps))):
        return None
    bias = _integer_bias(_Product("QuantizedConv", left, right, bias, {}), making)
    weight, *by_filter = (*right, bias)
    if any(value is not None and value not in making.constants for value in by_filter):
        return None
    filters = making.constant(f"{weight.name}.phases", found.filters(making.constants[weight]))

    def repeated(value: Value | None) -> Value | None:
        known = None if value is None else making.constants[value]
        return value if value is None or known is None else making.constant(value.name, found.repeated(known))

    scale, zero, bias = map(repeated, by_filter)
    assert scale is not None, "a weight has a scale"
    return _Product("QuantizedConv", left, (filters, scale, zero), bias, found.convolution, found.places)


def _of_matrices(node: Node, making: Making) -> _Product | None:
    a, b, bias = (*node.inputs, None)[:3]
    given = dict(node.attributes)
    left = coded_by(producer_of(a, making))
    plain = given.get("alpha", 1.0) == 1.0 and given.get("beta", 1.0) == 1.0 and not given.get("transpose_a", False)
    right = _matrix(b, making, crossed=bool(given.get("transpose_b", False)))
    if left is None or right is None or not plain or len(left.bytes.shape) < 2:
        return None
    if not _is_bounded(right[0].shape[:1]) or (bias is not None and bias.shape != node.outputs[0].shape[-1:]):
        return None
    return _Product("QuantizedMatMul", left, right, bias, {})


def _matrix(value: Value | None, making: Making, *, crossed: bool) -> tuple[Value, Value, Value | None] | None:
    """A constant matrix of bytes, transposed if it is ``crossed``, with one scale, or one for each column."""
    node = producer_of(value, making)
    if node is not None and node.op == _TRANSPOSE and len(node.outputs[0].shape) == 2:
        value, crossed = node.inputs[0], crossed != (dict(node.attributes).get("perm") in (None, (1, 0)))
    found = _parameters(value, 0 if crossed else 1, making)
    if found is None or len(found[0].shape) != 2:
        return None
    source, scale, zero = found
    if not crossed:
        return found
    return making.constant(f"{source.name}.transposed", np.ascontiguousarray(making.constants[source].T)), scale, zero


def _parameters(value: Value | None, axis: int, making: Making) -> tuple[Value, Value, Value | None] | None:
    """A constant of bytes that is dequantized by one scale, or by one for each position along ``axis``."""
    node = producer_of(value, making)
    if node is None or node.op != _DEQUANTIZE or node.outputs[0].dtype != f32:
        return None
    source, scale, zero = (*node.inputs, None)[:3]
    given = dict(node.attributes)
    own = given.get("axis", 1)
    if source is None or scale is None or scale.dtype != f32 or source.dtype not in (u8, i8):
        return None
    if source not in making.constants or given.get("block_size") or not isinstance(own, int):
        return None
    fits = is_scalar(scale) or (len(scale.shape) == 1 and own % len(source.shape) == axis)
    return (source, scale, zero) if fits else None


def _is_bounded(terms: Sequence[object]) -> bool:
    """Whether sums of products of bytes, as many as the product of ``terms``, fit in 32 bits."""
    return prod(int(str(extent)) for extent in terms) * _MOST_OF_TERM < LARGEST_SUM


def _integer_bias(product: _Product, making: Making) -> Value | None:
    """The integers of the bias, if it is dequantized by the scales of the operands; else the bias."""
    node = producer_of(product.bias, making)
    if node is None or node.op != _DEQUANTIZE:
        return product.bias
    source, scale, zero = (*node.inputs, None)[:3]
    scales = (scale, product.left.scale, product.right[1])
    known = [making.constants[value].astype(np.float64).reshape(-1) for value in scales if value in making.constants]
    if source is None or source.dtype != i32 or len(known) != 3 or (zero is not None and not _is_zero(zero, making)):
        return product.bias
    own, of_data, of_weight = known
    return source if np.allclose(own, of_data * of_weight, rtol=_ALIKE, atol=0) else product.bias


_ALIKE = 1e-6
"""Relative difference of products of scales by their rounding."""


def _is_zero(value: Value, making: Making) -> bool:
    array = making.constants.get(value)
    return array is not None and not array.any()


def _is_least(value: Value, making: Making) -> bool:
    array = making.constants.get(value)
    return array is not None and bool(np.all(array == value.dtype.min))


def _ending(value: Value, making: Making) -> _Ending | None:
    """The only reader of ``value``, if it quantizes it by one scale; perhaps after a ``Relu`` that changes nothing."""
    after_relu = False
    readers = making.readers(value)
    if len(readers) == 1 and readers[0].op == _RELU:
        after_relu, readers = True, making.readers(readers[0].outputs[0])
    if len(readers) != 1 or readers[0].op != _QUANTIZE:
        return None
    node = readers[0]
    _, scale, zero = (*node.inputs, None)[:3]
    result, given = node.outputs[0], dict(node.attributes)
    if scale is None or scale.dtype != f32 or result.dtype not in (u8, i8) or not is_scalar(scale):
        return None
    if given.get("block_size") or given.get("precision") not in (None, f32) or zero is None or not is_scalar(zero):
        return None
    if after_relu and not (is_positive(scale, making) and _is_least(zero, making)):
        return None
    return _Ending(node, scale, zero)

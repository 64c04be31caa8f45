"""Finds the units in a quantized graph (QDQ): what the accelerator computes with exactly the bits of the CPU.

The CPU computes these nodes in integers, or dequantized in f32. Both are exact, and so equal in every order of sums, if
scales are powers of two and no sum, counted in steps of the product's scale, leaves the integers that f32 has (2^24).
Then quantizing is a rounding shift, for which ALU has the operations (``rounding``). Whatever does not have this form
stays on the CPU, with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import frexp, inf, ldexp
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import f32, i8
from tilewright.graph import Array, Graph, Node, Value
from tilewright.offload.rounding import MOST_SHIFT, Rounding
from tilewright.offload.units import Addition, Axis, Image, Pooling, Product, Unit, image_of

LEAST, MOST = -128, 127
_EXACT = 1 << 24
"""Integers up to here are numbers of f32."""
_LEAST_EXPONENT, _MOST_EXPONENT = -100, 100
"""Of scales: products of two are normal numbers of f32."""
_MOST_LEFT = 15
"""Of shifts to the left of operands, so that their sum has at most 24 bits; and of those that round it."""
_MOST_PADDING = 15
"""A field of LOAD has 4 bits."""
_ANCHORS = frozenset({"Conv", "Gemm", "MatMul", "Add", "MaxPool"})
_NO_SCALE = "scales are not powers of two; tilewright quantize --power-of-two makes such"


@dataclass(frozen=True, slots=True)
class Stays:
    """A node that stays on the CPU, and why."""

    place: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The units of a graph, in order, and what stays."""

    units: tuple[Unit, ...]
    stays: tuple[Stays, ...]


def find_units(graph: Graph) -> Found:
    """All sums of products, and additions of quantized values, as units or with the reason why not."""
    index = _Index(graph)
    units: list[Unit] = []
    stays: list[Stays] = []
    for node in graph.nodes:
        if node.op.name not in _ANCHORS or (node.op.name == "Add" and not index.is_quantized_sum(node)):
            continue
        try:
            units.append(_unit(node, index))
        except _StaysError as error:
            stays.append(Stays(node.source or node.outputs[0].name, node.op.name, str(error)))
    return Found(tuple(units), tuple(stays))


def _unit(node: Node, index: "_Index") -> Unit:
    match node.op.name:
        case "Add":
            return _addition(node, index)
        case "MaxPool":
            return _pooling(node, index)
        case _:
            return _product(node, index)


class _StaysError(Exception):
    """The reason why a node is no unit."""


@dataclass(frozen=True, slots=True)
class _Operand:
    """Signed bytes without a zero point that a node reads dequantized, and the exponent of their scale."""

    value: Value
    image: Image
    exponent: int
    low: int
    high: int


@dataclass(slots=True)
class _Ending:
    """What follows a sum: nodes in order, limits before the quantization, the result and its exponent."""

    nodes: list[Node] = field(default_factory=list[Node])
    low: float = -inf
    high: float = inf
    exponent: int = 0

    def limit(self, low: float, high: float) -> None:
        """After ``min(max(x, low), high)``."""
        self.low, self.high = (min(max(own, low), high) for own in (self.low, self.high))

    @property
    def result(self) -> Value:
        return self.nodes[-1].outputs[0]

    def bytes(self) -> tuple[int, int]:
        """The limits of the quantized result: rounding keeps the order."""
        found = (np.clip(np.rint(ldexp(limit, -self.exponent)), LEAST, MOST) for limit in (self.low, self.high))
        low, high = (int(limit) for limit in found)
        return low, high


class _Index:
    """What makes and reads the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.constants: Mapping[Value, Array] = graph.constants
        self._producers = graph.producers()
        self._consumers = graph.consumers()
        self._leaving = frozenset(graph.outputs)

    def is_quantized_sum(self, node: Node) -> bool:
        """Whether both operands of an addition are dequantized values that a run computes."""
        makers = [self._producers.get(value) for value in node.inputs if value is not None]
        return len(makers) == 2 and all(
            maker is not None and maker.op.name == "DequantizeLinear" and maker.inputs[0] not in self.constants
            for maker in makers
        )

    def only_reader(self, value: Value) -> Node:
        """The node that alone reads ``value``."""
        readers = self._consumers.get(value, [])
        if len(readers) != 1 or value in self._leaving:
            raise _StaysError("its result is not only quantized: the accelerator stores bytes, no sums")
        return readers[0]

    def operand(self, value: Value | None) -> _Operand:
        """The bytes of an activation."""
        node = None if value is None else self._producers.get(value)
        if node is None or node.op.name != "DequantizeLinear":
            raise _StaysError("its data are not quantized")
        source = node.inputs[0]
        if source is None or source in self.constants:
            raise _StaysError("its data are constants")
        self._require_signed(source.dtype == i8, node)
        image = image_of(source)
        if image is None:
            raise _StaysError(f"its data {source!r} are no image of a batch of 1, or matrix, of known sizes")
        low, high = self._range(source)
        return _Operand(source, image, self._exponent(node), low, high)

    def _require_signed(self, is_signed: bool, node: Node) -> None:
        zero = (*node.inputs, None)[2]
        is_zero = zero is None or (zero in self.constants and not self.constants[zero].any())
        if not is_signed or not is_zero:
            raise _StaysError(
                "its bytes have no sign, or a zero point; tilewright quantize --activations i8 makes others"
            )

    def _exponent(self, node: Node) -> int:
        """Of the one scale of a node that quantizes or dequantizes."""
        scale = node.inputs[1]
        if scale is None or scale not in self.constants or self.constants[scale].size != 1:
            raise _StaysError("its data do not have one scale that is known")
        return int(_exponents(self.constants[scale])[0])

    def _range(self, value: Value) -> tuple[int, int]:
        """The least and the largest byte that ``value`` can have: less than all after an activation."""
        node = self._producers.get(value)
        source = None if node is None else node.inputs[0]
        before = None if source is None else self._producers.get(source)
        if node is None or before is None:
            return LEAST, MOST
        if node.op.name == "QuantizeLinear" and before.op.name == "Relu":
            return 0, MOST
        if node.op.name == "QuantizeLinear" and before.op.name == "Clip":
            limits = self.limits(before)
            return (0 if limits is not None and limits[0] >= 0 else LEAST), MOST
        if node.op.name == "QuantizeLinear" and before.op.name == "MaxPool":
            maker = self._producers.get(before.inputs[0]) if before.inputs[0] is not None else None
            if maker is not None and maker.op.name == "DequantizeLinear" and maker.inputs[0] is not None:
                low, _ = self._range(maker.inputs[0])
                return (0 if low == 0 else LEAST), MOST
        return LEAST, MOST

    def limits(self, node: Node) -> tuple[float, float] | None:
        """The limits of a ``Clip``, if they are known."""
        found: list[float] = []
        for value, missing in zip((*node.inputs, None, None)[1:3], (-inf, inf), strict=True):
            if value is not None and value not in self.constants:
                return None
            found.append(missing if value is None else float(self.constants[value].reshape(-1)[0]))
        return found[0], found[1]

    def weight(self, value: Value | None, axis: int) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
        """A constant of signed bytes, and the exponent of each position along ``axis``."""
        node = None if value is None else self._producers.get(value)
        codes = None if node is None else node.inputs[0]
        if node is None or node.op.name != "DequantizeLinear" or codes is None or codes not in self.constants:
            raise _StaysError("its weight is not quantized")
        zero, scale = (*node.inputs, None)[2], node.inputs[1]
        is_zero = zero is None or (zero in self.constants and not self.constants[zero].any())
        if codes.dtype != i8 or not is_zero or scale is None or scale not in self.constants:
            raise _StaysError("its weight has no sign, or a zero point")
        array, scales = self.constants[codes], self.constants[scale].reshape(-1)
        given = dict(node.attributes)
        own = given.get("axis", 1)
        if given.get("block_size") or (len(scales) > 1 and (not isinstance(own, int) or own % array.ndim != axis)):
            raise _StaysError("its weight has scales along another dimension than that of its results")
        exponents = np.broadcast_to(_exponents(scales), (array.shape[axis],))
        return array.astype(np.int8), exponents

    def bias(self, value: Value | None, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """A constant vector in units of ``2^units``, which must be integers."""
        if value is None:
            return np.zeros(len(units), np.int64)
        node, real = self._producers.get(value), self.constants.get(value)
        if node is not None and node.op.name == "DequantizeLinear":
            codes, scale, zero = (*node.inputs, None)[:3]
            known = codes in self.constants and scale in self.constants
            if known and codes is not None and scale is not None and (zero is None or not self.constants[zero].any()):
                real = self.constants[codes].astype(np.float64) * self.constants[scale].astype(np.float64)
        if real is None or real.size not in (1, len(units)):
            raise _StaysError("its bias is no constant vector")
        steps = np.ldexp(np.broadcast_to(real.astype(np.float64).reshape(-1), units.shape), -units)
        if not np.array_equal(steps, np.rint(steps)) or np.any(np.abs(steps) >= _EXACT):
            raise _StaysError("its bias is no integer of 24 bits, in steps of the product of its scales")
        return steps.astype(np.int64)

    def ending(self, node: Node) -> _Ending:
        """What follows a sum until its result is quantized."""
        ending, value = _Ending(), node.outputs[0]
        while True:
            reader = self.only_reader(value)
            ending.nodes.append(reader)
            value = reader.outputs[0]
            if reader.op.name == "Relu":
                ending.limit(0.0, inf)
            elif reader.op.name == "Clip" and (limits := self.limits(reader)) is not None:
                ending.limit(*limits)
            elif reader.op.name == "QuantizeLinear":
                self._require_signed(
                    value.dtype == i8 and dict(reader.attributes).get("precision") in (None, f32), reader
                )
                ending.exponent = self._exponent(reader)
                return ending
            else:
                raise _StaysError(f"its result is not quantized before {reader.op.name}, which reads it")


def _exponents(scales: Array) -> NDArray[np.int64]:
    """Of powers of two."""
    if scales.dtype != np.float32:
        raise _StaysError("scales are no float32")
    found = [frexp(float(scale)) for scale in scales.reshape(-1)]
    if any(mantissa != 0.5 for mantissa, _ in found):
        raise _StaysError(_NO_SCALE)
    exponents = np.array([exponent - 1 for _, exponent in found], np.int64)
    if np.any(exponents < _LEAST_EXPONENT) or np.any(exponents > _MOST_EXPONENT):
        raise _StaysError(f"scales are not from 2^{_LEAST_EXPONENT} to 2^{_MOST_EXPONENT}")
    return exponents


# Products ------------------------------------------------------------------------------------------------------------


def _product(node: Node, index: _Index) -> Product:
    data = index.operand(node.inputs[0])
    if node.op.name == "Conv":
        weights, exponents = index.weight(node.inputs[1], 0)
        rows, columns, groups = _window(node, data.image, weights)
        bias, before = (*node.inputs, None)[2], ()
    else:
        weights, exponents = _matrix(node, index)
        rows, columns, groups = Axis(1), Axis(data.image.width), 1
        bias, before = _added(node, index)
        if data.image.height != 1 or data.image.channels != weights.shape[1] or len(data.value.shape) != 2:
            raise _StaysError("its data are no matrix")
    ending = index.ending(before[-1] if before else node)
    units = exponents + data.exponent
    addends = index.bias(bias, units)
    _require_exact(weights, addends, data)
    low, high = ending.bytes()
    rounding = Rounding(addends, _shifts(ending.exponent - units, weights, addends, data), low, high)
    nodes = (node, *before, *ending.nodes)
    return Product(nodes, data.value, ending.result, rows, columns, weights, rounding, groups)


def _window(node: Node, image: Image, weights: NDArray[np.int8]) -> tuple[Axis, Axis, int]:
    """What filters do along rows and columns, and their groups."""
    if weights.ndim != 4:
        raise _StaysError("it is no convolution over two dimensions")
    groups = dict(node.attributes).get("group", 1)
    assert isinstance(groups, int), "as the operator declares it"
    if groups != 1 and len(weights) != image.channels:
        raise _StaysError("its groups have more or fewer filters than channels; the matrix unit has blocks of both")
    rows, columns = _axes(node, image, weights.shape[2:])
    return rows, columns, groups


def _axes(node: Node, image: Image, taps: Sequence[int]) -> tuple[Axis, Axis]:
    """What a window does along rows and columns."""
    given = dict(node.attributes)
    strides, dilations = (_integers(given.get(name)) or (1, 1) for name in ("strides", "dilations"))
    pads = _integers(given.get("pads")) or (0, 0, 0, 0)
    axes = [
        Axis(extent, size, strides[at], pads[at], pads[at + 2], dilations[at])
        for at, (extent, size) in enumerate(zip((image.height, image.width), taps, strict=True))
    ]
    if any(max(axis.before, axis.after) > min(axis.reach, _MOST_PADDING) for axis in axes):
        raise _StaysError(f"its padding is larger than its filter, or than {_MOST_PADDING}")
    return axes[0], axes[1]


def _integers(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    items = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    found = tuple(item for item in items if isinstance(item, int))
    if not found or len(found) < len(items):
        raise _StaysError("its window depends on run-time extents")
    return found


def _matrix(node: Node, index: _Index) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """The right operand of a product as filters of one pixel."""
    given = {**node.op.defaults, **dict(node.attributes)} if node.op.name == "Gemm" else {}
    if given.get("transpose_a") or given.get("alpha", 1.0) != 1.0 or given.get("beta", 1.0) != 1.0:
        raise _StaysError("it transposes its data, or scales its results")
    axis = 0 if given.get("transpose_b") else 1
    codes, exponents = index.weight(node.inputs[1], axis)
    if codes.ndim != 2:
        raise _StaysError("its weight is no matrix")
    filters = codes if axis == 0 else codes.T
    return np.ascontiguousarray(filters)[:, :, None, None], exponents


def _added(node: Node, index: _Index) -> tuple[Value | None, tuple[Node, ...]]:
    """The bias of a product of matrices: its own, or what alone is added to it after it."""
    own = (*node.inputs, None)[2]
    if own is not None or node.op.name == "Gemm":
        return own, ()
    reader = index.only_reader(node.outputs[0])
    if reader.op.name != "Add":
        return None, ()
    others = [value for value in reader.inputs if value is not None and value != node.outputs[0]]
    columns = node.outputs[0].shape[-1:]
    if len(others) != 1 or others[0].shape != columns:
        raise _StaysError("what is added to it is no vector")
    return others[0], (reader,)


def _require_exact(weights: NDArray[np.int8], addends: NDArray[np.int64], data: _Operand) -> None:
    """All sums of some of the terms are integers that f32 has."""
    wide = weights.reshape(len(weights), -1).astype(np.int64)
    ends = wide * data.low, wide * data.high
    most = np.maximum(*ends).clip(min=0).sum(axis=1)
    least = np.minimum(*ends).clip(max=0).sum(axis=1)
    largest = int((np.maximum(most, -least) + np.abs(addends)).max(initial=0))
    if largest >= _EXACT:
        raise _StaysError(f"its sums may reach {largest}: float32 has all integers up to 2^24 only")


def _shifts(
    shifts: NDArray[np.int64], weights: NDArray[np.int8], addends: NDArray[np.int64], data: _Operand
) -> NDArray[np.int64]:
    """The shifts, where larger ones than a half has room for give the same: 0."""
    most = np.abs(weights.reshape(len(weights), -1).astype(np.int64)).sum(axis=1) * -LEAST + np.abs(addends)
    if np.any(np.ldexp(most.astype(np.float64), -np.minimum(shifts, 0)) >= ldexp(1.0, 31)):
        raise _StaysError("its sums are scaled up beyond 32 bits")
    return np.minimum(shifts, MOST_SHIFT)


# Poolings -------------------------------------------------------------------------------------------------------------


def _pooling(node: Node, index: _Index) -> Pooling:
    data, taps = index.operand(node.inputs[0]), _integers(dict(node.attributes).get("kernel_shape"))
    if taps is None or len(taps) != 2 or len(data.value.shape) != 4:
        raise _StaysError("its window has not two dimensions")
    if dict(node.attributes).get("ceil_mode"):
        raise _StaysError("its last windows end outside of the image and its padding (ceil_mode)")
    rows, columns = _axes(node, data.image, taps)
    ending = index.ending(node)
    if ending.exponent != data.exponent:
        raise _StaysError("its result has another scale than its data")
    return Pooling((node, *ending.nodes), data.value, ending.result, rows, columns, *ending.bytes())


# Additions -----------------------------------------------------------------------------------------------------------


def _addition(node: Node, index: _Index) -> Addition:
    first, second = (index.operand(value) for value in node.inputs)
    if first.image != second.image or first.value.shape != second.value.shape:
        raise _StaysError("its operands have different shapes")
    ending = index.ending(node)
    least = min(first.exponent, second.exponent)
    left = first.exponent - least, second.exponent - least
    shift = ending.exponent - least
    if max(left) > _MOST_LEFT or not -_MOST_LEFT <= shift <= _MOST_LEFT or max(left) - min(shift, 0) > _MOST_LEFT:
        raise _StaysError(f"its scales are further apart than 2^{_MOST_LEFT}")
    low, high = ending.bytes()
    nodes = (node, *ending.nodes)
    return Addition(nodes, (first.value, second.value), ending.result, left, shift, low, high)

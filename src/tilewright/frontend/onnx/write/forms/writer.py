"""The ONNX model under construction: nodes, initializers, and computations of run-time extents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from tilewright.base.dtypes import DType, from_numpy
from tilewright.base.errors import UnsupportedModel
from tilewright.base.names import Names
from tilewright.graph import Array, Graph, Node, Value
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Extent, Select, Unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp

OnnxAttribute = int | float | str | Sequence[int] | Sequence[float] | Sequence[str]
"""Types of an ONNX node's attribute; None: it is omitted."""

_BINARY: Mapping[BinaryOp, str] = {
    BinaryOp.ADD: "Add",
    BinaryOp.AND: "And",
    BinaryOp.EQ: "Equal",
    BinaryOp.GE: "GreaterOrEqual",
    BinaryOp.GT: "Greater",
    BinaryOp.LE: "LessOrEqual",
    BinaryOp.LT: "Less",
    BinaryOp.MAX: "Max",
    BinaryOp.MIN: "Min",
    BinaryOp.MOD: "Mod",
    BinaryOp.MUL: "Mul",
    BinaryOp.OR: "Or",
    BinaryOp.SUB: "Sub",
}
_UNARY: Mapping[UnaryOp, str] = {UnaryOp.ABS: "Abs", UnaryOp.NEG: "Neg", UnaryOp.NOT: "Not"}


def code_of(dtype: DType) -> int:
    """ONNX's number of an element type."""
    return helper.np_dtype_to_tensor_dtype(dtype.numpy)


@dataclass(slots=True)
class Writer:
    """Collects the parts of a model. Values of the graph keep their names."""

    graph: Graph
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    literals: dict[str, Array] = field(default_factory=dict[str, Array])
    """Added constants, by name."""
    producers: Mapping[Value, Node] = field(init=False)
    _names: Names = field(init=False)
    _bounds: Bounds = field(init=False)
    _dims: dict[Extent, tuple[Value, int]] = field(init=False)
    """The axis of an input tensor from which a run-time extent is read."""
    _extents: dict[Expr, str] = field(default_factory=dict[Expr, str])
    _shared: dict[tuple[str, tuple[int, ...], bytes], str] = field(
        default_factory=dict[tuple[str, tuple[int, ...], bytes], str]
    )

    def __post_init__(self) -> None:
        self.producers = self.graph.producers()
        self._names = self.graph.names()
        sources = [(e, (v, axis)) for v in self.graph.inputs for axis, e in enumerate(v.shape) if isinstance(e, Extent)]
        self._dims = dict(reversed(sources))
        self._bounds = Bounds(dims={dim: self.graph.bounds.get(dim) for dim in self._dims})

    def add(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, OnnxAttribute | None]
    ) -> None:
        """Add a node. ``""`` is an omitted input; trailing ones are dropped, and so are attributes that are None."""
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        node = helper.make_node(op, given, list(outputs), name=outputs[0])
        node.attribute.extend(_attribute(name, value) for name, value in attributes.items() if value is not None)
        self.nodes.append(node)

    def fresh(self, wanted: str) -> str:
        """An unused name."""
        return self._names.fresh(wanted)

    def literal(self, array: Array) -> str:
        """The name of a constant with the value ``array``; equal ones are shared."""
        key = str(array.dtype), array.shape, array.tobytes()
        if key not in self._shared:
            self._shared[key] = self.fresh("constant")
            self.literals[self._shared[key]] = array
        return self._shared[key]

    def shape(self, extents: Sequence[int | Expr]) -> str:
        """A vector of integers, which may depend on run-time extents."""
        numbers = [_number(extent) for extent in extents]
        known = [number for number in numbers if number is not None]
        if len(known) == len(extents):
            return self.literal(np.array(known, np.int64))
        parts = [self.literal(np.array([e], np.int64)) if isinstance(e, int) else self.element(e) for e in extents]
        return parts[0] if len(parts) == 1 else self._made("Concat", parts, "shape", axis=0)

    def element(self, value: Expr) -> str:
        """``value``, over run-time extents, as a vector of one element. Raises ``UnsupportedModel``."""
        if value not in self._extents:
            self._extents[value] = self._element(value)
        return self._extents[value]

    def _element(self, value: Expr) -> str:
        match value:
            case Const(number, dtype):
                return self.literal(np.array([number], dtype.numpy))
            case Extent() if value in self._dims:
                source, axis = self._dims[value]
                return self._made("Shape", [source.name], value.name, start=axis, end=axis + 1)
            case Binary(op, a, b) if op in _BINARY:
                return self._made(_BINARY[op], [self.element(a), self.element(b)], "extent")
            case Binary(BinaryOp.NE, a, b):
                return self._made("Not", [self._made("Equal", [self.element(a), self.element(b)], "extent")], "extent")
            case Binary(BinaryOp.FLOORDIV, a, b):
                return self._quotient(a, b)
            case Unary(op, a) if op in _UNARY:
                return self._made(_UNARY[op], [self.element(a)], "extent")
            case Select(condition, a, b):
                return self._made("Where", [self.element(part) for part in (condition, a, b)], "extent")
            case Cast(a, dtype):
                return self._made("Cast", [self.element(a)], "extent", to=code_of(dtype))
            case _:
                raise UnsupportedModel(f"{value} can't be computed by ONNX's operators; give the model's shapes")

    def _quotient(self, a: Expr, b: Expr) -> str:
        """``a // b``: ONNX's Div rounds towards zero."""
        low, _ = interval(a, self._bounds)
        dividend, divisor = self.element(a), self.element(b)
        if low is None or low < 0:
            rest = self._made("Mod", [dividend, divisor], "extent")
            dividend = self._made("Sub", [dividend, rest], "extent")
        return self._made("Div", [dividend, divisor], "extent")

    def _made(self, op: str, inputs: Sequence[str], wanted: str, **attributes: OnnxAttribute) -> str:
        name = self.fresh(wanted)
        self.add(op, inputs, [name], attributes)
        return name

    def needed(self, outputs: Sequence[str]) -> list[onnx.NodeProto]:
        """The nodes that ``outputs`` need, in order."""
        wanted = set(outputs)
        found: list[onnx.NodeProto] = []
        for node in reversed(self.nodes):
            if wanted.intersection(node.output):
                wanted.update(node.input)
                found.append(node)
        return found[::-1]


def tensor_of(array: Array, name: str) -> onnx.TensorProto:
    """An initializer."""
    code = code_of(from_numpy(array.dtype))
    return helper.make_tensor(name, code, array.shape, np.ascontiguousarray(array).tobytes(), raw=True)


def _attribute(name: str, value: OnnxAttribute) -> onnx.AttributeProto:
    is_empty = not isinstance(value, int | float | str) and not value  # its type is not determined otherwise
    return helper.make_attribute(name, value, attr_type=onnx.AttributeProto.INTS if is_empty else None)


def _number(extent: int | Expr) -> int | None:
    if isinstance(extent, Const):
        return int(extent.value)
    return extent if isinstance(extent, int) else None

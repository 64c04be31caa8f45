"""Export forms of single operators: a declaration (``Form``), or a function of the node (``Writing``)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.errors import UnsupportedModel
from tilewright.base.names import readable
from tilewright.frontend.onnx.read.rules import Rule
from tilewright.frontend.onnx.write.forms.writer import OnnxAttribute, Writer, code_of
from tilewright.graph import Array, Node, Value
from tilewright.ops import Attribute
from tilewright.ops.shapes import Shape, same_extent
from tilewright.symbolic.expr import ZERO, Const, Expr


@dataclass(frozen=True, slots=True)
class Writing:
    """One node of the graph, to be written by a form."""

    node: Node
    writer: Writer

    # Properties of the node

    @property
    def inputs(self) -> list[str]:
        """The names of all inputs; ``""`` is an omitted one."""
        return ["" if value is None else value.name for value in self.node.inputs]

    def input(self, position: int) -> str:
        """The name of an input; ``""`` if it is omitted."""
        value = self.optional(position)
        return "" if value is None else value.name

    def value(self, position: int) -> Value:
        """A required input."""
        value = self.optional(position)
        assert value is not None, "the operator checked its inputs"
        return value

    def optional(self, position: int) -> Value | None:
        """An optional input."""
        return self.node.inputs[position] if position < len(self.node.inputs) else None

    def known(self, value: Value) -> Array | None:
        """The elements of a constant."""
        return self.writer.graph.constants.get(value)

    @property
    def output(self) -> Value:
        """The first result."""
        return self.node.outputs[0]

    @property
    def attributes(self) -> Mapping[str, Attribute]:
        """All attributes, those that are not given with their defaults."""
        return {**self.node.op.defaults, **dict(self.node.attributes)}

    def integer(self, name: str) -> int:
        """An integer (or bool) attribute."""
        value = self.attributes[name]
        assert isinstance(value, int), f"{name} of {self.node.op} is an integer"
        return value

    def extent(self, name: str) -> int | Expr:
        """An integer attribute, which may depend on run-time extents."""
        value = self.attributes[name]
        assert isinstance(value, int | Expr), f"{name} of {self.node.op} is an integer"
        return _integer(value)

    def number(self, name: str) -> float:
        """A float attribute."""
        value = self.attributes[name]
        assert isinstance(value, int | float), f"{name} of {self.node.op} is a number"
        return float(value)

    def text(self, name: str) -> str:
        """A string attribute."""
        value = self.attributes[name]
        assert isinstance(value, str), f"{name} of {self.node.op} is a string"
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self.attributes[name]
        assert isinstance(value, tuple), f"{name} of {self.node.op} is a list"
        return tuple(str(part) for part in value)

    def floats(self, name: str) -> tuple[float, ...]:
        """A list of numbers."""
        value = self.attributes[name]
        assert isinstance(value, tuple), f"{name} of {self.node.op} is a list"
        return tuple(float(str(part)) for part in value)

    def dtype(self, name: str) -> DType | None:
        """An element type."""
        value = self.attributes[name]
        assert value is None or isinstance(value, DType), f"{name} of {self.node.op} is a dtype"
        return value

    def extents(self, name: str) -> tuple[int | Expr, ...] | None:
        """A list of integers, which may depend on run-time extents; None if it is omitted."""
        value = self.attributes[name]
        if value is None:
            return None
        assert isinstance(value, tuple), f"{name} of {self.node.op} is a list"
        return tuple(_integer(part) for part in value if isinstance(part, int | Expr))

    def ints(self, name: str) -> tuple[int, ...] | None:
        """A list of integers; None if it is omitted. Raises ``UnsupportedModel`` if one is known only at run time."""
        extents = self.extents(name)
        known = [extent for extent in extents or () if isinstance(extent, int)]
        if len(known) != len(extents or ()):
            raise self.unsupported(f"{name} depends on run-time extents; give the model's shapes")
        return None if extents is None else tuple(known)

    # Output

    def apply(self, op: str, inputs: Sequence[str], **attributes: OnnxAttribute | None) -> str:
        """A node with one result, which gets a fresh name."""
        return self.apply_many(op, inputs, 1, **attributes)[0]

    def apply_many(
        self, op: str, inputs: Sequence[str], count: int, **attributes: OnnxAttribute | None
    ) -> tuple[str, ...]:
        """A node with ``count`` results, which get fresh names."""
        names = tuple(self.writer.fresh(f"{self.output.name}.{op}") for _ in range(count))
        self.writer.add(op, inputs, names, attributes)
        return names

    def result(self, op: str, inputs: Sequence[str], **attributes: OnnxAttribute | None) -> None:
        """The node that gives the results of the graph's node."""
        self.writer.add(op, inputs, [value.name for value in self.node.outputs], attributes)

    def result_at(self, position: int, op: str, inputs: Sequence[str], **attributes: OnnxAttribute | None) -> None:
        """The node that gives one of several results, if the graph's node has it."""
        if position < len(self.node.outputs):
            self.writer.add(op, inputs, [self.node.outputs[position].name], attributes)

    def constant(self, array: Array) -> str:
        """An initializer."""
        return self.writer.literal(array)

    def vector(self, extents: Sequence[int | Expr]) -> str:
        """Integers, which may depend on run-time extents, in a vector."""
        return self.writer.shape(extents)

    def reshape(self, name: str, before: Shape, after: Shape) -> str:
        """``name`` with another shape, as a fresh name."""
        return self.apply("Reshape", [name, self.vector(_target(before, after))], allowzero=int(ZERO in after))

    def result_reshaped(self, name: str, before: Shape) -> None:
        """``name``, which has the shape ``before``, as the result."""
        after = self.output.shape
        self.result("Reshape", [name, self.vector(_target(before, after))], allowzero=int(ZERO in after))

    def scalar(self, value: float, dtype: DType) -> str:
        """An initializer of rank 0."""
        return self.constant(np.asarray(value, dtype.numpy))

    def cast(self, name: str, before: DType, after: DType) -> str:
        """``name`` converted from one type to another."""
        return name if before == after else self.apply("Cast", [name], to=code_of(after))

    def as_scalar(self, value: Value) -> str:
        """A value of one element as a scalar."""
        array = self.known(value)
        if not value.shape:
            return value.name
        if array is not None:
            return self.constant(array.reshape(()))
        return self.apply("Reshape", [value.name, self.vector(())])

    def unsqueezed(self, value: Value, *axes: int) -> str:
        """``value`` with extents of 1 at ``axes`` of the result."""
        array = self.known(value)
        if array is not None:
            return self.constant(np.expand_dims(array, axes))
        return self.apply("Unsqueeze", [value.name, self.vector(axes)])

    def unsupported(self, what: str) -> UnsupportedModel:
        """The error for a node that can't be written; ``what`` has the reason and a remedy."""
        place = self.node.source or f"node that makes {readable(self.output.name)}"
        return UnsupportedModel(f"{place}: operator {self.node.op} can't be written as ONNX: {what}")


def _target(before: Shape, after: Shape) -> list[int | Expr]:
    """The target of Reshape: 0 (copied) or -1 (inferred) where that saves computing an extent."""
    if ZERO in after:
        return list(after)
    kept = [p < len(before) and not isinstance(e, Const) and same_extent(e, before[p]) for p, e in enumerate(after)]
    target: list[int | Expr] = [0 if keep else extent for keep, extent in zip(kept, after, strict=True)]
    computed = [position for position, extent in enumerate(target) if not isinstance(extent, int | Const)]
    if len(computed) == 1:
        target[computed[0]] = -1
    return target


def _integer(value: int | Expr) -> int | Expr:
    return int(value.value) if isinstance(value, Const) else value


FormFunction: TypeAlias = Callable[[Writing], None]
"""Writes nodes by ``apply``, the last one by ``result``. Raises ``UnsupportedModel``."""


@dataclass(frozen=True, slots=True)
class Form:
    """An operator that exists in ONNX.

    ``attributes``: our names to ONNX's. ``inputs``: attributes that are inputs in ONNX, in the order in which they
    follow the operands.
    """

    operator: str
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    inputs: Sequence[str] = ()
    operands: int | None = None
    """The number of operands before these inputs, including omitted ones."""

    @staticmethod
    def inverse(name: str, rule: Rule) -> "Form":
        """What writes what ``rule`` reads of ONNX's operator ``name``."""
        inputs = tuple(rule.constant_inputs.values())
        return Form(name, {ours: theirs for theirs, ours in rule.attributes.items() if ours not in inputs}, inputs)

    def __call__(self, writing: Writing) -> None:
        """Write it. Raises ``UnsupportedModel`` for an attribute that must be an integer and depends on extents."""
        given = writing.attributes
        unknown = given.keys() - self.attributes.keys() - set(self.inputs)
        assert not unknown, f"{writing.node.op} has the attributes {', '.join(unknown)}, which its form does not name"
        operands = writing.inputs
        if self.operands is not None:
            operands += [""] * (self.operands - len(operands))
        for name in self.inputs:
            extents = writing.extents(name)
            operands.append("" if extents is None else writing.vector(extents))
        options = {theirs: onnx_attribute(writing, name) for name, theirs in self.attributes.items()}
        writing.result(self.operator, operands, **options)


def onnx_attribute(writing: Writing, name: str) -> OnnxAttribute | None:
    """An attribute in ONNX's encoding: bools as 0 and 1, dtypes by their numbers."""
    value = writing.attributes[name]
    match value:
        case bool():
            return int(value)
        case int() | float() | str() | None:
            return value
        case DType():
            return code_of(value)
        case Expr():
            raise writing.unsupported(f"{name} depends on run-time extents; give the model's shapes")
        case tuple():
            texts = [part for part in value if isinstance(part, str)]
            floats = [part for part in value if isinstance(part, float)]
            return texts or floats or writing.ints(name)

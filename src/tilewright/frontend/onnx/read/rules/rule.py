"""Import rules of single operators: a declaration (``Rule``), or a function of the node (``Request``)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import UnionType
from typing import Protocol, TypeAlias, Union, get_args, get_origin

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.base.names import readable
from tilewright.frontend.onnx.read.narrow import Narrow
from tilewright.frontend.onnx.read.protos import dtype_of
from tilewright.frontend.onnx.read.symbolic_values import SymbolicValues, can_be_extent
from tilewright.graph import Array, Value
from tilewright.ops import Attribute, Operator
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import Const, Expr
from tilewright.tensor.elements import Elements

MOST_SIZES = 32
"""Maximum elements of a value that are read as sizes: as many as a shape may have."""


class Importer(Protocol):
    """The importer's services for rules."""

    def add(
        self,
        op: str | Operator,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
        outputs: int,
        place: str,
    ) -> tuple[Value, ...]:
        """Add a node to the graph; its results get fresh names."""
        ...

    def known(self, value: Value) -> Array | None:
        """The elements of a constant."""
        ...

    def constant(self, array: Array, place: str) -> Value:
        """A new constant with a fresh name."""
        ...

    def elements(self, value: Value) -> Elements | None:
        """The elements of a small constant, or of a value that depends on run-time extents only."""
        ...

    def sizes(self, value: Value, place: str) -> Elements:
        """The elements of a small integer value, which become run-time extents if they are data: a run in which one is
        negative raises ``BadFeed``."""
        ...

    def symbolic_value(self, elements: Elements, shape: Sequence[int], dtype: DType, place: str) -> Value:
        """A new value with these elements; a constant, if all are literals."""
        ...

    def narrow(self, value: Value) -> Narrow | None:
        """The type of the elements of ``value``, if native code has them as codes (``read.narrow``)."""
        ...

    def note_narrow(self, value: Value, narrow: Narrow) -> None:
        """Note that ``value`` holds codes."""
        ...

    @property
    def symbolic(self) -> SymbolicValues:
        """Facts about run-time extents."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """One node of the model, to be translated by a rule.

    ``outputs``: the number of results, including omitted ones in the middle.
    """

    op_type: str
    place: str
    opset: int
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Attribute | Array]
    outputs: int
    importer: Importer

    def apply(self, op: str | Operator, *inputs: Value | None, **attributes: Attribute) -> Value:
        """The only result of ``op``, by name one of ``ops``. Raises ``InvalidModel`` if the inputs do not fit."""
        return self.apply_many(op, inputs, 1, **attributes)[0]

    def apply_many(
        self, op: str | Operator, inputs: Sequence[Value | None], outputs: int, **attributes: Attribute
    ) -> tuple[Value, ...]:
        """The first ``outputs`` results of operator ``op``. Raises ``InvalidModel`` if the inputs do not fit."""
        return self.importer.add(op, inputs, attributes, outputs, self.place)

    def constant(self, array: Array) -> Value:
        """A constant of the graph."""
        return self.importer.constant(array, self.place)

    def input(self, position: int) -> Value:
        """A required input. Raises ``InvalidModel``."""
        value = self.optional(position)
        if value is None:
            raise InvalidModel(f"{self.place}: input {position} is missing")
        return value

    def optional(self, position: int) -> Value | None:
        """An optional input."""
        return self.inputs[position] if position < len(self.inputs) else None

    def array(self, position: int) -> Array | None:
        """The elements of an optional input. Raises ``UnsupportedModel`` if they are known only at run time."""
        value = self.optional(position)
        return None if value is None else self._known(value)

    def integers(self, position: int) -> tuple[int, ...] | None:
        """The elements of an optional integer input. Raises ``UnsupportedModel`` or ``InvalidModel``."""
        value = self.optional(position)
        if value is None:
            return None
        if not value.dtype.is_int:
            raise InvalidModel(f"{self.place}: input `{readable(value.name)}` must hold integers, not {value.dtype}")
        return tuple(int(x) for x in np.ravel(self._known(value)))

    def extents(self, position: int) -> tuple[int | Expr, ...] | None:
        """The elements of an optional integer input, as numbers or expressions over run-time extents.

        Raises ``UnsupportedModel`` if they depend on data, ``InvalidModel`` if they are not integers.
        """
        value = self.optional(position)
        elements = None if value is None or not value.dtype.is_int else self.importer.elements(value)
        if value is None or elements is None:
            return self.integers(position)
        for element in elements:
            if not can_be_extent(element):
                raise self.run_time_only(f"the element {element} of input `{readable(value.name)}` is")
        return tuple(int(element.value) if isinstance(element, Const) else element for element in elements)

    def sizes(self, position: int) -> tuple[int | Expr, ...]:
        """The elements of a required integer input, as ``extents`` gives them; what is data becomes an extent.

        Raises ``UnsupportedModel`` if their number is not known, ``InvalidModel`` if they are not integers.
        """
        value = self.input(position)
        return self.sizes_of(value)

    def sizes_of(self, value: Value) -> tuple[int | Expr, ...]:
        """The same, of a value of this rule."""
        shape = static(value.shape)
        if not value.dtype.is_int:
            raise InvalidModel(f"{self.place}: input `{readable(value.name)}` must hold integers, not {value.dtype}")
        if shape is None or prod(shape) > MOST_SIZES:
            raise self.unsupported(f"the sizes in {value!r} are not a few numbers")
        elements = self.importer.sizes(value, self.place)
        return tuple(int(element.value) if isinstance(element, Const) else element for element in elements)

    def _known(self, value: Value) -> Array:
        array = self.importer.known(value)
        if array is None:
            raise UnsupportedModel(
                f"{self.place}: input `{readable(value.name)}` must be a constant, but "
                f"{self.importer.symbolic.why_unknown(value)}"
            )
        return array

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attributes.get(name, default)
        assert isinstance(value, int), "the importer checked the attribute against the operator's definition"
        return value

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        value = self.attributes.get(name, default)
        assert isinstance(value, float | int), "the importer checked the attribute against the operator's definition"
        return float(value)

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        value = self.attributes.get(name, default)
        assert isinstance(value, str), "the importer checked the attribute against the operator's definition"
        return value

    def ints(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, if the attribute is given."""
        value = self.attributes.get(name)
        if value is None:
            return None
        assert isinstance(value, tuple), "the importer checked the attribute against the operator's definition"
        return tuple(int(str(x)) for x in value)

    def tensor(self, name: str) -> Array | None:
        """A tensor, if the attribute is given."""
        value = self.attributes.get(name)
        assert value is None or isinstance(value, np.ndarray), (
            "the importer checked the attribute against the definition"
        )
        return value

    def dtype(self, name: str) -> DType | None:
        """The element type of an attribute, given by number; None for 0, or if it is omitted."""
        code = self.integer(name, 0)
        return dtype_of(code, self.place) if code else None

    def extent(self, value: Value, axis: int) -> int:
        """The extent of ``value`` along ``axis``. Raises ``UnsupportedModel`` if it is known only at run time."""
        extent = value.shape[axis]
        if not isinstance(extent, Const):
            raise self.run_time_only(f"extent {extent} of {value!r} is")
        return int(extent.value)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of numbers; empty if the attribute is not given."""
        value = self.attributes.get(name, ())
        assert isinstance(value, tuple), "the importer checked the attribute against the operator's definition"
        return tuple(float(str(x)) for x in value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty if the attribute is not given."""
        value = self.attributes.get(name, ())
        assert isinstance(value, tuple), "the importer checked the attribute against the operator's definition"
        return tuple(map(str, value))

    def unsupported(self, what: str) -> UnsupportedModel:
        """The error for an unsupported form; ``what`` names it, and a remedy."""
        return UnsupportedModel(f"{self.place}: {what}")

    def run_time_only(self, what: str) -> UnsupportedModel:
        """The error for "``what`` known at run time only", with the argument that makes it known."""
        return self.unsupported(f"{what} known at run time only; give it by {self.importer.symbolic.by_shapes}")

    def invalid(self, what: str) -> InvalidModel:
        """The error for a node that breaks ONNX's rules."""
        return InvalidModel(f"{self.place}: {what}")


RuleFunction: TypeAlias = Callable[[Request], Sequence[Value]]
"""Adds nodes by ``request.apply`` and returns the values of the node's outputs, as many as requested.

A ``BadProgram`` of a helper of ``ops`` becomes ``InvalidModel`` with the node's place.
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """An ONNX operator that maps to one operator: by name one of ``ops``, or a given one.

    ``constant_inputs``: positions of inputs that become attributes. ``attributes``: ONNX's names to ours.
    """

    operator: str | Operator
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    constant_inputs: Mapping[int, str] = field(default_factory=dict[int, str])
    ignored: frozenset[str] = frozenset()
    """Attributes without effect here."""

    def __call__(self, request: Request) -> Sequence[Value]:
        """The results. Raises ``UnsupportedModel`` for an attribute that is not listed."""
        operands = [v for position, v in enumerate(request.inputs) if position not in self.constant_inputs]
        while operands and operands[-1] is None:
            operands.pop()
        options: dict[str, Attribute] = {}
        for name, value in request.attributes.items():
            if name in self.attributes and not isinstance(value, np.ndarray):
                options[self.attributes[name]] = self._converted(self.attributes[name], value, request.place)
            elif name not in self.ignored:
                raise request.unsupported(f"attribute {name} is not supported; leave it out")
        for position, option in self.constant_inputs.items():
            numbers = request.extents(position) if option in _EXTENTS else request.integers(position)
            if numbers is not None:
                options[option] = numbers
        return request.apply_many(self.operator, operands, request.outputs, **options)

    def _converted(self, option: str, value: Attribute, place: str) -> Attribute:
        """``value`` as our operator declares it: ONNX has numbers for bools and element types (0: none)."""
        operator = require(self.operator) if isinstance(self.operator, str) else self.operator
        declared: object = operator.parameters[option].annotation if option in operator.parameters else None
        kinds = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
        if bool in kinds:
            return bool(value)
        if DType in kinds and isinstance(value, int):
            return dtype_of(value, place) if value else None
        return value


_EXTENTS = frozenset({"repeats", "shape"})
"""Attributes of our operators that may be expressions over run-time extents."""


def same(*names: str) -> dict[str, str]:
    """Attributes that are called here as in ONNX."""
    return dict(zip(names, names, strict=True))

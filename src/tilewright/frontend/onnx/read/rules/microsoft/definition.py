"""Definitions of operators that ONNX has none of, and what their rules have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from types import MappingProxyType

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.frontend.onnx.read.rules import RULES
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Array, Value
from tilewright.ops import Attribute

_OPSET = 21
"""The opset whose rules decompositions use."""

_TOLD = MappingProxyType({int: "an integer", float: "a number", str: "a text", tuple: "a list"})


@dataclass(frozen=True, slots=True)
class Definition:
    """What ONNX Runtime defines of an operator, checked before its rule is applied.

    ``inputs``: the least and the largest number of them. ``attributes``: the types of those that are supported.
    ``required``: attributes without a default.
    """

    rule: RuleFunction
    inputs: tuple[int, int]
    outputs: int = 1
    attributes: Mapping[str, type] = field(default_factory=dict[str, type])
    required: Sequence[str] = ()

    def __call__(self, request: Request) -> Sequence[Value]:
        """The results. Raises ``InvalidModel`` or ``UnsupportedModel`` for what is not defined so."""
        least, most = self.inputs
        if not least <= len(request.inputs) <= most:
            raise request.invalid(f"it has {len(request.inputs)} inputs; {request.op_type} takes {least} to {most}")
        if request.outputs > self.outputs:
            raise request.unsupported(
                f"it has {request.outputs} outputs; {self.outputs} of {request.op_type} are supported, leave others out"
            )
        for name, value in request.attributes.items():
            kind = self.attributes.get(name)
            if kind is None:
                known = ", ".join(self.attributes) or "none"
                raise request.unsupported(f"attribute {name} is not supported (there is: {known}); leave it out")
            if not isinstance(value, kind):
                raise request.invalid(f"attribute {name} is {value!r}, not {_TOLD[kind]}")
        missing = [name for name in self.required if name not in request.attributes]
        if missing:
            raise request.invalid(f"attribute {', '.join(missing)} is missing")
        return self.rule(request)


def by_onnx(request: Request, op_type: str, inputs: Sequence[Value | None], **attributes: Attribute | Array) -> Value:
    """The only result of ONNX's operator ``op_type``, by its own rule."""
    inner = replace(request, op_type=op_type, opset=_OPSET, inputs=tuple(inputs), attributes=attributes, outputs=1)
    return RULES[op_type](inner)[0]


def total(request: Request, *values: Value | None) -> Value:
    """The sum of those ``values`` that are given; at least one is."""
    return reduce(lambda a, b: request.apply("Add", a, b), (value for value in values if value is not None))


def number(request: Request, value: float, dtype: DType) -> Value:
    """A constant of rank 0."""
    return request.constant(np.array(value, dtype.numpy))


def same_shape_as(request: Request, value: Value, like: Value, what: str) -> Value:
    """``value``, which must have the shape of ``like``. Raises ``InvalidModel``."""
    if value.shape != like.shape:
        raise request.invalid(f"{what} give {value!r}, which has not the shape of {like!r}")
    return value

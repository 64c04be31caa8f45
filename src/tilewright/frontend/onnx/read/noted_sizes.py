"""Conditions on sizes that whoever made a model notes in it: it computes what it is meant to for such sizes only.

The front end of PyTorch notes what PyTorch assumed of sizes when it traced a program. The note is JSON: a list of
expressions that must not be negative. An expression is a number, the name of a dimension of an input, or an operation
of two expressions: ``["-", "height", 32]``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, cast

import onnx

from tilewright.base.errors import InvalidModel
from tilewright.base.names import readable
from tilewright.graph import Graph
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import Const, Expr, const, maximum, minimum
from tilewright.symbolic.simplify import simplify
from tilewright.tensor.elements import Limit

Form: TypeAlias = int | str | tuple[str, "Form", "Form"]
"""An expression as JSON has it."""

KEY: Final = "tilewright.sizes"
"""The entry of a model's metadata."""
_LONGEST: Final = 1 << 16
"""Maximum characters of a note."""
_DEEPEST: Final = 32
"""Maximum operations inside each other."""

OPERATIONS: Final[Mapping[str, Callable[[Expr, Expr], Expr]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": minimum,
    "max": maximum,
}


def note(model: onnx.ModelProto, conditions: Sequence[Form]) -> None:
    """Note in ``model`` what must not be negative."""
    if conditions:
        model.metadata_props.add(key=KEY, value=json.dumps(conditions))


def dimension_names(model: onnx.ModelProto) -> dict[str, list[str]]:
    """The names of the dimensions of each input; empty for those that are numbers."""
    return {info.name: [dim.dim_param for dim in info.type.tensor_type.shape.dim] for info in model.graph.input}


def with_noted_sizes(graph: Graph, model: onnx.ModelProto) -> Graph:
    """``graph``, of ``model``, which the runtime refuses to run for other sizes than those noted.

    Raises ``InvalidModel`` if sizes that are known do not fit, or the note can't be read.
    """
    text = next((entry.value for entry in model.metadata_props if entry.key == KEY), "")
    if not text:
        return graph
    named, bounds = _dimensions(graph, model), Bounds(dims=dict.fromkeys(graph.extents))
    found = (simplify(_expression(form, named), bounds) for form in _forms(text))
    limits = [Limit(value) for value in found if not _always_holds(value, bounds)]
    wrong = next((limit.value for limit in limits if isinstance(limit.value, Const)), None)
    if wrong is not None:
        raise InvalidModel(
            f"the model is not for these sizes: {text} has to hold of its dimensions; export it for such sizes"
        )
    return replace(graph, limits=tuple(dict.fromkeys((*graph.limits, *limits))))


def _always_holds(value: Expr, bounds: Bounds) -> bool:
    low = interval(value, bounds).lo
    return low is not None and low >= 0


def _dimensions(graph: Graph, model: onnx.ModelProto) -> dict[str, Expr]:
    """The dimensions of inputs by the names that the model gives them."""
    shapes = {value.name: value.shape for value in graph.inputs}
    return {
        name: extent
        for given, names in dimension_names(model).items()
        for name, extent in zip(names, shapes.get(given, ()), strict=False)
        if name
    }


def _forms(text: str) -> list[object]:
    try:
        found: object = json.loads(text) if len(text) <= _LONGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list):
        raise _malformed(text)
    return cast("list[object]", found)


def _expression(form: object, named: Mapping[str, Expr], depth: int = 0) -> Expr:
    match form:
        case int() if not isinstance(form, bool) and abs(form) < 1 << 62:
            return const(form)
        case str() if form in named:
            return named[form]
        case list() if depth < _DEEPEST:
            return _applied(cast("list[object]", form), named, depth + 1)
        case _:
            raise _malformed(str(form))


def _applied(form: list[object], named: Mapping[str, Expr], depth: int) -> Expr:
    operation, *operands = form or [None]
    if not isinstance(operation, str) or operation not in OPERATIONS or len(operands) != _OPERANDS:
        raise _malformed(str(form))
    a, b = (_expression(operand, named, depth) for operand in operands)
    if operation in ("//", "%") and not (isinstance(b, Const) and int(b.value) > 0):
        raise _malformed(str(form))
    return OPERATIONS[operation](a, b)


_OPERANDS: Final = 2


def _malformed(text: str) -> InvalidModel:
    return InvalidModel(f"the note {KEY} of the model's metadata can't be read: {readable(text, 200)}; remove it")

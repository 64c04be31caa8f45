"""The shapes of a model's inputs: what the file declares, and what the user gives for them."""

from collections.abc import Iterable, Mapping, Sequence

import onnx

from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.base.names import readable
from tilewright.frontend.onnx_proto import check_size
from tilewright.ops.shapes import Shape, show, static
from tilewright.symbolic.expr import Const, Expr, Var, const

GivenShapes = Mapping[str, Iterable[int | str]]
"""Shapes by input name; a str names a dimension that is known at run time only."""


def input_shapes(inputs: Sequence[onnx.ValueInfoProto], given: GivenShapes) -> dict[str, Shape]:
    """The shape of each input. A dimension that is given for one input holds for all inputs that share its name.

    Raises ``InvalidModel`` for a shape that is malformed or contradicts the model, ``UnsupportedModel`` for an input
    whose rank nobody tells.
    """
    names = [info.name for info in inputs]
    unknown = [name for name in given if name not in names]
    if unknown:
        there = ", ".join(map(readable, names)) or "none"
        raise InvalidModel(f"shapes= names {', '.join(map(readable, unknown))}; the inputs are {there}")
    wanted = {name: _given(name, extents) for name, extents in given.items()}
    declared = {info.name: _declared(info, wanted.get(info.name)) for info in inputs}
    bound: dict[Var, Expr] = {}
    for name, shape in wanted.items():
        _bind(name, shape, declared[name], bound)
    shapes = {name: tuple(_resolved(extent, bound) for extent in shape) for name, shape in declared.items()}
    for name, shape in shapes.items():
        check_size(static(shape) or (), f"input {readable(name)}")
    return shapes


def _given(name: str, extents: Iterable[int | str]) -> Shape:
    listed = list(extents)
    for extent in listed:
        if isinstance(extent, int) and extent < 0:
            raise InvalidModel(f"shapes= gives {listed} for input {readable(name)}; extents are not negative")
    return tuple(Var(extent) if isinstance(extent, str) else const(extent) for extent in listed)


def _declared(info: onnx.ValueInfoProto, wanted: Shape | None) -> Shape:
    kind, place = info.type.tensor_type, f"input {readable(info.name)}"
    if not info.type.HasField("tensor_type"):
        raise UnsupportedModel(f"{place} is no tensor; sequences, maps and optionals are not supported")
    if kind.HasField("shape"):
        return tuple(_extent(dim, info.name, position) for position, dim in enumerate(kind.shape.dim))
    if wanted is None:
        raise UnsupportedModel(f"the model does not say how many dimensions {place} has; give shapes=")
    return wanted


def _extent(dim: "onnx.TensorShapeProto.Dimension", name: str, position: int) -> Expr:
    if not dim.HasField("dim_value"):
        return Var(dim.dim_param or f"{name}_{position}")
    if dim.dim_value < 0:
        raise InvalidModel(
            f"input {readable(name)} has extent {dim.dim_value} in dimension {position}; extents are not negative"
        )
    return const(dim.dim_value)


def _bind(name: str, wanted: Shape, declared: Shape, bound: dict[Var, Expr]) -> None:
    """Note what ``wanted`` says about the variables of ``declared``."""
    place = f"input {readable(name)}"
    if len(wanted) != len(declared):
        raise InvalidModel(f"shapes= gives {show(wanted)} for {place}, which has {len(declared)} dimensions")
    for extent, known in zip(wanted, declared, strict=True):
        if isinstance(known, Const) and extent != known:
            raise InvalidModel(f"shapes= gives {show(wanted)} for {place}, which the model fixes as {show(declared)}")
        if isinstance(known, Var) and bound.setdefault(known, extent) != extent:
            raise InvalidModel(f"shapes= gives {extent} and {bound[known]} for dimension {known} ({place})")


def _resolved(extent: Expr, bound: Mapping[Var, Expr]) -> Expr:
    return bound.get(extent, extent) if isinstance(extent, Var) else extent

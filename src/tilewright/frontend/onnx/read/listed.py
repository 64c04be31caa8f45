"""Sequences and optionals: lists of known length, which exist only while a model is imported.

An input of such a type has as many tensors as ``shapes`` says: ``shapes={"x": (2,)}`` makes two inputs ``x.0`` and
``x.1`` of the sequence ``x``. An optional is a list of none or one. Outputs are named likewise.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import onnx

from tilewright.base.dtypes import DType, f32
from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.base.names import readable
from tilewright.frontend.api import GivenShapes
from tilewright.frontend.onnx.read import protos
from tilewright.graph import Value

MOST_TENSORS = 1 << 12
"""Maximum tensors of a sequence that is an input."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A sequence, or an optional: a list of none or one. ``dtype``: of its tensors, if it was told."""

    elements: "tuple[Bound, ...]"
    dtype: DType | None = None
    is_optional: bool = False

    def __str__(self) -> str:
        return "an optional" if self.is_optional else f"a sequence of {len(self.elements)}"


Bound: TypeAlias = Value | Listed
"""What a name of a model stands for."""


def tensors(bound: Sequence[Bound | None], place: str) -> tuple[Value | None, ...]:
    """``bound``, which must be tensors. Raises ``InvalidModel``."""
    return tuple(None if each is None else tensor(each, place) for each in bound)


def tensor(bound: Bound, place: str) -> Value:
    """``bound``, which must be a tensor. Raises ``InvalidModel``."""
    if isinstance(bound, Listed):
        raise InvalidModel(f"{place} takes or makes {bound} where ONNX has a tensor")
    return bound


def only_tensors(bound: Sequence[Bound | None]) -> tuple[Value | None, ...]:
    """``bound`` with None in the place of lists."""
    return tuple(each if isinstance(each, Value) else None for each in bound)


def leaves(bound: Sequence[Bound]) -> Iterator[Value]:
    """All tensors, in order."""
    for each in bound:
        if isinstance(each, Listed):
            yield from leaves(each.elements)
        else:
            yield each


def like(form: Sequence[Bound], values: Iterator[Value]) -> list[Bound]:
    """``form`` with other tensors: the next ones of ``values``."""
    return [
        replace(each, elements=tuple(like(each.elements, values))) if isinstance(each, Listed) else next(values)
        for each in form
    ]


def are_alike(a: Sequence[Bound], b: Sequence[Bound]) -> bool:
    """Whether both have lists of equal lengths at the same places."""
    return len(a) == len(b) and all(_is_alike(x, y) for x, y in zip(a, b, strict=True))


def _is_alike(a: Bound, b: Bound) -> bool:
    if isinstance(a, Listed) and isinstance(b, Listed):
        return a.is_optional == b.is_optional and are_alike(a.elements, b.elements)
    return isinstance(a, Value) and isinstance(b, Value)


def renamed(bound: Bound, names: Mapping[Value, Value]) -> Bound:
    """``bound`` with the values in ``names`` replaced."""
    (found,) = like([bound], (names.get(value, value) for value in leaves([bound])))
    return found


def outputs_of(bound: Sequence[tuple[str, Bound]], taken: Mapping[str, Bound | None]) -> dict[str, Value]:
    """The tensors of a model's outputs by name; ``taken``: the names of other values.

    Raises ``InvalidModel`` if there are none, or if a tensor of a sequence would have the name of another value.
    """
    values = dict(each for name, output in bound for each in _named(name, output))
    names = {name for name, _ in bound}
    clash = next((name for name in values if name not in names and name in taken), None)
    if clash is not None:
        raise InvalidModel(f"an output's tensor would be called `{readable(clash)}`, as another value is; rename that")
    if not values:
        raise InvalidModel("the outputs are empty sequences; a model needs a tensor")
    return values


def _named(name: str, bound: Bound) -> Iterator[tuple[str, Value]]:
    if isinstance(bound, Value):
        yield name, bound
        return
    for at, element in enumerate(bound.elements):
        yield from _named(f"{name}.{at}", element)


def type_of(bound: Bound | None) -> onnx.TypeProto:
    """ONNX's description of a type; an empty one for an omitted input."""
    if not isinstance(bound, Listed):
        return protos.type_of(bound)
    kind = onnx.TypeProto()
    element = kind.optional_type.elem_type if bound.is_optional else kind.sequence_type.elem_type
    if bound.elements:
        element.CopyFrom(type_of(bound.elements[0]))
        element.tensor_type.ClearField("shape")
    else:
        element.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype((bound.dtype or f32).numpy)
    return kind


@dataclass(frozen=True, slots=True)
class Entry:
    """An input of the model, and what it consists of; ``elements``: None for a tensor."""

    info: onnx.ValueInfoProto
    elements: "tuple[Entry, ...] | None" = None

    def infos(self) -> Iterator[onnx.ValueInfoProto]:
        """The tensors."""
        if self.elements is None:
            yield self.info
            return
        for element in self.elements:
            yield from element.infos()

    def bound(self, values: Mapping[str, Value]) -> Bound:
        """The value of the input; ``values``: of the tensors."""
        if self.elements is None:
            return values[self.info.name]
        elements = tuple(element.bound(values) for element in self.elements)
        return Listed(elements, self._dtype(), is_optional=self.info.type.HasField("optional_type"))

    def _dtype(self) -> DType | None:
        """The type of the elements of its tensors, if it has no tensors inside of something else."""
        kind = _element_type(self.info.type)
        if kind is None or not kind.HasField("tensor_type"):
            return None
        return protos.dtype_of(kind.tensor_type.elem_type, f"input {readable(self.info.name)}")


def entry(info: onnx.ValueInfoProto, shapes: GivenShapes) -> Entry:
    """An input, with as many tensors as ``shapes`` says. Raises ``UnsupportedModel`` if it does not say so."""
    kind = _element_type(info.type)
    if kind is None:
        return Entry(info)
    count = _count(info, shapes)
    own = (onnx.ValueInfoProto(name=f"{info.name}.{at}", type=kind) for at in range(count))
    if info.type.HasField("sequence_type"):
        own = map(_with_sizes_of_its_own, own)
    return Entry(info, tuple(entry(element, shapes) for element in own))


def of_tensors(shapes: GivenShapes, entries: Sequence[Entry]) -> GivenShapes:
    """``shapes`` without the lengths of lists."""
    lists = {each.info.name for each in entries if each.elements is not None}
    rest = {name: shape for name, shape in shapes.items() if name not in lists}
    inner = [element for each in entries for element in each.elements or ()]
    return of_tensors(rest, inner) if inner else rest


def _element_type(kind: onnx.TypeProto) -> onnx.TypeProto | None:
    if kind.HasField("sequence_type"):
        return kind.sequence_type.elem_type
    return kind.optional_type.elem_type if kind.HasField("optional_type") else None


def _count(info: onnx.ValueInfoProto, shapes: GivenShapes) -> int:
    """The number of tensors in a list."""
    name, is_optional = readable(info.name), info.type.HasField("optional_type")
    given = tuple(shapes.get(info.name, ()))
    if len(given) == 1 and isinstance(given[0], int) and 0 <= given[0] <= (1 if is_optional else MOST_TENSORS):
        return given[0]
    numbers = "(0,) or (1,)" if is_optional else f"(2,), if there are 2 (at most {MOST_TENSORS})"
    what = "an optional" if is_optional else "a sequence"
    raise UnsupportedModel(
        f"input {name} is no tensor but {what}: say how many tensors it has by shapes={{{info.name!r}: ...}}, which is "
        f"{numbers}; these are then inputs {info.name!r} + '.0' ... of their own"
    )


def _with_sizes_of_its_own(info: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """A tensor of a sequence: dimensions that are called alike may differ from one to the next."""
    for dim in info.type.tensor_type.shape.dim if info.type.tensor_type.HasField("shape") else ():
        dim.ClearField("dim_param")
    return info

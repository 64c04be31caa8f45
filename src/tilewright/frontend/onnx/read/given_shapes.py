"""The shapes of a model's inputs, from the file's declarations and the user's shapes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import add

import onnx

from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.base.names import Names, readable
from tilewright.frontend.api import GivenShapes
from tilewright.frontend.onnx.read.protos import check_size
from tilewright.ops.shapes import Shape, simplified
from tilewright.symbolic.expr import Expr, Extent, const

_Dims = tuple[int | str, ...]
"""A shape before its run-time extents are numbered: a str is the user's name of one."""


def input_shapes(
    inputs: Sequence[onnx.ValueInfoProto], given: GivenShapes, least: Mapping[str, int] | None = None
) -> dict[str, Shape]:
    """The shape of each input. A dimension given for one input applies to all inputs that share its name.

    Run-time extents are numbered in order of first use (``n0``, ``n1`` ...): the users' names are labels, on which
    compiled code does not depend; ``least``: their least values. A dimension called ``past + sequence``, after two
    others, is as large as these together: so exporters of language models write it.

    Raises ``InvalidModel`` for a shape that is malformed or contradicts the model, ``UnsupportedModel`` for an input of
    unknown rank.
    """
    names = [info.name for info in inputs]
    unknown = [name for name in given if name not in names]
    if unknown:
        there = ", ".join(map(readable, names)) or "none"
        raise InvalidModel(f"shapes= names {', '.join(map(readable, unknown))}; the inputs are {there}")
    wanted = {name: _given(name, extents) for name, extents in given.items()}
    unnamed = Names(_names_in(inputs, wanted.values()))
    declared = {info.name: _declared(info, wanted.get(info.name), unnamed) for info in inputs}
    bound: dict[str, int | str] = {}
    for name, dims in wanted.items():
        _bind(name, dims, declared[name], bound)
    labels = {dim for dims in declared.values() for dim in dims if isinstance(dim, str)}
    sums = {label: parts for label in labels if (parts := _parts(label, labels)) is not None}
    shapes = {name: tuple(_resolved(dim, bound, sums) for dim in dims) for name, dims in declared.items()}
    for name, dims in shapes.items():
        fixed = tuple(dim for dim in dims if isinstance(dim, int))
        check_size(fixed if len(fixed) == len(dims) else (), f"input {readable(name)}")
    return _numbered(shapes, least or {})


def _numbered(shapes: Mapping[str, _Dims], least: Mapping[str, int]) -> dict[str, Shape]:
    labels = dict.fromkeys(dim for dims in shapes.values() for dim in dims if isinstance(dim, str))
    sums = {label: parts for label in labels if (parts := _parts(label, labels)) is not None}
    own = (label for label in labels if label not in sums)
    extents: dict[str, Expr] = {
        label: Extent(f"n{number}", label=label, least=least.get(label, 0)) for number, label in enumerate(own)
    }
    for label, parts in sums.items():
        extents[label] = simplified(reduce(add, (const(int(p)) if p.isdecimal() else extents[p] for p in parts)))
    return {
        name: tuple(extents[dim] if isinstance(dim, str) else const(dim) for dim in dims)
        for name, dims in shapes.items()
    }


def _parts(label: str, labels: Collection[str]) -> tuple[str, ...] | None:
    """The parts of a name that is a sum of other names, none of which is a sum, and numbers; else None."""
    parts = tuple(part.strip() for part in label.split("+"))
    names = [part for part in parts if not part.isdecimal()]
    return parts if len(parts) > 1 and names and all(name in labels and "+" not in name for name in names) else None


def _names_in(inputs: Iterable[onnx.ValueInfoProto], wanted: Iterable[_Dims]) -> set[str]:
    """The names of dimensions: unnamed ones must get different names."""
    own = {dim.dim_param for info in inputs for dim in info.type.tensor_type.shape.dim if dim.dim_param}
    return own | {dim for dims in wanted for dim in dims if isinstance(dim, str)}


def _given(name: str, extents: Iterable[int | str]) -> _Dims:
    listed = tuple(extents)
    for extent in listed:
        if isinstance(extent, int) and extent < 0:
            raise InvalidModel(f"shapes= gives {list(listed)} for input {readable(name)}; extents are not negative")
    return listed


def _declared(info: onnx.ValueInfoProto, wanted: _Dims | None, unnamed: Names) -> _Dims:
    kind, place = info.type.tensor_type, f"input {readable(info.name)}"
    if not info.type.HasField("tensor_type"):
        raise UnsupportedModel(f"{place} is no tensor; maps and sparse tensors are not supported")
    if kind.HasField("shape"):
        return tuple(_extent(dim, info.name, position, unnamed) for position, dim in enumerate(kind.shape.dim))
    if wanted is None:
        raise UnsupportedModel(f"the model does not say how many dimensions {place} has; give shapes=")
    return wanted


def _extent(dim: "onnx.TensorShapeProto.Dimension", name: str, position: int, unnamed: Names) -> int | str:
    if not dim.HasField("dim_value"):
        return dim.dim_param or unnamed.fresh(f"{name}_{position}")
    if dim.dim_value < 0:
        raise InvalidModel(
            f"input {readable(name)} has extent {dim.dim_value} in dimension {position}; extents are not negative"
        )
    return dim.dim_value


def _bind(name: str, wanted: _Dims, declared: _Dims, bound: dict[str, int | str]) -> None:
    """Record the sizes in ``wanted`` for the dimensions of ``declared``."""
    place = f"input {readable(name)}"
    if len(wanted) != len(declared):
        raise InvalidModel(f"shapes= gives {_show(wanted)} for {place}, which has {len(declared)} dimensions")
    for position, (extent, known) in enumerate(zip(wanted, declared, strict=True)):
        if isinstance(known, int) and extent != known:
            raise InvalidModel(
                f"shapes= gives {_show(wanted)} for {place}: {_show(declared)}, whose dimension {position} is fixed as "
                f"{known} in the model"
            )
        if isinstance(known, str) and bound.setdefault(known, extent) != extent:
            raise InvalidModel(
                f"shapes= gives {_text(extent)} and {_text(bound[known])} for dimension {readable(known)} ({place})"
            )


def _resolved(dim: int | str, bound: Mapping[str, int | str], sums: Mapping[str, Sequence[str]]) -> int | str:
    """A dimension with the given sizes; a sum of given ones is a number. Raises ``InvalidModel`` if it is given, too,
    and differs."""
    if not isinstance(dim, str):
        return dim
    own = bound.get(dim, dim)
    if dim not in sums:
        return own
    parts = [bound.get(part, part) for part in sums[dim]]
    numbers = [int(part) for part in parts if isinstance(part, int) or part.isdecimal()]
    if len(numbers) < len(parts):
        return own if own != dim else " + ".join(map(str, parts))
    if isinstance(own, int) and own != sum(numbers):
        raise InvalidModel(f"shapes= gives {own} for dimension {readable(dim)}, which is {sum(numbers)}")
    return sum(numbers)


def _show(dims: _Dims) -> str:
    return f"[{', '.join(map(_text, dims))}]"


def _text(dim: int | str) -> str:
    return readable(str(dim))

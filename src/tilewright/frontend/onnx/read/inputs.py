"""The inputs of a model: its own, without constants, which old models list as well; tensors of sequences by name."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from tilewright.base.errors import InvalidModel
from tilewright.base.names import readable
from tilewright.frontend.api import GivenShapes
from tilewright.frontend.onnx.read import protos
from tilewright.frontend.onnx.read.given_shapes import input_shapes
from tilewright.frontend.onnx.read.listed import Bound, entry, of_tensors
from tilewright.graph import Value


@dataclass(frozen=True, slots=True)
class Inputs:
    """The tensors, and those inputs that are sequences or optionals of them."""

    values: tuple[Value, ...]
    lists: Mapping[str, Bound]


def inputs_of(source: str | os.PathLike[str] | onnx.ModelProto, shapes: GivenShapes) -> tuple[Value, ...]:
    """The inputs of an ONNX model, before it is imported. Raises as ``importer.load`` does."""
    model = source if isinstance(source, onnx.ModelProto) else protos.read_model(Path(source))
    sparse = (tensor.values.name for tensor in model.graph.sparse_initializer)
    constants = {*(tensor.name for tensor in model.graph.initializer), *sparse}
    return declared([info for info in model.graph.input if info.name not in constants], shapes).values


def declared(
    infos: Sequence[onnx.ValueInfoProto], given: GivenShapes, least: Mapping[str, int] | None = None
) -> Inputs:
    """The inputs of these types and shapes; ``least``: least values of dimensions that are known at run time only.

    Raises ``InvalidModel`` and ``UnsupportedModel``.
    """
    entries = [entry(info, given) for info in infos]
    tensors = [info for each in entries for info in each.infos()]
    names = [info.name for info in tensors]
    repeated = next((name for name in names if names.count(name) > 1), None) if len(tensors) > len(infos) else None
    if repeated is not None:
        raise InvalidModel(f"input {readable(repeated)} has the name of a tensor of a sequence; rename it")
    shapes = input_shapes(tensors, of_tensors(given, entries), least)
    kinds = (protos.stored_dtype_of(i.type.tensor_type.elem_type, f"input {readable(i.name)}") for i in tensors)
    values = tuple(Value(i.name, dtype, shapes[i.name]) for i, dtype in zip(tensors, kinds, strict=True))
    by_name = {value.name: value for value in values}
    return Inputs(values, {each.info.name: each.bound(by_name) for each in entries if each.elements is not None})

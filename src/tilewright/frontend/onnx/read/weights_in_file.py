"""Reads a model's file without its large weights, and these one by one, each into memory of its own.

Protobuf copies them: with the file's bytes and the arrays of the graph they would be in memory three times. So the
message that is parsed names, in the place of each, its range of the file, as if it were external data.
"""

import os
import secrets
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import onnx

from tilewright.base.errors import TilewrightError
from tilewright.base.memory import Budget, memory_guarded
from tilewright.frontend.onnx.read import wire
from tilewright.frontend.onnx.read.external_data import ExternalData, OwnFile, byte_count
from tilewright.frontend.onnx.read.protos import opened_model, parsed

LEAST = 1 << 12
"""Bytes from which on a weight is read apart: a smaller one is parsed in less time."""


@contextmanager
def opened_apart(path: Path) -> Generator[tuple[onnx.ModelProto, ExternalData]]:
    """A context manager: the model in a file, and what reads its weights, which its tensors name as external data.

    Raises ``InvalidModel`` or ``ResourceLimit``.
    """
    with opened_model(path) as file, memory_guarded(f"the model {path} was read"):
        descriptor = os.dup(file.fileno())
        try:
            own = OwnFile(secrets.token_hex(16), path.name, descriptor)
            model = _model(path, own)
        except BaseException:
            os.close(descriptor)
            raise
    outside = ExternalData(path.parent, own)
    try:
        yield model, outside
    finally:
        outside.forget()
        os.close(descriptor)


def _model(path: Path, own: OwnFile) -> onnx.ModelProto:
    content = wire.Bytes(own.descriptor)
    weights = wire.weights(content, LEAST)
    # When memory is exhausted, protobuf raises a signal: its copy must fit besides the bytes.
    Budget().take(2 * (content.size - sum(weight.size for weight in weights)), f"reading {path}")
    rest = wire.without_weights(content, weights, lambda weight: _reference(own, weight))
    model = parsed(rest, os.fspath(path))
    _put_back(model, content, weights)
    return model


def _reference(own: OwnFile, weight: wire.Weight) -> bytes:
    tensor = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", own.location), ("offset", weight.start), ("length", weight.size)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor.SerializeToString()


def _put_back(model: onnx.ModelProto, content: wire.Bytes, weights: Iterable[wire.Weight]) -> None:
    """Bytes that are not those of their tensor's elements go back into the message: importing it says what is wrong."""
    for weight in weights:
        tensor = model.graph.initializer[weight.position]
        if _bytes_of(tensor) != weight.size:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = content.part(weight.start, weight.start + weight.size)


def _bytes_of(tensor: onnx.TensorProto) -> int | None:
    try:
        return byte_count(tensor, "")
    except TilewrightError:
        return None

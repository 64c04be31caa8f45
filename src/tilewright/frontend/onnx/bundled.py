"""Packs an ONNX model as files of a bundle that can be run elsewhere (``insight.repro``).

model.onnx      where it has external data, the places are those in weights.bin
weights.bin     the bytes that its tensors have in other files, and nothing else of those
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import onnx
from google.protobuf.message import DecodeError, EncodeError

from tilewright.base.errors import BadInput, InvalidModel
from tilewright.base.files import reason
from tilewright.base.input_files import read_regular
from tilewright.frontend.api import InMemory, Part
from tilewright.frontend.onnx.read.external_data import ExternalData, all_tensors
from tilewright.frontend.onnx.read.protos import MAX_FILE_BYTES

MODEL = "model.onnx"
WEIGHTS = "weights.bin"
_PIECE = 1 << 20
"""Bytes copied at a time."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """External data: the place of each tensor in the bundle's file. Tensors of equal ranges share them."""

    source: ExternalData
    tensors: tuple[onnx.TensorProto, ...]
    size: int

    def copy(self, file: IO[bytes]) -> None:
        for tensor in self.tensors:
            source, count = self.source.open_bytes(tensor, f"tensor {tensor.name}")
            with source:
                left = count
                while left and (piece := source.read(min(left, _PIECE))):
                    file.write(piece)
                    left -= len(piece)
            if left:
                raise InvalidModel(f"tensor {tensor.name}: its external data was cut while it was read; try again")


def bundled(model: Path | bytes | onnx.ModelProto) -> Mapping[str, Part]:
    """The files. Raises ``BadInput`` if the model can't be packed, ``UntrustedData`` where importing would."""
    if isinstance(model, onnx.ModelProto):
        return {MODEL: _serialized(model)}
    if isinstance(model, bytes):
        return {MODEL: InMemory(model)}
    data = _content(model)
    try:
        proto = onnx.load_model_from_string(data)
    except (DecodeError, ValueError):  # the bundle may be for reporting that error
        return {MODEL: InMemory(data)}
    weights = _moved_weights(proto, model.parent)
    return {MODEL: _serialized(proto), WEIGHTS: weights} if weights.tensors else {MODEL: InMemory(data)}


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        raise BadInput(f"{path} can't be read: {reason(error)}") from error


def _moved_weights(model: onnx.ModelProto, folder: Path) -> _Weights:
    """The external bytes, each once; sets ``model``'s references to places in the bundle."""
    files = ExternalData(folder)
    starts: dict[tuple[int, int, int, int], int] = {}
    kept: list[onnx.TensorProto] = []
    end = 0
    for tensor in all_tensors(model):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        source, count = files.open_bytes(tensor, f"tensor {tensor.name}")
        with source:
            facts = os.fstat(source.fileno())
            key = (facts.st_dev, facts.st_ino, source.tell(), count)
        if key not in starts:
            starts[key] = end
            kept.append(onnx.TensorProto.FromString(tensor.SerializeToString()))
            end += count
        place = {"location": WEIGHTS, "offset": starts[key], "length": count}
        del tensor.external_data[:]
        tensor.external_data.extend(onnx.StringStringEntryProto(key=key, value=str(v)) for key, v in place.items())
    return _Weights(files, tuple(kept), end)


def _serialized(model: onnx.ModelProto) -> InMemory:
    try:
        return InMemory(model.SerializeToString())
    except (ValueError, EncodeError) as error:
        raise BadInput(f"the model can't be written as one file: {error}; pass the path of its file") from error

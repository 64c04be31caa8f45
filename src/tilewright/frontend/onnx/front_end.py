"""The ONNX front end (``frontend.api``): opens a file, its bytes, or a ``ModelProto``."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import onnx
from google.protobuf.message import Error as ProtobufError

from tilewright.base.arguments import NamesAFile
from tilewright.base.errors import BadInput, InvalidModel, ResourceLimit, TilewrightError
from tilewright.base.files import reason, stamp
from tilewright.base.input_files import BinaryFile, all_bytes
from tilewright.base.plugins import identity
from tilewright.base.store import Cache
from tilewright.frontend.api import Coverage, Digest, GivenShapes, Part, Source
from tilewright.frontend.onnx.bundled import bundled
from tilewright.frontend.onnx.onnxruntime import values_of
from tilewright.frontend.onnx.read import external_data, importer, protos
from tilewright.frontend.onnx.read.coverage import coverage
from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.read.inputs import inputs_of
from tilewright.frontend.onnx.read.kept import Kept
from tilewright.graph import Array, Graph, Value

_READER = f"onnx {onnx.__version__}"


@dataclass(frozen=True, slots=True)
class OnnxModel(Source):
    """An ONNX model: a path, the bytes of a file, or a ``ModelProto``."""

    given: Path | bytes | onnx.ModelProto
    operators: tuple[OnnxOperator, ...] = ()

    def load(self, shapes: GivenShapes, bounds: Mapping[str, int], most_bytes: int | None = None) -> Graph:
        return importer.load(self._opened(), shapes, bounds, most_bytes, self.operators)

    def load_around(self, shapes: GivenShapes, bounds: Mapping[str, int]) -> tuple[Graph, Kept | None]:
        """The graph without nodes of unknown operators, and these. Raises as ``load`` does."""
        return importer.load_around(self._opened(), shapes, bounds, self.operators)

    def inputs(self, shapes: GivenShapes) -> Sequence[Value]:
        return inputs_of(self._opened(), shapes)

    def coverage(self, shapes: GivenShapes) -> Coverage:
        return coverage(self._opened(), shapes, self.operators)

    def _opened(self) -> Path | onnx.ModelProto:
        """What ``frontend.onnx.read`` takes."""
        return protos.parse_model(self.given) if isinstance(self.given, bytes) else self.given

    def files(self) -> tuple[Path, ...]:
        """The model's file and those of its external data; if it can't be read, only its own."""
        if not isinstance(self.given, Path):
            return ()
        try:
            locations = external_data.locations(self.given) if self.given.is_file() else ()
        except (OSError, ValueError, TilewrightError):  # importing it reports the error
            locations = ()
        return (self.given, *(self.given.parent / location for location in locations))

    def sha256(self) -> str | None:
        return protos.sha256(self.given)

    def digest(self, notes: Cache) -> Digest | None:
        if not isinstance(self.given, Path):
            source = protos.sha256(self.given)
            return None if source is None else Digest(self._reader(), source, {}, {})
        source, facts = protos.sha256_of_file(self.given)
        files = {self.given: stamp(facts)}
        others = dict[str, str]()
        for location in _locations(self.given, source, notes):
            others[location], facts = external_data.sha256(self.given.parent, location)
            files[self.given.parent / location] = stamp(facts)
        return Digest(self._reader(), source, others, files)

    def _reader(self) -> str:
        """Raises ``ValueError`` if an operator has no identity."""
        return f"{_READER} {identity(self.operators)}" if self.operators else _READER

    def parts(self) -> Mapping[str, Part]:
        try:
            return bundled(self.given)
        except ProtobufError as error:
            raise InvalidModel(f"protobuf: {error}") from error

    def path_for_others(self, folder: Path) -> Path:
        if isinstance(self.given, Path):
            return self.given.absolute()
        content = self.given if isinstance(self.given, bytes) else protos.serialized(self.given)
        if content is None:
            raise ResourceLimit("the model is too large to be handed to another process; save it, and give its path")
        path = folder / "model.onnx"
        try:
            path.write_bytes(content)
        except OSError as error:
            raise BadInput(f"{folder} can't be written, for another process: {reason(error)}; set TMPDIR") from error
        return path

    def by_onnxruntime(self, feeds: Mapping[str, Array], wanted: Iterable[str]) -> Mapping[str, Array]:
        given = self._opened()
        model = protos.read_model(given) if isinstance(given, Path) else given
        return values_of(model, feeds, wanted)


def _locations(path: Path, source: str, notes: Cache) -> list[str]:
    """The files of external data, derived from the model's bytes."""
    key = hashlib.sha256(f"external data of {source}".encode()).hexdigest()
    known = notes.get(key)
    if known is not None:
        return cast("list[str]", json.loads(known))
    found = external_data.locations(path)
    notes.put(key, json.dumps(found).encode())
    return found


@dataclass(frozen=True, slots=True)
class Onnx:
    """The front end of ONNX; ``operators``: in addition to ONNX's own.

    It accepts any path: contents are checked when the file is read. An open file is read to its end.
    """

    operators: tuple[OnnxOperator, ...] = ()
    accepted: str = "a path, bytes, a file open for reading bytes, or a ModelProto"

    def open(self, given: object) -> Source | None:
        if isinstance(given, onnx.ModelProto):
            return OnnxModel(given, self.operators)
        if isinstance(given, str | os.PathLike) and NamesAFile().holds(cast("object", given)):
            return OnnxModel(Path(cast("str | os.PathLike[str]", given)), self.operators)
        if isinstance(given, bytes | bytearray | memoryview | BinaryFile):
            return OnnxModel(all_bytes(cast("bytes | BinaryFile", given), "the model"), self.operators)
        return None

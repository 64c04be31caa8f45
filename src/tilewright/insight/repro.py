"""A model or one kernel as one file that can be run again elsewhere: for reporting a fault, and for finding it.

A bundle is a zip, or a folder if the name does not end in ``.zip``. It is data: nothing of it is a program, and all of
its files have names of our choosing. ``tilewright rerun`` runs it again.

    README.md       what this is and how to rerun it
    settings.json   versions, options, seed, and the error, if there was one
    model.onnx      of a model; where it has external data, the places are those in weights.bin
    weights.bin     the bytes that its tensors have in other files, and nothing else of those
    program.txt     of a kernel: its naive loop program ...
    trace.json      ... and the steps of its schedule
"""

import json
import os
import traceback
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Protocol

import onnx
from google.protobuf.message import DecodeError, EncodeError

from tilewright.base.checks import Checks
from tilewright.base.errors import BadInput, InvalidModel, ResourceLimit
from tilewright.base.files import reason
from tilewright.base.input_files import read_regular
from tilewright.base.numerics import Math
from tilewright.base.outputs import AnyPath, check_output, output
from tilewright.base.settings import PREFIX
from tilewright.base.superopt import Superopt
from tilewright.driver import Options, ScheduledKernel
from tilewright.frontend.onnx.read.external_data import ExternalData, all_tensors
from tilewright.frontend.onnx.read.model_files import files_of
from tilewright.frontend.onnx.read.protos import MAX_FILE_BYTES
from tilewright.insight.doctor import versions

README = "README.md"
MODEL = "model.onnx"
WEIGHTS = "weights.bin"
PROGRAM = "program.txt"
TRACE = "trace.json"
SETTINGS = "settings.json"
_PIECE = 1 << 20
"""Bytes that are copied at a time."""
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked of the compiler, as plain values. ``shapes``: by input; a word is a run-time extent."""

    target: str
    threads: int | None = None
    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict[str, tuple[int | str, ...]])
    bounds: Mapping[str, int] = field(default_factory=dict[str, int])
    checked: bool = False
    math: str = Math.DEFAULT.value
    memory_limit: int | None = None
    superopt: str = Superopt.OFF.value
    checks: str = Checks.ON.value
    seed: int = 0

    @staticmethod
    def of(options: Options, shapes: Mapping[str, tuple[int | str, ...]], seed: int = 0) -> "Request":
        """What ``options`` ask for."""
        return Request(
            str(options.target),
            options.threads,
            shapes,
            options.bounds,
            options.checked,
            options.math.value,
            options.memory_limit,
            options.superopt.value,
            options.checks.value,
            seed,
        )


class _Part(Protocol):
    """The content of one file of a bundle."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def copy(self, file: IO[bytes]) -> None:
        """Write it to ``file``."""
        ...


@dataclass(frozen=True, slots=True)
class _Bytes:
    """What is in memory."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def copy(self, file: IO[bytes]) -> None:
        file.write(self.data)


@dataclass(frozen=True, slots=True)
class _Weights:
    """External data: of each tensor the place in the bundle's file. Tensors of equal bytes share them."""

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


Bundle = Mapping[str, _Part]


def pack_model(
    path: Path,
    model: str | os.PathLike[str] | onnx.ModelProto,
    request: Request,
    error: BaseException | None = None,
    *,
    limit: int | None = None,
    mode: int = 0o666,
) -> tuple[str, ...]:
    """Write a bundle of ``model`` to ``path``; the names of its files.

    Raises ``BadInput`` if that can't be done, ``UntrustedData`` where importing would (a link as external data, a place
    outside of the model's folder), ``ResourceLimit`` if its files have more than ``limit`` bytes.
    """
    bundle: Bundle = {
        README: _Bytes(_readme("model", "compiles the model, runs it on random inputs", error).encode()),
        SETTINGS: _Bytes(_settings("model", request, error).encode()),
        **_model_parts(model),
    }
    size = sum(part.size for part in bundle.values())
    if limit is not None and size > limit:
        raise ResourceLimit(f"it would have {size} bytes, more than {limit}; raise {PREFIX}REPRO_BYTES")
    return _write(path, bundle, files_of(model), mode)


def pack_kernel(
    path: Path, kernel: ScheduledKernel, options: Options, seed: int = 0, inputs: Iterable[AnyPath] = ()
) -> tuple[str, ...]:
    """Write a bundle of one kernel to ``path``, which is none of ``inputs``; the names of its files.

    Raises ``BadInput`` if that can't be done.
    """
    request = Request.of(replace(options, checked=True), {}, seed)
    sources = "".join(f"- {node.source or node.op.name}\n" for group in kernel.groups for node in group.nodes)
    readme = _readme(f"kernel {kernel.program.name}", "replays the schedule, runs the kernel on random inputs", None)
    texts = {
        README: f"{readme}\nIt computes these nodes of the model:\n\n{sources}",
        SETTINGS: _settings("kernel", request, None),
        PROGRAM: f"{kernel.naive}\n",
        TRACE: f"{kernel.schedule.trace.to_json()}\n",
    }
    return _write(path, {name: _Bytes(text.encode()) for name, text in texts.items()}, inputs, 0o666)


def _readme(subject: str, does: str, error: BaseException | None) -> str:
    met = "" if error is None else f"\nCompiling it ended with:\n\n    {type(error).__name__}: {error}\n"
    return f"""\
# A {subject}, packed by Tilewright
{met}
    pip install tilewright   # the version in {SETTINGS}
    tilewright rerun .       # the folder that this file is in

{does.capitalize()}, and holds the results against a reference. It leaves with 0 if they agree, with 1 if they do not,
and shows the error if there is one. {SETTINGS} has versions, options and the seed of the inputs. No file of a bundle is
a program: do not run one that comes with it.
"""


def _settings(kind: str, request: Request, error: BaseException | None) -> str:
    report = {
        "kind": kind,
        "target": request.target,
        "threads": request.threads,
        "shapes": {name: list(shape) for name, shape in request.shapes.items()},
        "bounds": dict(request.bounds),
        "checked": request.checked,
        "math": request.math,
        "memory_limit": request.memory_limit,
        "superopt": request.superopt,
        "checks": request.checks,
        "seed": request.seed,
        "versions": versions(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith((PREFIX, "OMP_"))},
        "error": None if error is None else "".join(traceback.format_exception(error)),
    }
    return json.dumps(report, indent=2) + "\n"


def _model_parts(model: str | os.PathLike[str] | onnx.ModelProto) -> Bundle:
    if isinstance(model, onnx.ModelProto):
        return {MODEL: _serialized(model)}
    path = Path(model)
    data = _content(path)
    try:
        proto = onnx.load_model_from_string(data)
    except (DecodeError, ValueError):  # that may be what is to be reported
        return {MODEL: _Bytes(data)}
    weights = _moved_weights(proto, path.parent)
    return {MODEL: _serialized(proto), WEIGHTS: weights} if weights.tensors else {MODEL: _Bytes(data)}


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        raise BadInput(f"{path} can't be read: {reason(error)}") from error


def _moved_weights(model: onnx.ModelProto, folder: Path) -> _Weights:
    """What is in other files, each byte once; from now on, ``model`` names places in the bundle."""
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


def _serialized(model: onnx.ModelProto) -> _Bytes:
    try:
        return _Bytes(model.SerializeToString())
    except (ValueError, EncodeError) as error:
        raise BadInput(f"the model can't be written as one file: {error}; pass the path of its file") from error


def _write(path: Path, bundle: Bundle, inputs: Iterable[AnyPath], mode: int) -> tuple[str, ...]:
    if path.suffix == ".zip":
        with output(path, inputs, mode=mode) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, part in bundle.items():
                with archive.open(zipfile.ZipInfo(name, _FIRST_DATE), "w", force_zip64=True) as member:
                    part.copy(member)
    else:
        _make_folder(path, tuple(inputs))
        for name, part in bundle.items():
            with output(path / name, mode=mode) as file:
                part.copy(file)
    return tuple(bundle)


def _make_folder(path: Path, inputs: Sequence[AnyPath]) -> None:
    """A new folder, or an empty one: who has a README.md keeps it. Raises ``BadInput``."""
    try:
        if not path.is_dir():
            check_output(path, inputs)
            path.mkdir()
        elif any(path.iterdir()):
            raise BadInput(f"{path} is a folder that is not empty; give another name")
    except OSError as error:
        raise BadInput(f"{path} can't be written: {reason(error)}") from error

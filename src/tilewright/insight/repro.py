"""A model or one kernel as one file that can be run again elsewhere: for reporting a fault, and for finding it.

A bundle is a zip, or a folder if the name does not end in ``.zip``:

    README.md       what this is and how to rerun it
    rerun.py        reruns it; leaves with 0 if the results are right (what it does is in ``rerun``)
    settings.json   versions, options, seed, and the error, if there was one
    model.onnx      of a model, with the files of its external data
    program.txt     of a kernel: its naive loop program ...
    trace.json      ... and the steps of its schedule
"""

import json
import os
import tempfile
import traceback
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from tilewright.base.errors import BadInput
from tilewright.base.numerics import Math
from tilewright.base.settings import PREFIX
from tilewright.base.superopt import Superopt
from tilewright.driver import Options, ScheduledKernel
from tilewright.insight.doctor import versions

MODEL = "model.onnx"
PROGRAM = "program.txt"
TRACE = "trace.json"
SETTINGS = "settings.json"
RERUN = """\
from pathlib import Path

from tilewright.insight.rerun import rerun

raise SystemExit(rerun(Path(__file__).parent))
"""
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
            seed,
        )


def pack_model(
    path: Path, model: str | os.PathLike[str] | onnx.ModelProto, request: Request, error: BaseException | None = None
) -> tuple[str, ...]:
    """Write a bundle of ``model`` to ``path``; the names of its files. Raises ``BadInput`` if that can't be done."""
    files = {"README.md": _readme("model", "compiles the model, runs it on random inputs", error).encode()}
    files |= {"rerun.py": RERUN.encode(), SETTINGS: _settings("model", request, error).encode()}
    return _write(path, {**files, **dict(_model_files(model))})


def pack_kernel(path: Path, kernel: ScheduledKernel, options: Options, seed: int = 0) -> tuple[str, ...]:
    """Write a bundle of one kernel to ``path``; the names of its files. Raises ``BadInput`` if that can't be done."""
    request = Request.of(replace(options, checked=True), {}, seed)
    sources = "".join(f"- {node.source or node.op.name}\n" for group in kernel.groups for node in group.nodes)
    readme = _readme(f"kernel {kernel.program.name}", "replays the schedule, runs the kernel on random inputs", None)
    return _write(
        path,
        {
            "README.md": f"{readme}\nIt computes these nodes of the model:\n\n{sources}".encode(),
            "rerun.py": RERUN.encode(),
            SETTINGS: _settings("kernel", request, None).encode(),
            PROGRAM: f"{kernel.naive}\n".encode(),
            TRACE: f"{kernel.schedule.trace.to_json()}\n".encode(),
        },
    )


def pack_fault(
    model: str | os.PathLike[str] | onnx.ModelProto, request: Request, error: BaseException
) -> Path | BadInput:
    """A bundle for a fault, in a new folder of the system's folder for temporary files; or why there is none."""
    try:
        path = Path(tempfile.mkdtemp(prefix="tilewright-")) / "repro.zip"
        pack_model(path, model, request, error)
    except OSError as reason:
        return BadInput(str(reason))
    except BadInput as reason:
        return reason
    return path


def _readme(subject: str, does: str, error: BaseException | None) -> str:
    met = "" if error is None else f"\nCompiling it ended with:\n\n    {type(error).__name__}: {error}\n"
    return f"""\
# A {subject}, packed by Tilewright
{met}
    pip install tilewright   # the version in {SETTINGS}
    python rerun.py

{does.capitalize()}, and holds the results against a reference. It leaves with 0 if they agree, with 1 if they do not,
and shows the error if there is one. {SETTINGS} has versions, options and the seed of the inputs.
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
        "seed": request.seed,
        "versions": versions(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith((PREFIX, "OMP_"))},
        "error": None if error is None else "".join(traceback.format_exception(error)),
    }
    return json.dumps(report, indent=2) + "\n"


def _model_files(model: str | os.PathLike[str] | onnx.ModelProto) -> Iterator[tuple[str, bytes]]:
    if isinstance(model, onnx.ModelProto):
        yield MODEL, _serialized(model)
        return
    path = Path(model)
    try:
        data = path.read_bytes()
        yield MODEL, data
        for location in _external_locations(data):
            yield location, (path.parent / location).read_bytes()
    except OSError as error:
        raise BadInput(f"{path} can't be read: {error}") from error


def _serialized(model: onnx.ModelProto) -> bytes:
    try:
        return model.SerializeToString()
    except ValueError as error:
        raise BadInput(f"the model can't be written as one file: {error}; pass the path of its file") from error


def _external_locations(data: bytes) -> Iterable[str]:
    """The files of a model's external data; only names within its folder are followed."""
    try:
        model = onnx.load_model_from_string(data)
    except DecodeError:
        return ()
    tensors = [tensor for tensor in model.graph.initializer if uses_external_data(tensor)]
    names = dict.fromkeys(ExternalDataInfo(tensor).location for tensor in tensors)
    return [name for name in names if not Path(name).is_absolute() and ".." not in Path(name).parts]


def _write(path: Path, files: Mapping[str, bytes]) -> tuple[str, ...]:
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in files.items():
                    archive.writestr(zipfile.ZipInfo(name, _FIRST_DATE), data)
        else:
            for name, data in files.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(data)
    except OSError as error:
        raise BadInput(f"{path} can't be written: {error}") from error
    return tuple(files)

"""Packs a model or a kernel into one file that can be run again elsewhere, to report and debug a fault.

A bundle is a zip file, or a folder if the name does not end in ``.zip``. It contains data only, no programs, in files
with fixed names. ``tilewright rerun`` runs it again.

    README.md       what this is and how to rerun it
    settings.json   versions, options, seed, and the error, if there was one
    model.onnx      for a model; its front end defines the names of the files (``Source.parts``)
        program.txt     for a kernel: its naive loop program ...
    trace.json      ... and the steps of its schedule
"""

import json
import os
import traceback
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.backend.cpu.backend import CPU
from tilewright.base.checks import Checks
from tilewright.base.errors import BadInput, ResourceLimit
from tilewright.base.files import reason
from tilewright.base.numerics import Math, Precision
from tilewright.base.outputs import AnyPath, check_output, output
from tilewright.base.settings import PREFIX
from tilewright.base.superopt import Superopt
from tilewright.compilation import Options
from tilewright.frontend.api import InMemory, Part, Source
from tilewright.insight.versions import versions
from tilewright.passes.scheduled import ScheduledKernel

README = "README.md"
PROGRAM = "program.txt"
TRACE = "trace.json"
SETTINGS = "settings.json"
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a compilation as plain values. ``shapes``: by input; a word is a run-time extent."""

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
    backend: str = CPU.name
    precision: str = Precision.FP32.value

    @staticmethod
    def of(options: Options, shapes: Mapping[str, tuple[int | str, ...]], seed: int = 0) -> "Request":
        """The request for ``options``."""
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
            options.backend.name,
            options.precision.value,
        )


Bundle = Mapping[str, Part]


def pack_model(
    path: Path,
    source: Source,
    request: Request,
    error: BaseException | None = None,
    *,
    limit: int | None = None,
    mode: int = 0o666,
) -> tuple[str, ...]:
    """Write a bundle of the model to ``path``; the names of its files.

    Raises ``BadInput`` if it can't be written, ``UntrustedData`` as importing does (a link as external data, a path
    outside of the model's folder), ``ResourceLimit`` if its files have more than ``limit`` bytes.
    """
    parts = source.parts()
    bundle: Bundle = {
        README: InMemory(_readme("model", "compiles the model, runs it on random inputs", error).encode()),
        SETTINGS: InMemory(_settings("model", request, error, next(iter(parts))).encode()),
        **parts,
    }
    size = sum(part.size for part in bundle.values())
    if limit is not None and size > limit:
        raise ResourceLimit(f"it would have {size} bytes, more than {limit}; raise {PREFIX}REPRO_BYTES")
    return _write(path, bundle, source.files(), mode)


def pack_kernel(
    path: Path, kernel: ScheduledKernel, options: Options, seed: int = 0, inputs: Iterable[AnyPath] = ()
) -> tuple[str, ...]:
    """Write a bundle of one kernel to ``path``, which must not be one of ``inputs``; returns the names of its files.

    Raises ``BadInput`` if it can't be written.
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
    return _write(path, {name: InMemory(text.encode()) for name, text in texts.items()}, inputs, 0o666)


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


def _settings(kind: str, request: Request, error: BaseException | None, model: str = "") -> str:
    report = {
        "kind": kind,
        "model": model,
        "target": request.target,
        "threads": request.threads,
        "shapes": {name: list(shape) for name, shape in request.shapes.items()},
        "bounds": dict(request.bounds),
        "checked": request.checked,
        "math": request.math,
        "precision": request.precision,
        "memory_limit": request.memory_limit,
        "superopt": request.superopt,
        "checks": request.checks,
        "seed": request.seed,
        "backend": request.backend,
        "versions": versions(),
        "environment": {name: value for name, value in os.environ.items() if name.startswith((PREFIX, "OMP_"))},
        "error": None if error is None else "".join(traceback.format_exception(error)),
    }
    return json.dumps(report, indent=2) + "\n"


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
    """Make the folder, which must be new or empty, so that no README.md is overwritten. Raises ``BadInput``."""
    try:
        if not path.is_dir():
            check_output(path, inputs)
            path.mkdir()
        elif any(path.iterdir()):
            raise BadInput(f"{path} is a folder that is not empty; give another name")
    except OSError as error:
        raise BadInput(f"{path} can't be written: {reason(error)}") from error

"""Runs a bundle of ``repro`` with the same options and inputs, and compares the results with a reference."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import cast

import numpy as np
from rich.console import Console

from tilewright.backend.choice import backend
from tilewright.base.arrays import Array, random_array
from tilewright.base.checks import Checks
from tilewright.base.errors import BadInput
from tilewright.base.numerics import Math, Precision
from tilewright.base.superopt import Superopt
from tilewright.compilation import Options, build_program
from tilewright.driver import compile_graph
from tilewright.frontend.opening import opened
from tilewright.insight.compare import TOLERANCE, all_values, compare
from tilewright.insight.console import plain_console
from tilewright.insight.profile import extents_of
from tilewright.insight.references import in_float64
from tilewright.insight.repro import PROGRAM, SETTINGS, TRACE
from tilewright.kernels.dot_products import all_dot_products
from tilewright.kernels.packing import stored_by
from tilewright.loops.parser import parse_program
from tilewright.measure.difference import difference
from tilewright.runtime.manifest import Manifest, Symbol
from tilewright.schedule.replay import replay
from tilewright.schedule.trace import Trace
from tilewright.target.target import Target

SMALL_EXTENT = 7
"""The size of run-time extents, or their bound if that is smaller."""

_Settings = Mapping[str, object]


class _Kind(Enum):
    MODEL = "model"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class _Asked:
    """The contents of a bundle. ``model``: the file's name; ``texts``: program and trace of a kernel."""

    kind: _Kind
    options: Options
    shapes: Mapping[str, tuple[int | str, ...]]
    seed: int
    model: str
    texts: tuple[str, ...]


def rerun(folder: Path, console: Console | None = None) -> bool:
    """Run the bundle in ``folder``, and print to ``console``; returns whether the results agree with the reference.

    Raises ``BadInput`` if it is no bundle, and the errors of compiling.
    """
    asked, out = _read(folder), console or plain_console()
    return _rerun_model(folder / asked.model, asked, out) if asked.kind is _Kind.MODEL else _rerun_kernel(asked, out)


def _read(folder: Path) -> _Asked:
    try:
        settings = cast(_Settings, json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
        kind = _Kind(settings["kind"])
        shapes = cast("Mapping[str, Sequence[int | str]]", settings["shapes"])
        names = (PROGRAM, TRACE) if kind is _Kind.KERNEL else ()
        return _Asked(
            kind,
            _options(settings),
            {name: tuple(shape) for name, shape in shapes.items()},
            int(cast(int, settings["seed"])),
            Path(cast(str, settings.get("model", "model.onnx"))).name,  # never out of the folder
            tuple((folder / name).read_text(encoding="utf-8") for name in names),
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(f"{folder} holds no bundle: {type(error).__name__}: {error}") from error


def _rerun_model(path: Path, asked: _Asked, console: Console) -> bool:
    graph = opened(path, function="rerun").load(asked.shapes, {})
    compiled = compile_graph(graph, asked.options)
    feeds = random_inputs(compiled.executable.manifest, asked.seed)
    values = all_values(compiled, feeds)
    extents = extents_of(compiled.executable.manifest, feeds)
    reference = in_float64(graph, feeds, map(compiled.name_in_model, values), extents)
    found = compare(compiled, compiled.executable.run(feeds), values, reference, "reference")
    found.show(console)
    return found.agrees


def _rerun_kernel(asked: _Asked, console: Console) -> bool:
    program, trace = asked.texts
    options = asked.options
    naive = parse_program(program)
    schedule = replay(Trace.from_json(trace), naive, intrinsics=all_dot_products())
    executable = build_program(schedule.program, options.target, threads=options.threads, checked=True)
    reference = build_program(naive, options.target, threads=1, checked=True)
    feeds = random_inputs(reference.manifest, asked.seed)
    results, expected = executable.run(stored_by(schedule.program, feeds)), reference.run(feeds)
    worst = max(difference(y, r).worst for y, r in zip(results, expected, strict=True))
    told = f"{naive.name}: the results differ from those of the naive program by {worst:.1e}"
    console.print(told, highlight=False, markup=False)
    return worst <= TOLERANCE


def _options(settings: _Settings) -> Options:
    return Options(
        Target.parse(cast(str, settings["target"])),
        cast("int | None", settings["threads"]),
        dict(cast("Mapping[str, int]", settings["bounds"])),
        cast(bool, settings["checked"]),
        Math.named(cast(str, settings["math"])),
        cast("int | None", settings["memory_limit"]),
        Superopt.named(cast(str, settings["superopt"])),
        Checks.named(cast(str, settings["checks"])),
        backend(cast(str, settings["backend"])),
        precision=Precision.named(cast(str, settings["precision"])),
    )


def random_inputs(manifest: Manifest, seed: int) -> dict[str, Array]:
    """Arrays for each input (see ``random_array``); run-time extents are ``SMALL_EXTENT``, or the nearest bound."""
    generator = np.random.default_rng(seed)
    extents = {symbol.name: _within(symbol, SMALL_EXTENT) for symbol in manifest.symbols}
    return {spec.name: random_array(spec.dtype, spec.concrete(extents), generator) for spec in manifest.inputs}


def _within(symbol: Symbol, extent: int) -> int:
    """``extent``, clamped to the bounds of ``symbol``."""
    least = max(extent, symbol.minimum)
    return least if symbol.maximum is None else min(least, symbol.maximum)

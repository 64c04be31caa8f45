"""Runs what ``repro`` packed: the same options, the same inputs, and the results beside a reference."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from rich.console import Console

from tilewright.base.arrays import Array, random_array
from tilewright.base.errors import BadInput
from tilewright.base.numerics import Math
from tilewright.base.superopt import Superopt
from tilewright.base.target import Target
from tilewright.driver import Options, build_program
from tilewright.frontend import onnx_importer
from tilewright.insight.compare import TOLERANCE, all_values, compare
from tilewright.insight.profile import extents_of
from tilewright.insight.references import in_float64
from tilewright.insight.repro import MODEL, PROGRAM, SETTINGS, TRACE
from tilewright.loops.parser import parse_program
from tilewright.measure.difference import difference
from tilewright.runtime.manifest import Manifest, Symbol
from tilewright.schedule.replay import replay
from tilewright.schedule.trace import Trace
from tilewright.superoptimizer import compile_graph

UNKNOWN_EXTENT = 7
"""What a run-time extent is, if it has no smaller bound."""

_Settings = Mapping[str, object]


def rerun(folder: Path) -> int:
    """Run the bundle in ``folder``: 0 if the results agree with the reference, 1 if not. Raises what compiling does."""
    try:
        settings = cast(_Settings, json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder} holds no bundle: {error}") from error
    return _rerun_model(folder, settings) if settings["kind"] == "model" else _rerun_kernel(folder, settings)


def _rerun_model(folder: Path, settings: _Settings) -> int:
    shapes = cast("Mapping[str, Sequence[int | str]]", settings["shapes"])
    graph = onnx_importer.load(folder / MODEL, shapes)
    compiled = compile_graph(graph, _options(settings))
    feeds = random_inputs(compiled.executable.manifest, cast(int, settings["seed"]))
    values = all_values(compiled, feeds)
    extents = extents_of(compiled.executable.manifest, feeds)
    reference = in_float64(graph, feeds, map(compiled.name_in_model, values), extents)
    found = compare(compiled, compiled.executable.run(feeds), values, reference, "reference")
    found.show()
    return 0 if found.agrees else 1


def _rerun_kernel(folder: Path, settings: _Settings) -> int:
    naive = parse_program((folder / PROGRAM).read_text(encoding="utf-8"))
    schedule = replay(Trace.from_json((folder / TRACE).read_text(encoding="utf-8")), naive)
    options = _options(settings)
    executable = build_program(schedule.program, options.target, threads=options.threads, checked=True)
    feeds = random_inputs(executable.manifest, cast(int, settings["seed"]))
    results = executable.run(feeds)
    expected = build_program(naive, options.target, threads=1, checked=True).run(feeds)
    worst = max(difference(y, r).worst for y, r in zip(results, expected, strict=True))
    told = f"{naive.name}: the results differ from those of the naive program by {worst:.1e}"
    Console().print(told, highlight=False, markup=False)
    return 0 if worst <= TOLERANCE else 1


def _options(settings: _Settings) -> Options:
    return Options(
        Target.parse(cast(str, settings["target"])),
        cast("int | None", settings["threads"]),
        cast("Mapping[str, int]", settings["bounds"]),
        cast(bool, settings["checked"]),
        Math.named(cast(str, settings["math"])),
        cast("int | None", settings["memory_limit"]),
        Superopt.named(cast(str, settings["superopt"])),
    )


def random_inputs(manifest: Manifest, seed: int) -> dict[str, Array]:
    """Arrays for each input (see ``random_array``); run-time extents are ``UNKNOWN_EXTENT``, or the nearest bound."""
    generator = np.random.default_rng(seed)
    extents = {symbol.name: _within(symbol, UNKNOWN_EXTENT) for symbol in manifest.symbols}
    return {spec.name: random_array(spec.dtype, spec.concrete(extents), generator) for spec in manifest.inputs}


def _within(symbol: Symbol, extent: int) -> int:
    """``extent``, or the bound of ``symbol`` that it is beyond."""
    least = max(extent, symbol.minimum)
    return least if symbol.maximum is None else min(least, symbol.maximum)

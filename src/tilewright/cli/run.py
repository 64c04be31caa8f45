"""``tilewright run``: compile a model (or load an artifact), run it once, and show or save its outputs."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tilewright.base import fields
from tilewright.base.errors import BadInput
from tilewright.base.files import reason
from tilewright.base.outputs import output
from tilewright.cli.feeds import make_feeds
from tilewright.cli.fleet_options import add_device
from tilewright.cli.options import add_model_arguments, duration, files, is_artifact
from tilewright.cli.output import emit
from tilewright.cli.places import placed
from tilewright.cli.status import Status
from tilewright.graph import Array


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of one output; ``least``, ``mean`` and ``largest`` are None if it has no elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    least: float | None
    mean: float | None
    largest: float | None
    file: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``options``, and where to save."""
    add_model_arguments(parser)
    add_device(parser)
    parser.add_argument("--timeout", type=duration, metavar="SECONDS", help="time limit of the run, without compiling")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="folder to save outputs in, as output_0.npy, output_1.npy ..."
    )


def execute(options: argparse.Namespace, console: Console) -> int:
    """Compile, run, report."""
    _make(options.output)
    begin = time.perf_counter()
    with placed(options) as place:
        model = place.model
        made = time.perf_counter()
        feeds = make_feeds(model.inputs, files(options.inputs), options.random_seed)
        started = time.perf_counter()
        results = place.run(feeds, options.timeout)
        seconds = {"compile": made - begin, "run": time.perf_counter() - started}
        device, simulated = place.device(), place.simulated
    saved = _save(results, options.output, [options.model, *files(options.inputs).values()])
    names = [spec.name for spec in model.outputs]
    summaries = [summarize(*item) for item in zip(names, results, saved, strict=True)]
    if options.json:
        outputs = [asdict(summary) for summary in summaries]
        told = {"model": str(options.model), "signer": model.signer, "device": device}
        emit({**told, "seconds": seconds, "outputs": outputs})
    else:
        if model.signer is not None:
            console.print(f"signed by {model.signer}", soft_wrap=True)
        made_by = "loaded" if is_artifact(options.model) else "compiled"
        console.print(f"{made_by} in {seconds['compile']:.2f} s, ran in {seconds['run'] * 1e3:.2f} ms")
        if simulated and device is not None:
            millions = fields.numbers(device["machine"])["cycles"] / 1e6
            console.print(f"{millions:.3f} million simulated cycles: {simulated}", highlight=False)
        console.print(_table(summaries))
    return Status.DONE


def _make(folder: Path | None) -> None:
    """Check the folder before compiling. Raises ``BadInput``."""
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--output {folder} can't be made: {reason(error)}") from error


def _save(results: Sequence[Array], folder: Path | None, inputs: Sequence[Path]) -> list[Path | None]:
    """Where each output was written. Output names are arbitrary texts, so they are not used as file names."""
    if folder is None:
        return [None] * len(results)
    paths = [folder / f"output_{position}.npy" for position in range(len(results))]
    for path, result in zip(paths, results, strict=True):
        with output(path, inputs) as file:
            np.save(file, result, allow_pickle=False)
    return [*paths]


def summarize(name: str, result: Array, path: Path | None) -> Summary:
    """The summary of one output."""
    file = None if path is None else str(path)
    if not result.size:
        return Summary(name, str(result.dtype), result.shape, None, None, None, file)
    wide = result.astype(np.float64)
    least, mean, largest = float(wide.min()), float(wide.mean()), float(wide.max())
    return Summary(name, str(result.dtype), result.shape, least, mean, largest, file)


def _table(summaries: Sequence[Summary]) -> Table:
    saved = any(summary.file for summary in summaries)
    table = Table(title="Outputs")
    for heading in ("name", "type", "shape", "least", "mean", "largest", *(["file"] if saved else [])):
        table.add_column(heading)
    for summary in summaries:
        numbers = ("" if n is None else f"{n:.6g}" for n in (summary.least, summary.mean, summary.largest))
        file = [summary.file or ""] if saved else []
        table.add_row(repr(summary.name)[1:-1], summary.dtype, str(list(summary.shape)), *numbers, *file)
    return table

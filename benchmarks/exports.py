"""What Tilewright makes of exported models: `python -m benchmarks.exports [--folder build/exports] [NAME ...]`.

Each architecture of `architectures.py` is exported by both of torch's exporters, with fixed and with open dimensions,
compiled, run at several sizes, and compared with ONNX Runtime. Each export has a process of its own. Prints a line for
each, and the counts. Needs torch, torchvision, timm and transformers.

right     agrees within 1e-4 of the largest number, at all sizes
per size  the same, but compiled for each size: the reason
refused   a typed error: its text
wrong     other numbers, shapes or dtypes, or an error of another kind
crash     the process ended, or took longer than --seconds
no model  torch can't export it so, or ONNX Runtime can't run what it exported
"""

import argparse
import json
import logging
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .options import names

TOLERANCE = 1e-4
"""Relative to the largest magnitude of an output."""


class Exporter(Enum):
    DYNAMO = "dynamo"
    SCRIPT = "script"


class Sizes(Enum):
    FIXED = "fixed"
    OPEN = "open"


class Verdict(Enum):
    RIGHT = "right"
    PER_SIZE = "per size"
    REFUSED = "refused"
    WRONG = "wrong"
    CRASH = "crash"
    NO_MODEL = "no model"


@dataclass(frozen=True, slots=True)
class Case:
    """One export of one architecture."""

    name: str
    exporter: Exporter
    sizes: Sizes

    @property
    def file(self) -> str:
        return f"{self.name}.{self.exporter.value}.{self.sizes.value}.onnx"


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a case. `verdict` is the value of a `Verdict`; findings travel as JSON."""

    verdict: str
    note: str = ""


Feeds = Mapping[str, NDArray[np.generic]]


def export(case: Case, folder: Path) -> Path:
    """Write the case's model, unless it is there. Raises whatever torch's exporters raise."""
    import torch

    from .architectures import ARCHITECTURES

    path = folder / case.file
    if path.exists():
        return path
    chosen = ARCHITECTURES[case.name]
    torch.manual_seed(0)
    network = chosen.create().eval()
    inputs = chosen.inputs(chosen.batches[0], chosen.sizes[0])
    names = [f"x{position}" for position in range(len(inputs))]
    is_open = case.sizes is Sizes.OPEN
    options: dict[str, object] = {"input_names": names}
    if case.exporter is Exporter.DYNAMO:
        axes = tuple({axis: torch.export.Dim.DYNAMIC for axis in given} for given in chosen.open)
        options |= {"dynamo": True, "dynamic_shapes": _nested(network, axes) if is_open else None, "verbose": False}
    else:
        axes = {name: dict(given) for name, given in zip(names, chosen.open, strict=True)}
        options |= {"dynamo": False, "dynamic_axes": axes if is_open else None, "opset_version": 17}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, inputs, str(path), **options)
    return path


def _nested(network: object, axes: tuple[Mapping[int, object], ...]) -> tuple[object, ...]:
    """As `First` takes its inputs: as one variadic argument."""
    from .architectures import First

    return (axes,) if isinstance(network, First) else axes


def feeds_of(case: Case) -> list[Feeds]:
    """Inputs at the export's sizes, and at others if the dimensions are open."""
    import torch

    from .architectures import ARCHITECTURES

    chosen = ARCHITECTURES[case.name]
    torch.manual_seed(1)
    pairs = [(chosen.batches[0], chosen.sizes[0])]
    if case.sizes is Sizes.OPEN:
        others = zip(chosen.batches[1:], (*chosen.sizes[1:], *chosen.sizes), strict=False)
        pairs += others
    made = (chosen.inputs(batch, size) for batch, size in pairs)
    return [{f"x{position}": x.numpy() for position, x in enumerate(inputs)} for inputs in made]


def examine(case: Case, folder: Path) -> Finding:
    """Export, compile, run, compare."""
    import onnxruntime

    import tilewright
    from tilewright.base.errors import BadInput, Unsupported
    from tilewright.specialize import SpecializingModel

    onnxruntime.set_default_logger_severity(4)
    logging.getLogger("tilewright").setLevel(logging.ERROR)
    try:
        path = export(case, folder)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        known = {value.name for value in session.get_inputs()}
        all_feeds = [{name: x for name, x in feeds.items() if name in known} for feeds in feeds_of(case)]
        expected = [session.run(None, feeds) for feeds in all_feeds]
    except Exception as error:  # noqa: BLE001  exporters raise anything
        return Finding(Verdict.NO_MODEL.value, _short(error))
    try:
        model = tilewright.compile(path, threads=1)
        found = [model.run(None, feeds) for feeds in all_feeds]
    except (BadInput, Unsupported) as error:
        return Finding(Verdict.REFUSED.value, _short(error))
    except Exception as error:  # noqa: BLE001  any other error is a fault, and reported
        return Finding(Verdict.WRONG.value, _short(error))
    worst = max(difference(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
    if not worst <= TOLERANCE:
        return Finding(Verdict.WRONG.value, f"off by {worst:.1e}")
    if isinstance(model, SpecializingModel):
        return Finding(Verdict.PER_SIZE.value, model.explain().findings[-1].reason)
    return Finding(Verdict.RIGHT.value, f"{worst:.0e}")


def difference(ours: Sequence[NDArray[np.generic]], theirs: Sequence[NDArray[np.generic]]) -> float:
    """The largest difference of an output, relative to its largest magnitude; infinite for another shape or dtype."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if b.size:
            x, y = a.astype(np.float64), b.astype(np.float64)
            worst = max(worst, float(np.max(np.abs(x - y)) / max(float(np.max(np.abs(y))), 1e-30)))
    return worst


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:400]}" + (f" ... ({len(str(error))} characters)" if len(text) > 400 else "")


def in_a_process(case: Case, folder: Path, seconds: float) -> Finding:
    """`examine` in a process of its own."""
    child = [sys.executable, "-m", "benchmarks.exports", "--folder", str(folder), "--one"]
    command = [*child, case.name, case.exporter.value, case.sizes.value]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Finding(Verdict.CRASH.value, f"took longer than {seconds:.0f} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return Finding(Verdict.CRASH.value, f"exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return Finding(**json.loads(lines[-1]))


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.one:
        name, exporter, sizes = options.names
        print("\n" + json.dumps(asdict(examine(Case(name, Exporter(exporter), Sizes(sizes)), options.folder))))
        return 0
    from .architectures import ARCHITECTURES

    exporters, sizes = [Exporter(e) for e in options.exporters], [Sizes(s) for s in options.sizes]
    counts: Counter[str] = Counter()
    for name, exporter, size in product(options.names or ARCHITECTURES, exporters, sizes):
        case = Case(name, exporter, size)
        found = in_a_process(case, options.folder, options.seconds)
        counts[found.verdict] += 1
        print(f"{name:32} {exporter.value:7} {size.value:6} {found.verdict:9} {found.note}", flush=True)
    print(", ".join(f"{verdict}: {count}" for verdict, count in counts.most_common()))
    return 1 if counts[Verdict.WRONG.value] or counts[Verdict.CRASH.value] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exports", description="Compile exported models.")
    parser.add_argument("--folder", type=Path, default=Path("build/exports"), help="of the files, default %(default)s")
    parser.add_argument("--exporters", type=names, default=[e.value for e in Exporter], help="default both, by commas")
    parser.add_argument("--sizes", type=names, default=[s.value for s in Sizes], help="default both, by commas")
    parser.add_argument("--seconds", type=float, default=300.0, help="for one export, default %(default)s")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default all")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

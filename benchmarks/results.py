"""What was measured, as a JSON file, so that tables and pictures can be made again without measuring."""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from .accuracy import Accuracy
from .harness import Spread, spread

PACKAGES = ("tilewright", "numpy", "llvmlite", "onnx", "onnxruntime", "openvino", "torch")


@dataclass(frozen=True, slots=True)
class Row:
    """One peer on one case with some number of threads; a failed one has a reason, and perhaps no numbers."""

    case: str
    threads: int
    peer: str
    failure: str = ""
    slots: tuple[float, ...] = ()
    """Median of each slot, in seconds."""
    median: float = 0.0
    """Of all runs, in seconds."""
    share: float = 0.0
    """Of the floating-point peak, by the definitions' operations: above 1 where an algorithm needs fewer."""
    error: Accuracy | None = None
    """Against float64, the worst of all samples."""


@dataclass(frozen=True, slots=True)
class Compilation:
    """What it takes to compile a case with Tilewright, and to load and run its artifact once, each in a new process.

    Times are in seconds, and in CPU seconds of all threads, which are the same on a busy machine. Not counted are the
    imports of the compiler, and of NumPy when an artifact is loaded.
    """

    case: str
    threads: int
    failure: str = ""
    cold: float = 0.0
    cold_cpu: float = 0.0
    warm: float = 0.0
    warm_cpu: float = 0.0
    artifact: float = 0.0
    artifact_cpu: float = 0.0
    artifact_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Results:
    """Everything of one benchmark."""

    host: str = ""
    versions: str = ""
    rows: tuple[Row, ...] = ()
    compilations: tuple[Compilation, ...] = ()
    measured: str = ""
    """The day, and the commit of the compiler."""

    def with_rows(self, rows: Iterable[Row]) -> "Results":
        """These rows in place of what there was for their cases and threads: ratios hold within one run only."""
        new = tuple(rows)
        measured = {(row.case, row.threads) for row in new}
        return replace(self, rows=(*(row for row in self.rows if (row.case, row.threads) not in measured), *new))

    def with_compilation(self, new: Compilation) -> "Results":
        """This compilation in place of an earlier one of the case."""
        kept = (old for old in self.compilations if (old.case, old.threads) != (new.case, new.threads))
        return replace(self, compilations=(*kept, new))

    def row(self, case: str, threads: int, peer: str) -> Row | None:
        """The row, if there is one."""
        return next((r for r in self.rows if (r.case, r.threads, r.peer) == (case, threads, peer)), None)

    def ratio(self, case: str, threads: int, peer: str, baseline: str) -> Spread | None:
        """How many times longer `peer` takes than `baseline`: quartiles over the rounds; None where one failed."""
        pair = [self.row(case, threads, name) for name in (peer, baseline)]
        above, below = (row.slots if row and not row.failure else () for row in pair)
        return spread([a / b for a, b in zip(above, below, strict=True)]) if above and below else None


def save(results: Results, path: Path) -> None:
    """Write the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(results), indent=1) + "\n")


def load(path: Path) -> Results:
    """Read what `save` wrote; empty results of this machine if there is no file."""
    if not path.exists():
        return Results(host(), versions(), measured=revision())
    fields: dict[str, Any] = json.loads(path.read_text())
    rows = tuple(_row(row) for row in fields.pop("rows"))
    return Results(**fields | {"rows": rows, "compilations": tuple(Compilation(**c) for c in fields["compilations"])})


def _row(fields: dict[str, Any]) -> Row:
    error = fields["error"]
    return Row(**fields | {"slots": tuple(fields["slots"]), "error": error and Accuracy(**error)})


def revision() -> str:
    """Today, and the commit that is checked out; "+" if files were changed since."""
    git = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    found = subprocess.run(git, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return f"on {date.today()}, commit {found.stdout.strip() or 'unknown'}"


def host() -> str:
    """This machine in a few words: its processor and the number of cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} {'core' if cores == 1 else 'cores'} of {_processor()}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(packages: Sequence[str] = PACKAGES) -> str:
    """Python and the packages that are installed."""
    installed = {distribution.name.lower(): distribution.version for distribution in metadata.distributions()}
    named = [f"{name} {installed[name]}" for name in packages if name in installed]
    return ", ".join([f"Python {platform.python_version()}", *named])

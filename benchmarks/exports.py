"""What Tilewright makes of PyTorch's networks: `python -m benchmarks.exports [--folder build/exports] [NAME ...]`.

Each architecture of `architectures.py` is given to Tilewright in several ways (`export_ways.py`), with fixed and with
open dimensions, compiled, run at several sizes, and compared with PyTorch. Each case has a process of its own. Prints a
line for each, and the counts, and keeps what was found in `benchmarks/results/exports.json`, of which
`python -m benchmarks.document` makes docs/appendix/exports.md. Needs torch, torchvision, timm and transformers.

right     agrees within 1e-4 of the largest number, at all sizes
per size  the same, but compiled for each size: the reason
refused   a typed error: its text
wrong     other numbers, shapes or dtypes, or an error of another kind
crash     the process ended, or took longer than --seconds
no model  torch can't export it so, or from what it exported ONNX Runtime computes the same other numbers
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from enum import Enum
from itertools import product
from pathlib import Path

from .agreement import TOLERANCE
from .export_ways import Case, NoModelError, Sizes, Way, prepared, question, short
from .options import names

RESULTS = Path(__file__).parent / "results" / "exports.json"


class Verdict(Enum):
    RIGHT = "right"
    PER_SIZE = "per size"
    REFUSED = "refused"
    WRONG = "wrong"
    CRASH = "crash"
    NO_MODEL = "no model"


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a case. `verdict` is the value of a `Verdict`; findings travel as JSON."""

    verdict: str
    note: str = ""


def examine(case: Case, folder: Path) -> Finding:
    """Export, compile, run, compare."""
    from tilewright.base.errors import BadInput, Unsupported
    from tilewright.specialize import SpecializingModel

    try:
        asked = question(case)
        compiled, theirs = prepared(case, asked, folder)
    except NoModelError as error:
        return Finding(Verdict.NO_MODEL.value, str(error))
    try:
        run, model = compiled()
        found = [run(xs) for xs in asked.feeds]
    except NoModelError as error:
        return Finding(Verdict.NO_MODEL.value, str(error))
    except (BadInput, Unsupported) as error:
        return Finding(Verdict.REFUSED.value, short(error))
    except Exception as error:  # noqa: BLE001  any other error is a fault, and reported
        return Finding(Verdict.WRONG.value, short(error))
    expected = asked.expected or theirs
    if not expected:
        return Finding(Verdict.NO_MODEL.value, "PyTorch can't run it here")
    worst = max(map(asked.difference, found, expected))
    if not worst <= TOLERANCE:
        if theirs and max(map(asked.difference, found, theirs)) <= TOLERANCE:
            return Finding(Verdict.NO_MODEL.value, f"off by {worst:.1e}, as ONNX Runtime is")
        return Finding(Verdict.WRONG.value, f"off by {worst:.1e}")
    if isinstance(model, SpecializingModel):
        return Finding(Verdict.PER_SIZE.value, model.explain().findings[-1].reason)
    return Finding(Verdict.RIGHT.value, f"{worst:.0e}")


def in_a_process(case: Case, folder: Path, seconds: float) -> Finding:
    """`examine` in a process of its own."""
    child = [sys.executable, "-m", "benchmarks.exports", "--folder", str(folder), "--one"]
    command = [*child, case.name, case.way.value, case.sizes.value]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Finding(Verdict.CRASH.value, f"took longer than {seconds:.0f} s")
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return Finding(Verdict.CRASH.value, f"exit status {done.returncode}: {done.stderr.strip()[-300:]}")
    return Finding(**json.loads(lines[-1]))


def stored(path: Path) -> dict[Case, Finding]:
    """What was found so far, in the order in which it was kept."""
    rows = json.loads(path.read_text()) if path.exists() else []
    return {
        Case(row["name"], Way(row["way"]), Sizes(row["sizes"])): Finding(row["verdict"], row["note"]) for row in rows
    }


def keep(path: Path, case: Case, finding: Finding) -> None:
    """Write `finding` in place of what there was for the case."""
    all_of_them = {**stored(path), case: finding}
    rows = [{"name": c.name, "way": c.way.value, "sizes": c.sizes.value, **asdict(f)} for c, f in all_of_them.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n")


def main() -> int:
    options = _options()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.one:
        name, way, sizes = options.names
        print("\n" + json.dumps(asdict(examine(Case(name, Way(way), Sizes(sizes)), options.folder))))
        return 0
    from .architectures import ARCHITECTURES

    ways, sizes = [Way(w) for w in options.ways], [Sizes(s) for s in options.sizes]
    counts: Counter[str] = Counter()
    for name, way, size in product(options.names or ARCHITECTURES, ways, sizes):
        case = Case(name, way, size)
        found = in_a_process(case, options.folder, options.seconds)
        keep(RESULTS, case, found)
        counts[found.verdict] += 1
        print(f"{name:32} {way.value:13} {size.value:6} {found.verdict:9} {found.note}", flush=True)
    print(", ".join(f"{verdict}: {count}" for verdict, count in counts.most_common()))
    return 1 if counts[Verdict.WRONG.value] or counts[Verdict.CRASH.value] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exports", description="Compile networks of PyTorch.")
    parser.add_argument("--folder", type=Path, default=Path("build/exports"), help="of the files, default %(default)s")
    files = [way.value for way in Way if way.is_file]
    parser.add_argument("--ways", type=names, default=files, help=f"of {', '.join(w.value for w in Way)}; by commas")
    parser.add_argument("--sizes", type=names, default=[s.value for s in Sizes], help="default both, by commas")
    parser.add_argument("--seconds", type=float, default=300.0, help="for one case, default %(default)s")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default all")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

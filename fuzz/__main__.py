"""Fuzz: `python -m fuzz [NAME ...] [--seconds 60 | --total-seconds 28800 | --seed 1] [--jobs 2] [--work FOLDER]`.

Each fuzzer starts from the corpus that is kept, its seeds, and what it found to be worth keeping before (in FOLDER). A
find ends its process; it is copied to FOLDER/finds, and the fuzzer goes on. The exit status is 1 if there are finds.

With a seed, each fuzzer tries a fixed number of inputs, about a minute's, which follow from the seed and the code: what
a change is tested with has the same outcome everywhere. (What it found before is not used then.)

`python -m fuzz NAME --replay FILE ...` runs single inputs.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fuzz.target import CORPUS, Target
from fuzz.targets import NAMES, load

ROOT = Path(__file__).resolve().parents[1]
SECONDS_FOR_ONE, MEGABYTES_FOR_ONE = 10, 2048
MOST_FINDS = 20
"""Of one fuzzer: then it stops, as something is thoroughly broken."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one fuzzer. ``finds``: inputs that are no good input and raise no typed error."""

    name: str
    seconds: float
    inputs: int
    finds: tuple[Path, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz or replay; the exit status."""
    parser = argparse.ArgumentParser(description="Coverage-guided fuzzing of all that Tilewright reads.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each fuzzer (default: 60)")
    parser.add_argument("--total-seconds", type=int, help="for all of them, shared equally")
    parser.add_argument("--seed", type=int, help="inputs that follow from this number, instead of a time")
    parser.add_argument("--jobs", type=int, default=2, help="fuzzers at once (default: 2)")
    parser.add_argument("--work", type=Path, default=ROOT / "fuzz" / "work", help="folder of what is found")
    parser.add_argument("--replay", type=Path, nargs="+", help="check these inputs, and nothing else")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"there is no fuzzer {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    names = options.names or list(NAMES)
    if options.replay:
        return replay(load(names[0]), options.replay)
    total = options.total_seconds
    seconds = options.seconds if total is None else max(1, total * options.jobs // len(names))
    with ThreadPoolExecutor(options.jobs) as pool:
        fuzzers = (load(name) for name in names)
        if options.seed is not None:
            results = list(pool.map(lambda target: fuzz_by_seed(target, options.seed, options.work), fuzzers))
        else:
            results = list(pool.map(lambda target: fuzz(target, seconds, options.work), fuzzers))
    return report(results)


def replay(target: Target, paths: Sequence[Path]) -> int:
    """Check single inputs; a find is raised."""
    for path in paths:
        print(f"{path}: {'good' if target.run(path.read_bytes()) else 'refused by a typed error'}")
    return 0


def fuzz(target: Target, seconds: float, work: Path) -> Result:
    """One fuzzer, started again after each find until the time is over."""
    grown, finds = _folders(target, work)
    before, started, inputs = set(finds.iterdir()), time.monotonic(), 0
    while (left := seconds - (time.monotonic() - started)) > 1 and len(set(finds.iterdir()) - before) < MOST_FINDS:
        inputs += _once(target, [f"-max_total_time={int(left)}"], grown, finds)
    found = tuple(sorted(set(finds.iterdir()) - before))
    return Result(target.name, time.monotonic() - started, inputs, found)


def fuzz_by_seed(target: Target, seed: int, work: Path) -> Result:
    """One fuzzer, until its first find or the end of its inputs."""
    shutil.rmtree(work / target.name, ignore_errors=True)
    grown, finds = _folders(target, work)
    before, started = set(finds.iterdir()), time.monotonic()
    inputs = _once(target, [f"-seed={seed}", f"-runs={target.runs}"], grown, finds)
    return Result(target.name, time.monotonic() - started, inputs, tuple(sorted(set(finds.iterdir()) - before)))


def _folders(target: Target, work: Path) -> tuple[Path, Path]:
    """Those of what is kept while it fuzzes, with the seeds in it, and of its finds."""
    grown, finds = work / target.name, work / "finds" / target.name
    for folder in (grown, finds, CORPUS / target.name):
        folder.mkdir(parents=True, exist_ok=True)
    _write_seeds(target, grown)
    return grown, finds


def _write_seeds(target: Target, folder: Path) -> None:
    for position, seed in enumerate(target.seeds()):
        (folder / f"seed-{position:03}").write_bytes(seed)
    words = (word.replace("\\", "\\\\").replace('"', '\\"') for word in target.words)
    (folder.parent / f"{target.name}.dict").write_text("".join(f'"{word}"\n' for word in words))


def _once(target: Target, until: Sequence[str], grown: Path, finds: Path) -> int:
    """One process, until its options say or it finds something; how many inputs it tried."""
    log = finds.parent / f"{target.name}.log"
    command = [
        *(sys.executable, "-m", "fuzz.child", target.name),
        *(*until, f"-timeout={SECONDS_FOR_ONE}", f"-rss_limit_mb={MEGABYTES_FOR_ONE}"),
        *(f"-max_len={target.max_bytes}", f"-artifact_prefix={finds}/", "-print_final_stats=1"),
        *([f"-dict={grown.parent / f'{target.name}.dict'}"] if target.words else []),
        *(str(grown), str(CORPUS / target.name)),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with log.open("w") as output:
        status = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False
        ).returncode
    text = log.read_text(errors="replace")
    if status and not any(f"Test unit written to {finds}" in line for line in text.splitlines()):
        (finds / f"no-input-{time.time_ns()}").write_text(
            text[-20_000:]
        )  # it died before the first input, or at its end
    counts = [int(line.split()[-1]) for line in text.splitlines() if line.startswith("stat::number_of_executed_units")]
    return sum(counts)


def report(results: Sequence[Result]) -> int:
    """Print what was found; the exit status."""
    for result in results:
        print(f"{result.name}: {result.inputs} inputs in {result.seconds:.0f} s, {len(result.finds)} finds")
        for path in result.finds:
            print(f"  {path}")
    finds = sum(len(result.finds) for result in results)
    print(f"{len(results)} fuzzers, {finds} finds")
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())

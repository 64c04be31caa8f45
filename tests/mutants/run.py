"""Plants one fault at a time into a copy of the compiler; the tests named beside it must notice.

    python tests/mutants/run.py [--only NAME] [--part 1/4] [--jobs N]

A mutant that survives means that a kind of fault would go unnoticed: the exit status is 1.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutants.mutants import MUTANTS, Mutant  # noqa: E402  the folder is not installed

TIMEOUT = 240
"""Seconds for the tests of one mutant: a fault may well loop for ever."""


class Verdict(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"  # the text to replace is not there exactly once, or the tests do not run at all


@dataclass(frozen=True)
class Outcome:
    """A mutant, what became of it, and why."""

    mutant: Mutant
    verdict: Verdict
    detail: str


def judge(mutant: Mutant, limit: float | None = TIMEOUT) -> Outcome:
    """Plant ``mutant`` in a copy of the sources and run its tests, for at most ``limit`` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests", "benchmarks", "docs", "examples", "fuzz"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "work"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        target = copy / "src" / "tilewright" / mutant.file
        text = target.read_text()
        if mutant.before and text.count(mutant.before) != 1:
            return Outcome(mutant, Verdict.BROKEN, f"the text to replace is there {text.count(mutant.before)} times")
        target.write_text(text.replace(mutant.before, mutant.after) if mutant.before else text)
        return _run(mutant, copy, limit)


def _run(mutant: Mutant, copy: Path, limit: float | None) -> Outcome:
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
    command = [sys.executable, "-m", "pytest", *options, *mutant.tests]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(mutant, Verdict.KILLED, "the tests did not end")
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr.strip()[-200:]
    if done.returncode == 0:
        return Outcome(mutant, Verdict.SURVIVED, last)
    failed = done.returncode == 1 or done.returncode < 0
    return Outcome(mutant, Verdict.KILLED if failed else Verdict.BROKEN, last)


def _part(text: str) -> tuple[int, int]:
    """``3/4``: from the third on, every fourth; any number before the slash is taken round."""
    number, _, count = text.partition("/")
    return (int(number) - 1) % int(count), int(count)


def main() -> int:
    """Judge all mutants, print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="the mutants whose name contains this")
    parser.add_argument("--part", type=_part, default=(0, 1), metavar="I/N", help="every N-th mutant, from the I-th on")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    start, step = arguments.part
    chosen = [m for m in MUTANTS if not arguments.only or arguments.only in m.name][start::step]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        without = pool.submit(judge, _nothing(chosen), None)
        outcomes = list(pool.map(_report, chosen))
        sound = without.result()
    if sound.verdict is not Verdict.SURVIVED:
        print(f"the same tests fail without a fault: {sound.detail}")
        return 1
    killed = sum(o.verdict is Verdict.KILLED for o in outcomes)
    print(f"{killed} of {len(outcomes)} mutants killed")
    return 0 if killed == len(outcomes) else 1


def _nothing(mutants: list[Mutant]) -> Mutant:
    """No fault, and all tests: they must pass."""
    tests = dict.fromkeys(test for mutant in mutants for test in mutant.tests)
    return Mutant("nothing", "__init__.py", "", "", tuple(tests))


def _report(mutant: Mutant) -> Outcome:
    outcome = judge(mutant)
    print(f"{outcome.verdict.value:8} {mutant.name}: {outcome.detail}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())

"""What takes too long for every change: all slow tests, fresh draws and fuzzers, in steps. ``make nightly`` runs it.

    python tests/nightly.py [--only STEP] [--seed SEED]

A step that fails does not keep the next ones from running; the exit status is 1 if any failed. What fresh draws find is
written beside the tests, which fail until it is mended: see ``tests/finds.py`` and ``tests/random_graphs``.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GRAPHS = 1000
"""Random graphs of each night."""
FUZZING_SECONDS = 8 * 3600
"""All fuzzers together."""


@dataclass(frozen=True)
class Step:
    """Slow tests under ``path``, less those that are steps of their own."""

    name: str
    path: str
    without: tuple[str, ...] = ()

    def arguments(self, seed: int) -> list[str]:
        """Of Python. Skipped tests are listed with what they lack."""
        del seed
        return ["-m", "pytest", "-m", "slow", "-rs", self.path, *(f"--ignore={path}" for path in self.without)]


@dataclass(frozen=True)
class FreshDraws:
    """The tests under ``path`` that draw, with other draws each night."""

    name: str
    path: str

    def arguments(self, seed: int) -> list[str]:
        """Of Python."""
        fresh = ["-p", "tests.finds", "--hypothesis-profile=fresh", f"--hypothesis-seed={seed}"]
        return ["-m", "pytest", "-m", "hypothesis", *fresh, self.path]


@dataclass(frozen=True)
class FreshGraphs:
    """Random graphs that are other ones each night; those that fail are made small and kept."""

    name: str
    path: str

    def arguments(self, seed: int) -> list[str]:
        """Of Python."""
        first = seed * GRAPHS
        return ["-m", self.path.replace("/", "."), f"{first}:{first + GRAPHS}", "--minimize", "--save", "found"]


@dataclass(frozen=True)
class Fuzzers:
    """All fuzzers, which start from what they found before."""

    name: str
    path: str

    def arguments(self, seed: int) -> list[str]:
        """Of Python."""
        del seed
        return ["-m", self.path, "--total-seconds", str(FUZZING_SECONDS)]


PARTS = (
    Step("zoo", "tests/test_zoo.py"),
    Step("zoo-elsewhere", "tests/backend/shipping/test_zoo_elsewhere.py"),
    Step("ledger-with-bounds-checks", "tests/onnx_nodes"),
)
STEPS = (
    *PARTS,
    Step("other-slow-tests", "tests", tuple(step.path for step in PARTS)),
    FreshDraws("fresh-draws", "tests"),
    FreshGraphs("fresh-graphs", "tests/random_graphs"),
    Fuzzers("fuzzers", "fuzz"),
)


def run(step: Step | FreshDraws | FreshGraphs | Fuzzers, seed: int) -> bool:
    """Whether none of the step's tests failed; they may have been skipped, and pytest says so."""
    started = time.monotonic()
    print(f"==== {step.name}: {step.path}, seed {seed}", flush=True)
    passed = subprocess.run([sys.executable, *step.arguments(seed)], cwd=ROOT, check=False).returncode == 0
    print(f"==== {step.name}: {'no failure' if passed else 'FAILED'}, {time.monotonic() - started:.0f} s", flush=True)
    return passed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps, say what became of each; the exit status."""
    parser = argparse.ArgumentParser(description="All slow tests, fresh draws and fuzzers, in steps.")
    parser.add_argument("--only", choices=[step.name for step in STEPS], help="this step alone")
    parser.add_argument("--seed", type=int, default=_today(), help="of what is drawn; the day if not given")
    given = parser.parse_args(arguments)
    failed = [step.name for step in STEPS if given.only in (None, step.name) and not run(step, given.seed)]
    print(f"failed with seed {given.seed}: {', '.join(failed)}" if failed else "no step failed")
    return 1 if failed else 0


def _today() -> int:
    """``20261123``."""
    return int(time.strftime("%Y%m%d"))


if __name__ == "__main__":
    sys.exit(main())

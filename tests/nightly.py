"""What takes too long for every change: all slow tests, in steps. ``make nightly`` runs it.

    python tests/nightly.py [--only STEP]

A step that fails does not keep the next ones from running; the exit status is 1 if any failed.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Step:
    """Slow tests under ``path``, less those that are steps of their own."""

    name: str
    path: str
    without: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Of pytest. Skipped tests are listed with what they lack."""
        return ["-m", "slow", "-rs", self.path, *(f"--ignore={path}" for path in self.without)]


PARTS = (
    Step("zoo", "tests/test_zoo.py"),
    Step("ledger-with-bounds-checks", "tests/onnx_nodes"),
)
STEPS = (*PARTS, Step("other-slow-tests", "tests", tuple(step.path for step in PARTS)))


def run(step: Step) -> bool:
    """Whether none of the step's tests failed; they may have been skipped, and pytest says so."""
    started = time.monotonic()
    print(f"==== {step.name}: {step.path}", flush=True)
    passed = subprocess.run([sys.executable, "-m", "pytest", *step.arguments()], cwd=ROOT, check=False).returncode == 0
    print(f"==== {step.name}: {'no failure' if passed else 'FAILED'}, {time.monotonic() - started:.0f} s", flush=True)
    return passed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps, say what became of each; the exit status."""
    parser = argparse.ArgumentParser(description="All slow tests, in steps.")
    parser.add_argument("--only", choices=[step.name for step in STEPS], help="this step alone")
    only = parser.parse_args(arguments).only
    failed = [step.name for step in STEPS if only in (None, step.name) and not run(step)]
    print(f"failed: {', '.join(failed)}" if failed else "no step failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

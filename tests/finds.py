"""What fresh draws find: each failing test of Hypothesis, with the seed that it fails with, as a file.

``pytest -p tests.finds --hypothesis-profile=fresh --hypothesis-seed=SEED`` writes them to ``tests/regressions``, and
``tests/test_finds.py`` draws them again, until who mends the fault writes the example beside the test (``@example``)
and removes the file. (Random graphs that fail are kept as graphs: ``tests/random_graphs/regressions``.)
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "regressions"

_LINES = 60
"""Of a report, from its end: there Hypothesis says what it drew."""


@dataclass(frozen=True)
class Find:
    """A test, the seed that it failed with, and the end of what was reported."""

    test: str
    seed: int
    report: Sequence[str]

    @staticmethod
    def read(path: Path) -> "Find":
        return Find(**json.loads(path.read_text()))

    def save(self, folder: Path) -> Path:
        """The file that it is written to, which is replaced."""
        name = re.sub(r"\W+", "_", self.test.removeprefix("tests/")).strip("_")
        folder.mkdir(exist_ok=True)
        path = folder / f"{name[:120]}_{self.seed}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path

    def fails(self, root: Path = ROOT, options: Sequence[str] = ("--hypothesis-profile=fresh",)) -> bool:
        """Whether it still does, drawn again in a process of its own."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
        seeded = [*options, f"--hypothesis-seed={self.seed}", self.test]
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
        done = subprocess.run([*command, *seeded], cwd=root, env=environment, capture_output=True, check=False)
        return done.returncode != 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--finds", type=Path, default=FOLDER, help="where failing draws are written to")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers report to the process that writes
        config.pluginmanager.register(_Writer(config.getoption("finds"), int(config.getoption("hypothesis_seed"))))


class _Writer:
    """Writes a find for each failing test that draws."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and "hypothesis" in report.keywords:
            lines = report.longreprtext.splitlines()[-_LINES:]
            print(f"\nwritten: {Find(report.nodeid, self._seed, lines).save(self._folder)}", flush=True)

"""What all tests share: golden text files, and the last lines of the report."""

import gc
import os
from collections.abc import Callable, Generator
from pathlib import Path
from zlib import crc32

import pytest

from tests import profiles
from tests.onnx_nodes import ledger
from tilewright.measure.turns import Plan

profiles.register()
for _name in ("COLUMNS", "LINES"):  # readline sets them, and workers inherit them: texts are then made for a terminal
    os.environ.pop(_name, None)
# Workers have the environment of the process that starts them.
OWN_FOLDER = None if "PYTEST_XDIST_WORKER" in os.environ else profiles.isolate()

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores to run on: tests of processes wait for them."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_unconfigure() -> None:
    if OWN_FOLDER is not None:
        profiles.remove(OWN_FOLDER)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    passed = terminalreporter.stats.get("passed", [])
    if any(report.nodeid.startswith("tests/onnx_nodes/") for report in passed):
        terminalreporter.write_line(ledger.summary(ledger.read(ledger.PATH.read_text())))


GENERATORS = pytest.StashKey[profiles.Generators]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Test modules and tests stay until the end: Python need not look for garbage among them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before those that are slow are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases are drawn by their names, so that parameters are not taken at a stride."""
    for item in items:
        share = item.get_closest_marker("share")
        if share is not None and crc32(item.nodeid.encode()) % share.args[0]:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[GENERATORS] = profiles.Generators.of_modules()


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[GENERATORS].restore()


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole models are compared in short turns, and roofs measured once: for tests to which times do not matter."""
    plan = Plan(rounds=3, slot=0.001, rest=0.0, budget=1.0)
    monkeypatch.setattr("tilewright.networks.comparison.COMPARING", plan)
    monkeypatch.setattr("tilewright.superoptimizer.turns_of", lambda _: plan)
    monkeypatch.setattr("tilewright.insight.peak._TRIES", 1)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden("loops/matmul", text)``: the text is what ``tests/golden/loops/matmul.txt`` says."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; run with --update-golden and look at what is written"
        assert text == path.read_text(), f"differs from {path}; if that is intended, run with --update-golden"

    return check

"""The n-th call to the system, the n-th array, the n-th statement fails, for all n: nothing but errors of ours comes of
it, nothing is left behind, and the next attempt succeeds.

By default, some of the n are tried; all of them in the nightly run.
"""

import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.faults.injection import Faults, Kind, injected
from tests.frontend.models import single_node
from tests.frontend.test_external_data import external
from tests.measure.jobs import job, runner
from tilewright.base.errors import InternalError, TilewrightError
from tilewright.base.settings import Settings
from tilewright.measure.limits import Limits
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.tune.measurer import Measurer

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Scenario:
    """Something that is done in a folder, after it was prepared there; ``act`` checks its results itself."""

    samples = 8
    """How many n are tried by default."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """What ``act`` starts from, anew."""

    def act(self) -> None:
        """What may fail."""
        raise NotImplementedError

    def leftovers(self) -> list[Path]:
        """Files that should not be there after a failure."""
        found = [path for path in self.folder.rglob("*") if ".part" in path.name or ".tmp" in path.name]
        return [*found, *Path(tempfile.gettempdir()).glob("*")]


class Compile(Scenario):
    """A model with external data, with caches that are empty."""

    attempts = 0

    def prepare(self) -> None:
        proto = single_node("Add", {"x": X}, {"c": X})
        external(proto.graph.initializer[0], location="data")
        (self.folder / "data").write_bytes(X.tobytes())
        (self.folder / "m.onnx").write_bytes(proto.SerializeToString())

    def act(self) -> None:
        Compile.attempts += 1
        settings = Settings(
            cache_dir=self.folder / f"cache{Compile.attempts}",
            key_dir=self.folder / f"keys{Compile.attempts}",
            records=None,
        )
        compiled = tilewright.compile(self.folder / "m.onnx", settings=settings, threads=1)
        np.testing.assert_array_equal(compiled.run(None, {"x": X})[0], 2 * X)


class Save(Scenario):
    """Over an older artifact, which stays whole if it can't be replaced."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        settings = Settings(cache_dir=None, records=None)
        self.model = tilewright.compile(single_node("Add", {"x": X}, {"c": X}), settings=settings, threads=1)
        self.settings = Settings(key_dir=folder / "keys")
        self.path = folder / "m.tw"

    def prepare(self) -> None:
        self.model.save(self.path, settings=self.settings)

    def act(self) -> None:
        self.model.save(self.path, settings=self.settings)

    def leftovers(self) -> list[Path]:
        tilewright.load(self.path, settings=self.settings)
        return super().leftovers()


class Load(Save):
    """An artifact, and a run of it."""

    def act(self) -> None:
        loaded = tilewright.load(self.path, settings=self.settings, threads=1)
        np.testing.assert_array_equal(loaded.run(None, {"x": X})[0], 2 * X)


class KeepRecords(Scenario):
    """Records are added and found."""

    def prepare(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            (self.folder / f"r.db{suffix}").unlink(missing_ok=True)

    def act(self) -> None:
        outcome = Outcome(Verdict.OK, times_us=(1.0, 2.0))
        with Records.open(self.folder / "r.db") as records:
            with records.session({}) as session:
                records.add(session, job("a"), outcome)
            found = records.find(job("a"))
            assert found is not None
            assert found.times_us == (1.0, 2.0)


class Tune(KeepRecords):
    """Two candidates are measured by children, and their records kept: what tuning does for hours."""

    samples = 1

    def act(self) -> None:
        with (
            Records.open(self.folder / "r.db") as records,
            records.session({}) as session,
            runner(Limits(uses=1)) as bench,
        ):
            outcomes = Measurer(bench, records, session).measure([job("good"), job("good", 7)])
            assert [outcome.verdict for outcome in outcomes] == [Verdict.OK, Verdict.OK]


SCENARIOS: dict[str, tuple[Callable[[Path], Scenario], tuple[Kind, ...]]] = {
    "compile": (Compile, (Kind.IO, Kind.MEMORY)),
    "save": (Save, (Kind.IO, Kind.MEMORY)),
    "load": (Load, (Kind.IO, Kind.MEMORY)),
    "tune": (Tune, (Kind.IO, Kind.DATABASE)),
    "records": (KeepRecords, (Kind.IO, Kind.DATABASE)),
}
CASES = [(name, kind) for name, (_, kinds) in SCENARIOS.items() for kind in kinds]
FEW = [case for case in CASES if case != ("tune", Kind.DATABASE)]
"""Without what takes long, and is nearly the same as another."""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, which is empty."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


_REMOVING = ("os.unlink", "os.remove", "os.rmdir")
"""If these fail, what they would have removed stays."""


def attempt(scenario: Scenario, kind: Kind, nth: int) -> tuple[Faults, str]:
    """Act once with a fault: what was wrong then, if anything."""
    scenario.prepare()
    before = len(os.listdir("/proc/self/fd"))
    wrong = ""
    with warnings.catch_warnings(), injected(kind, nth) as faults:
        warnings.simplefilter("ignore")
        try:
            scenario.act()
        except InternalError as error:
            wrong = repr(error)
        except TilewrightError:
            pass
        except Exception as error:  # noqa: BLE001 - that none is of another kind is what is tested
            wrong = f"an untyped {error!r} in {traceback.extract_tb(error.__traceback__)[-4:]}"
    opened = len(os.listdir("/proc/self/fd")) - before
    left = scenario.leftovers()
    for path in left:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if opened > 0 or (left and faults.failed not in _REMOVING):
        wrong += f"; left {[path.name for path in left]}, and {opened} files are open"
    return faults, f"call {nth}, {faults.failed}: {wrong}" if wrong else ""


@pytest.mark.parametrize(("name", "kind"), FEW, ids=[f"{name} {kind.value}" for name, kind in FEW])
def test_some_calls_fail(name: str, kind: Kind, tmp_path: Path, scratch: Path) -> None:
    _test(name, kind, tmp_path, only_some=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), CASES, ids=[f"{name} {kind.value}" for name, kind in CASES])
def test_each_call_fails(name: str, kind: Kind, tmp_path: Path, scratch: Path) -> None:
    _test(name, kind, tmp_path, only_some=False)


def _test(name: str, kind: Kind, folder: Path, *, only_some: bool) -> None:
    scenario = SCENARIOS[name][0](folder)
    attempt(scenario, kind, 0)  # what is done once in a process
    total = attempt(scenario, kind, 0)[0].count
    assert total > 3, "the calls are counted"
    step = max(1, total // scenario.samples) if only_some else 1
    found = list[str]()
    for nth in range(1 + step // 2, total + 1, step):
        found.append(attempt(scenario, kind, nth)[1])
        scenario.prepare()
        scenario.act()
    assert not list(filter(None, found))

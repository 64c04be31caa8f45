"""The doctor: facts from made-up machines, and a warning with a remedy for everything that is wrong."""

import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tilewright.base.host import detect
from tilewright.base.settings import Settings
from tilewright.insight.doctor import Cache, Caution, Diagnosis, Figures, Measured, Processor, Threads, examine
from tilewright.insight.figures import Finding
from tilewright.insight.peak import Bandwidth, Peak, Roof
from tilewright.target.measured import write_figures
from tilewright.target.target import Target


def machine(root: Path, governor: str = "performance", quota: str = "max") -> Path:
    """A root with ``proc`` and ``sys`` that say little."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/cpuinfo").write_text("processor : 0\nmodel name\t: Test CPU\ncpu MHz\t\t: 2500.5\n")
    (root / "proc/self/cgroup").write_text("0::/\n")
    (root / "sys/fs/cgroup").mkdir(parents=True)
    (root / "sys/fs/cgroup/cpu.max").write_text(f"{quota} 100000")
    for cpu in range(1024):
        if cpu in os.sched_getaffinity(0):
            folder = root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
            folder.mkdir(parents=True)
            (folder / "scaling_governor").write_text(f"{governor}\n")
    return root


def diagnosis(root: Path, settings: Settings | None = None, **environ: str) -> Diagnosis:
    return examine(settings or Settings(cache_dir=root / "cache"), measure=False, environ=environ, root=root)


def test_facts(tmp_path: Path) -> None:
    found = diagnosis(machine(tmp_path), OMP_NUM_THREADS="1", PATH="/bin")
    assert (found.processor.name, found.processor.governor, found.processor.megahertz) == (
        "Test CPU",
        "performance",
        2500.5,
    )
    assert (found.threads.used, found.threads.reason) == (1, "OMP_NUM_THREADS is set")
    assert found.settings == {"OMP_NUM_THREADS": "1"}
    assert (found.cache.folder, found.cache.entries, found.cache.mode) == (str(tmp_path / "cache"), 0, "0700")
    assert found.measured is None
    assert found.warnings == ()
    assert {"python", "numpy", "llvmlite", "llvm", "onnx"} <= found.versions.keys()


def test_a_quota_decides_on_threads(tmp_path: Path) -> None:
    found = diagnosis(machine(tmp_path, quota="50000"))
    assert (found.threads.used, found.threads.quota) == (1, 0.5)
    assert [w.subject for w in found.warnings] == ["threads"]


@pytest.mark.parametrize(
    ("environ", "governor", "subject", "text"),
    [
        ({}, "powersave", "frequency", "governor is powersave"),
        ({"TILEWRIGHT_NUM_THREADS": "1000"}, "performance", "threads", "1000 threads"),
        ({"TILEWRIGHT_BOUNDS_CHECK": "1"}, "performance", "bounds checks", "slow"),
    ],
)
def test_warnings(tmp_path: Path, environ: dict[str, str], governor: str, subject: str, text: str) -> None:
    found = diagnosis(machine(tmp_path, governor), **environ)
    (warning,) = found.warnings
    assert warning.subject == subject
    assert text in warning.reason
    assert warning.remedy


def test_a_cache_that_can_not_be_used(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    found = diagnosis(machine(tmp_path), Settings(cache_dir=folder))
    assert found.cache.mode == "0777"
    assert "other users can write to it" in (found.cache.problem or "")
    assert [w.subject for w in found.warnings] == ["cache"]
    assert diagnosis(machine(tmp_path / "b"), Settings(cache_dir=None)).cache.problem == "switched off by the settings"


def test_what_is_measured(tmp_path: Path) -> None:
    found = examine(Settings(cache_dir=tmp_path / "cache"), environ={"TILEWRIGHT_NUM_THREADS": "1"})
    assert found.measured is not None
    assert found.measured.one_core is found.measured.all_threads
    assert found.measured.one_core.gflops > 0.1
    assert found.measured.clock_nanoseconds > 0
    assert found.measured.noise >= 0


PEAK = Peak(1, 100.0, (Bandwidth(Roof.L1, 24 << 10, 500.0), Bandwidth(Roof.MEMORY, 1 << 27, 20.0)))
EXAMPLE = Diagnosis(
    Processor("Test CPU", "x86_64,haswell", ("avx", "avx2"), 256, {"l1": 32 << 10, "l2": 1 << 20}, "powersave", 2000.0),
    Threads(3, "the affinity mask has as many cores", (0, 1, 2, 5), 3, 3.5),
    Measured(PEAK, PEAK, 0.012, 30.0),
    Figures(
        "/data/machine.json",
        {"fma_latency": 4.0, "region_cycles": 1700.0},
        (
            Finding("fma_latency", 4.0, 0.01, 5.0),
            Finding("region_cycles", 3000.0, 0.4, 2000.0, "it varies by 40%: something else runs"),
            Finding("stream_bytes", 90.0, 0.1, 9.0, "it is too far from that of any known machine"),
        ),
        None,
    ),
    {"python": "3.11.0", "numpy": "2.0"},
    {"OMP_NUM_THREADS": "3"},
    Cache("/cache", 7, 1 << 20, 1 << 30, "0700", None),
    Cache("/cache/models", 3, 1 << 29, 4 << 30, "0700", None),
    ("board = boards:BOARD of the package boards 1.0 (entry points tilewright.targets)",),
    (Caution("frequency", "the governor is powersave", "change it"),),
)


MEASURED = (Finding("near_bytes", 31.0, 0.1, 24.0), Finding("far_bytes", 3.0, 0.9, 10.0, "it varies"))


def test_what_is_certain_is_kept_and_the_rest_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def measured(target: Target, threads: int) -> tuple[Finding, ...]:
        asked.append(target.machine.near_bytes)
        return MEASURED

    monkeypatch.setattr("tilewright.insight.doctor.measure_figures", measured)
    settings = Settings(machine=tmp_path / "own/machine.json")
    root = machine(tmp_path / "root")
    assert examine(settings, measure=False, environ={}, root=root).figures == Figures(
        str(settings.machine), {}, None, None
    )
    first = examine(settings, measure=False, environ={}, root=root, keep_figures=True)
    assert first.figures == Figures(str(settings.machine), {"near_bytes": 31.0}, MEASURED, None)
    assert "near_bytes=31" in first.processor.target
    assert settings.machine is not None
    write_figures(settings.machine, str(detect()), {"near_bytes": 20.0, "far_bytes": 9.0})
    again = examine(settings, measure=False, environ={}, root=root, keep_figures=True)
    assert again.figures.used == {"near_bytes": 31.0, "far_bytes": 9.0}
    assert asked == [Target.host(Settings()).machine.near_bytes] * 2  # held against what is built in, not what was kept


def test_figures_that_are_switched_off_are_shown_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.insight.doctor.measure_figures", lambda target, threads: MEASURED)
    found = examine(Settings(), measure=False, environ={}, root=machine(tmp_path), keep_figures=True)
    assert found.figures == Figures(None, {}, MEASURED, None)
    console = Console(width=160, record=True, file=StringIO())
    found.show(console)
    assert "not kept: switched off by the settings" in console.export_text()


def test_a_file_of_figures_that_can_not_be_used(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text("{")
    found = examine(Settings(machine=path), measure=False, environ={}, root=machine(tmp_path))
    (warning,) = [w for w in found.warnings if w.subject == "figures"]
    assert str(path) in warning.reason
    assert "doctor --measure" in warning.remedy


def test_what_is_printed(golden: Callable[[str, str], None]) -> None:
    console = Console(width=120, record=True, file=StringIO())
    EXAMPLE.show(console)
    golden("insight/doctor", console.export_text())

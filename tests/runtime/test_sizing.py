"""The number of threads: environment, affinity, and control groups of both versions."""

import os
from pathlib import Path

import pytest

from tilewright.base.errors import BadInput
from tilewright.runtime.sizing import default_threads, processors_for


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TILEWRIGHT_NUM_THREADS": "3"}, 3),
        ({"TILEWRIGHT_NUM_THREADS": " 12 ", "OMP_NUM_THREADS": "2"}, 12),
        ({"TILEWRIGHT_NUM_THREADS": "9999999"}, 1024),
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"OMP_NUM_THREADS": "many"}, 8),
        ({"TILEWRIGHT_NUM_THREADS": ""}, 8),
        ({}, 8),
    ],
)
def test_environment(tmp_path: Path, environ: dict[str, str], expected: int) -> None:
    assert default_threads(environ, tmp_path) == expected


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²"])
def test_bad_environment(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match="TILEWRIGHT_NUM_THREADS"):
        default_threads({"TILEWRIGHT_NUM_THREADS": text}, tmp_path)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "150000 100000"}, 2),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "300000 100000"}, 3),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 8),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/docker/1",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            8,
        ),
        ({"proc/self/cgroup": "nonsense", "sys/fs/cgroup/cpu.max": "?"}, 8),
        ({f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": f"{i % 4},{i % 4 + 4}" for i in range(8)}, 4),
    ],
    ids=["v2", "v2 parent", "v2 max", "v2 half", "v2 nested", "v1", "v1 none", "nonsense", "hyperthreads"],
)
def test_quota_and_cores(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    assert default_threads({}, write(tmp_path, files)) == expected


@pytest.mark.parametrize(("threads", "expected"), [(1, [0]), (3, [0, 2, 4]), (5, [0, 2, 4, 6, 1]), (9, [])])
def test_processors_are_of_as_many_cores_as_possible(tmp_path: Path, threads: int, expected: list[int]) -> None:
    pairs = {f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": f"{i & ~1}-{i | 1}" for i in range(8)}
    assert processors_for(threads, write(tmp_path, pairs)) == expected
    assert processors_for(8, tmp_path / "unknown") == list(range(8))


def test_this_machine() -> None:
    assert 1 <= default_threads({}) <= 8

"""How much memory there is, by control groups and limits; budgets; and where it ends."""

import errno
import resource
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.arrays import new_array, new_bytes
from tilewright.base.errors import OutOfMemory, ResourceLimit
from tilewright.base.memory import Budget, available, memory_guarded

GROUP = "sys/fs/cgroup/outer/inner"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 100 kB\nMemAvailable:    80 kB\nSwapFree: 20 kB\n"}
VERSION_2 = {"proc/self/cgroup": "0::/outer/inner\n"}
VERSION_1 = {"proc/self/cgroup": "5:cpu:/\n4:memory:/outer/inner\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 100 << 10),
        ({**VERSION_2, f"{GROUP}/memory.max": "max\n", f"{GROUP}/memory.current": "7\n"}, 100 << 10),
        ({**VERSION_2, f"{GROUP}/memory.max": "9000", f"{GROUP}/memory.current": "7000"}, 2000),
        (
            {
                **VERSION_2,
                f"{GROUP}/memory.max": "9000",
                f"{GROUP}/memory.current": "7000",
                f"{GROUP}/memory.stat": "anon 3\ninactive_file 500\n",
            },
            2500,
        ),
        (
            {
                **VERSION_2,
                "sys/fs/cgroup/outer/memory.max": "4000",
                "sys/fs/cgroup/outer/memory.current": "3000",
                f"{GROUP}/memory.max": "9000",
                f"{GROUP}/memory.current": "2000",
            },
            1000,
        ),
        (
            {
                **VERSION_1,
                "sys/fs/cgroup/memory/outer/inner/memory.limit_in_bytes": "5000",
                "sys/fs/cgroup/memory/outer/inner/memory.usage_in_bytes": "4000",
            },
            1000,
        ),
        ({**VERSION_2, f"{GROUP}/memory.max": "10", f"{GROUP}/memory.current": "70"}, 0),
        ({"proc/meminfo": "nonsense", "proc/self/statm": "x"}, 1 << 62),
    ],
)
def test_available(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    assert available(machine(tmp_path, {**MEMINFO, **files})) == expected


def test_available_in_the_address_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (50_000, 60_000))
    root = machine(tmp_path, {**MEMINFO, "proc/self/statm": "5 3 1 1 0 1 0"})
    assert available(root) == 50_000 - 5 * resource.getpagesize()


def test_available_here() -> None:
    assert 1 << 20 < available() < 1 << 50


def test_a_budget() -> None:
    budget = Budget(100, "do less")
    budget.take(60, "a")
    with pytest.raises(ResourceLimit, match="b takes 41 bytes after 60 bytes of others, and the limit is 100: do less"):
        budget.take(41, "b")
    budget.take(40, "c")
    assert budget.taken == 100


def test_a_budget_of_what_is_available() -> None:
    budget = Budget()
    budget.take(1 << 21, "a")
    with pytest.raises(ResourceLimit, match="b takes 9"):
        budget.take(1 << 63, "b")


@pytest.mark.parametrize("size", [1 << 62, 1 << 50, 1 << 70])
def test_memory_that_is_not_there(size: int) -> None:
    for new in (new_array, new_bytes):
        with pytest.raises(OutOfMemory, match=r"x takes \d+ bytes of memory"):
            new(size, "x")


def test_aligned_bytes() -> None:
    for size in (1, 63, 1000):
        made = new_bytes(size, "x", 64)
        assert made.nbytes == size
        assert made.ctypes.data % 64 == 0
        assert made.dtype == np.uint8


@pytest.mark.parametrize("error", [MemoryError("4 GiB"), OSError(errno.ENOMEM, "4 GiB")])
def test_where_memory_ends(error: Exception) -> None:
    with pytest.raises(OutOfMemory, match=r"memory ended while it was tested.*4 GiB"), memory_guarded("it was tested"):
        raise error


def test_other_errors_stay_what_they_are() -> None:
    first = OutOfMemory("first")
    for error in (first, OSError(errno.ENOSPC, "full"), ValueError("x")):
        with pytest.raises(type(error)) as raised, memory_guarded("it was tested"):
            raise error
        assert raised.value is error

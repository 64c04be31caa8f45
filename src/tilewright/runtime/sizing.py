"""The number of threads of a process: the user's choice, else the cores that this process may use.

In this order: ``TILEWRIGHT_NUM_THREADS``, ``OMP_NUM_THREADS`` (its first number), then the minimum of the processors in
the affinity mask (one per core: two hardware threads of a core do not multiply faster than one), and the CPU quota of
the control groups (versions 1 and 2) around this process.
"""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tilewright.base.errors import BadInput
from tilewright.base.files import text_of
from tilewright.base.names import shown
from tilewright.runtime.abi import MAX_THREADS

_OWN, _USUAL = "TILEWRIGHT_NUM_THREADS", "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Sizing:
    """The number of threads and the reason; cores in the affinity mask; CPU quota in processors, None without one."""

    threads: int
    reason: str
    cores: int
    quota: float | None


def default_threads(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """The number of threads for this process, at least 1. ``root``: the folder of ``/proc`` and ``/sys``.

    Raises ``BadInput`` if ``TILEWRIGHT_NUM_THREADS`` is not a positive number.
    """
    return sizing(environ, root).threads


def sizing(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Sizing:
    """``default_threads`` with its reason. Raises ``BadInput`` likewise."""
    cores, quota = len(processors_by_core(root)), _quota(root)
    threads, reason = _chosen(environ, cores, quota)
    return Sizing(max(1, min(threads, MAX_THREADS)), reason, cores, quota)


def _chosen(environ: Mapping[str, str], cores: int, quota: float | None) -> tuple[int, str]:
    if own := environ.get(_OWN, "").strip():
        wanted = _positive(own)
        if wanted is None:
            raise BadInput(f"{_OWN}={shown(own)} is no number of threads; set it to 1 or more, or unset it")
        return wanted, f"{_OWN} is set"
    usual = _positive(environ.get(_USUAL, "").split(",")[0].strip())
    if usual is not None:
        return usual, f"{_USUAL} is set"
    if quota is not None and math.ceil(quota) < cores:
        return math.ceil(quota), f"the control group's quota is {quota:g} processors"
    return cores, "the affinity mask has as many cores"


def processors_for(threads: int, root: Path = Path("/")) -> list[int]:
    """A processor for each of ``threads``, on as many cores as possible; none if the affinity mask has fewer."""
    in_turns = [one for turn in zip_longest(*processors_by_core(root)) for one in turn if one is not None]
    return in_turns[:threads] if threads <= len(in_turns) else []


def _positive(text: str) -> int | None:
    """A positive number of at most 18 digits; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0 else None


def processors_by_core(root: Path = Path("/")) -> list[list[int]]:
    """Processors in the affinity mask, in lists of hardware threads of one core."""
    folder, cores = root / "sys/devices/system/cpu", dict[str, list[int]]()
    for processor in _usable():
        siblings = text_of(folder / f"cpu{processor}/topology/thread_siblings_list") or str(processor)
        cores.setdefault(siblings, []).append(processor)
    return list(cores.values())


def _usable() -> list[int]:
    """Processors in the affinity mask; all of them on a system that tells of none."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _quota(root: Path) -> float | None:
    """The CPU quota of the control groups in processors; None without one."""
    quotas = [quota for group in _groups(root) if (quota := _group_quota(group)) is not None]
    return min(quotas, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the control groups that may limit this process's processors, and of their parents."""
    mount = root / "sys/fs/cgroup"
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        for top in (mount, mount / "unified") if not controllers else (mount / controllers, mount / "cpu"):
            group = top / path.strip("/")
            yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _group_quota(group: Path) -> float | None:
    """Version 2: ``cpu.max`` has quota and period, or ``max``. Version 1: a file for each; -1 is no limit."""
    words = text_of(group / "cpu.max").split()
    if len(words) != 2:
        words = [text_of(group / "cpu.cfs_quota_us").strip(), text_of(group / "cpu.cfs_period_us").strip()]
    quota, period = (_positive(word) for word in words)
    return quota / period if quota is not None and period is not None else None

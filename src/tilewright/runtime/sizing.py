"""How many threads a process should use: what the user says, else what the machine lends to this process.

In this order: ``TILEWRIGHT_NUM_THREADS``, ``OMP_NUM_THREADS`` (its first number), and then the smallest of: processors
in the affinity mask (one for each core: two hardware threads of a core do not multiply faster than one), and the CPU
quota of the control groups (versions 1 and 2) around this process.
"""

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tilewright.base.errors import BadInput
from tilewright.runtime.abi import MAX_THREADS

_OWN, _USUAL = "TILEWRIGHT_NUM_THREADS", "OMP_NUM_THREADS"


def default_threads(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """The number of threads for this process, at least 1. ``root`` is where ``/proc`` and ``/sys`` are.

    Raises ``BadInput`` if ``TILEWRIGHT_NUM_THREADS`` is no positive number.
    """
    if own := environ.get(_OWN, "").strip():
        wanted = _positive(own)
        if wanted is None:
            raise BadInput(f"{_OWN}={own!r} is no number of threads; set it to 1 or more, or unset it")
        return min(wanted, MAX_THREADS)
    usual = _positive(environ.get(_USUAL, "").split(",")[0].strip())
    if usual is not None:
        return min(usual, MAX_THREADS)
    return max(1, min(_cores(root), _quota(root), MAX_THREADS))


def _positive(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else None


def _cores(root: Path) -> int:
    """Cores in the affinity mask: processors that are hardware threads of one core count once."""
    processors = os.sched_getaffinity(0)
    folder = root / "sys/devices/system/cpu"
    siblings = {_read(folder / f"cpu{p}/topology/thread_siblings_list") or str(p) for p in processors}
    return max(1, len(siblings))


def _quota(root: Path) -> int:
    """Processors' worth of time that the control groups allow, rounded up; ``MAX_THREADS`` if they do not say."""
    quotas = [quota for group in _groups(root) if (quota := _group_quota(group)) is not None]
    return math.ceil(min(quotas, default=MAX_THREADS))


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the control groups of this process that may limit its processors, and of all groups around them."""
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        for top in (mount, mount / "unified") if not controllers else (mount / controllers, mount / "cpu"):
            group = top / path.strip("/")
            yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(top))


def _group_quota(group: Path) -> float | None:
    """Version 2: ``cpu.max`` has quota and period, or ``max``. Version 1: a file for each; -1 is no limit."""
    words = _read(group / "cpu.max").split()
    if len(words) != 2:
        words = [_read(group / "cpu.cfs_quota_us").strip(), _read(group / "cpu.cfs_period_us").strip()]
    quota, period = (_positive(word) for word in words)
    return quota / period if quota is not None and period is not None else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""

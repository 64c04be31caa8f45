"""Available memory, budgets of it, and ``OutOfMemory`` where an allocation fails.

A few bytes of an untrusted model can request any amount of memory. So memory is counted before it is allocated
(``Budget``). Allocations that can't be counted raise ``MemoryError``, which public functions turn into ``OutOfMemory``,
a ``ResourceLimit`` (``memory_guarded``).
"""

import ctypes
import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tilewright.base.errors import OutOfMemory, ResourceLimit
from tilewright.base.files import text_of
from tilewright.base.sizes import parse_size

REMEDY = "use a machine with more memory, or raise TILEWRIGHT_MODEL_BYTES if that is set"


_SMALL = 1 << 20
"""Bytes that are there if the process runs at all."""


class Budget:
    """A budget in bytes for one purpose: ``limit``, or what is available when more than ``_SMALL`` are taken first."""

    def __init__(self, limit: int | None = None, remedy: str = REMEDY) -> None:
        self.taken = 0
        self._limit = limit
        self._remedy = remedy

    def take(self, count: int, what: str) -> None:
        """Count ``count`` bytes to be allocated for ``what``. Raises ``ResourceLimit`` if they exceed the budget."""
        if self._limit is None and self.taken + count > _SMALL:
            self._limit = available()
        if self._limit is not None and self.taken + count > self._limit:
            before = f" after {self.taken} bytes of others" if self.taken else ""
            raise ResourceLimit(f"{what} takes {count} bytes{before}, and the limit is {self._limit}: {self._remedy}")
        self.taken += count


@contextmanager
def memory_guarded(doing: str) -> Generator[None]:
    """A decorator: turns ``MemoryError`` into ``OutOfMemory``, whose text names the activity."""
    try:
        yield
    except OutOfMemory:
        raise
    except MemoryError as error:
        raise out_of_memory(doing, error) from error
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise out_of_memory(doing, error) from error


def out_of_memory(doing: str, error: Exception) -> OutOfMemory:
    """The error for ``doing``, during which ``error`` was raised."""
    asked = f" ({error})" if str(error) else ""
    return OutOfMemory(
        f"memory ended while {doing}{asked}; free some, raise the process's limit, or use a machine with more"
    )


def give_back() -> None:
    """Return freed memory to the system, which glibc would keep for later; other C libraries have no such function."""
    trim = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def available(root: Path = Path("/")) -> int:
    """Bytes that this process can still allocate, by the limits of the machine, its control groups and its address
    space.

    ``root``: the folder of ``/proc`` and ``/sys``. Reclaimable caches count as available.
    """
    found = [_address_space(root), _machine(root), *map(_group, _groups(root))]
    return max(0, min((count for count in found if count is not None), default=1 << 62))


def _address_space(root: Path) -> int | None:
    """Bytes left of ``RLIMIT_AS``, on Linux: other systems do not say how much is in use, or enforce no such limit."""
    if sys.platform != "linux":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _number(text_of(root / "proc/self/statm").split(" ")[0])
    return None if limit == resource.RLIM_INFINITY or pages is None else limit - pages * os.sysconf("SC_PAGE_SIZE")


def _machine(root: Path) -> int | None:
    """What is free or can be taken back, and what can be moved to disk."""
    pairs = (line.partition(":") for line in text_of(root / "proc/meminfo").splitlines())
    found = {name: parse_size(rest.removesuffix("kB").strip() + "K") for name, _, rest in pairs}
    free = found.get("MemAvailable")
    return None if free is None else free + (found.get("SwapFree") or 0)


def _groups(root: Path) -> list[Path]:
    """Folders of the control groups (versions 1 and 2) that may limit this process, and of their parents."""
    mount, found = root / "sys/fs/cgroup", dict[Path, None]()
    for line in text_of(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        top = mount / "memory" if controllers else mount
        group = top / path.strip("/")
        found.update((folder, None) for folder in (group, *group.parents) if folder.is_relative_to(top))
    return list(found)


def _group(folder: Path) -> int | None:
    """Bytes left of a control group's limit; reclaimable file caches do not count as used."""
    names = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
    for limit_name, usage_name in names:
        limit, usage = _number(text_of(folder / limit_name)), _number(text_of(folder / usage_name))
        if limit is not None and usage is not None:
            return limit - usage + _reclaimable(folder)
    return None


def _reclaimable(folder: Path) -> int:
    pairs = (line.partition(" ") for line in text_of(folder / "memory.stat").splitlines())
    return next((_number(value) or 0 for name, _, value in pairs if name == "inactive_file"), 0)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

"""Finds, kills and reaps all descendants of a process, on Linux.

- A child has its own session and process group, so one signal reaches all processes that it started.
- A process that leaves the group (``setsid``) still has a parent. When that ends, Linux makes it a child of the nearest
  ancestor that is a *subreaper*, as children and supervisors are. So none escapes while its supervisor lives.
- A process asks for a signal when its parent ends, so the children of a killed supervisor end, too.
- Linux ranks whole sessions against each other (``sched(7)``, "The autogroup feature"), and by nice values only within
  each: a child with a session of its own that is to come last says so of the session, too.
"""

import ctypes
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")
_BURIAL_SECONDS = 5.0
_AUTOGROUP = _PROC / "self" / "autogroup"
_AUTOGROUP_TRIES, _AUTOGROUP_SECONDS = 5, 0.11

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Let orphaned descendants become this process's children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> None:
    """Be killed when the parent process ``parent`` ends; it may have ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def give_way(more: int) -> None:
    """Let other processes come first: raise the nice value of this one by ``more``, and let its session have the same,
    if it leads one."""
    nice = os.nice(more)
    if os.getsid(0) != os.getpid():
        return
    for _ in range(_AUTOGROUP_TRIES):
        try:
            _AUTOGROUP.write_text(str(nice), encoding="ascii")
        except BlockingIOError:  # the system takes one such change in 0.1 s
            time.sleep(_AUTOGROUP_SECONDS)
        except OSError:  # there are no autogroups
            return
        else:
            return


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def children_of(process: int) -> set[int]:
    """The direct children of a process, including zombies; none if it does not exist."""
    found = set[int]()
    with suppress(OSError):
        for thread in (_PROC / str(process) / "task").iterdir():
            with suppress(OSError):
                found |= set(map(int, (thread / "children").read_text().split()))
    return found


def waited(process: int) -> float:
    """The seconds for which a process was ready and waited for a processor, those of the thread that waited longest; 0
    where the system does not say."""
    longest = 0
    with suppress(OSError):
        for thread in (_PROC / str(process) / "task").iterdir():
            with suppress(OSError, ValueError, IndexError):
                longest = max(longest, int((thread / "schedstat").read_text(encoding="ascii").split()[1]))
    return longest * 1e-9


def kill_group(process: int) -> None:
    """Kill the leader of a process group, and the group."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(process, signal.SIGKILL)


def bury_strays(known: Collection[int]) -> int:
    """Kill and reap all children of this process except the known ones, and those it inherits thereby.

    Returns their number. Gives up after some seconds on those that the system can't end.
    """
    buried = set[int]()
    end = time.monotonic() + _BURIAL_SECONDS
    while strays := children_of(os.getpid()) - set(known):
        for stray in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(stray, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(stray, os.WNOHANG)
        buried |= strays
        if time.monotonic() > end:
            break
        time.sleep(0.001)
    return len(buried)

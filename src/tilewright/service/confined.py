"""Gives up what a compilation does not need, then becomes ``tilewright.isolated``: the child process of each job.

    python -P -m tilewright.service.confined --folder=JOB --seconds=600 --bytes=2147483648 --socket=4 --parent=1234

- Files: writes to the job's folder only; reads that, Python's folders and the system's, not the store, the database or
  homes. It signals and traces no process outside (Landlock: Linux 5.13, for all of it 6.12).
- Network: an empty namespace of its own, so there is no address to reach.
- Privileges: none, also if the service runs as root. Environment: no variables of the service.
- Resources: time of processors, size of files, no core dumps; memory and wall time are limits of ``isolation``. When
  the system's memory ends, it is the first to be killed.

What the system does not offer is left out; ``probe`` tells what there is. This needs no privileges.
"""

import argparse
import ctypes
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tilewright.base import fields
from tilewright.measure.limits import limit_files, limit_processor
from tilewright.measure.processes import die_with, give_way

COMMAND: Final = (sys.executable, "-P", "-m", "tilewright.service.confined")
_SLACK_SECONDS: Final = 60.0
_NICE: Final = 2
_PROBE_SECONDS: Final = 60.0
_KEPT: Final = frozenset({"PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LD_LIBRARY_PATH", "LANG", "LC_ALL"})
_THREADS: Final = frozenset({"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"})

_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_PR_SET_NO_NEW_PRIVS: Final = 38
_CAPABILITY_VERSION: Final = 0x20080522
_CAPABILITY_BYTES: Final = 24
"""Effective, permitted and inheritable ones, 64 bits each (``capset(2)``)."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls of Landlock; the same numbers on all architectures."""
_VERSION: Final = 1
_BENEATH: Final = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE
_BITS: Final = ((5, 16), (3, 15), (2, 14), (1, 13))
"""How many kinds of access to files a version of Landlock knows (``linux/landlock.h``)."""
_TCP: Final = 3
_SCOPES: Final = 3
"""Abstract sockets and signals."""
_SYSTEM: Final = ("/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", "/sys", "/dev/urandom", "/dev/random", "/dev/zero")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Confinement:
    """What the system can take from a child, besides resources."""

    network: bool
    files: bool


def probe() -> Confinement:
    """What a child is confined in on this machine, tried in a process."""
    command = [*COMMAND, "--probe", "--folder=/dev/null"]
    done = subprocess.run(command, capture_output=True, timeout=_PROBE_SECONDS, check=False)
    with suppress(ValueError, TypeError):
        said = fields.mapping(json.loads(done.stdout))
        return Confinement(said.get("network") is True, said.get("files") is True)
    return Confinement(network=False, files=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Confine this process, and become ``isolated``."""
    parser = argparse.ArgumentParser(description="Confines a compilation of the service; not for people.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--probe", action="store_true")
    for name, kind in (("seconds", float), ("bytes", int), ("socket", int), ("parent", int)):
        parser.add_argument(f"--{name}", type=kind, default=0)
    given = parser.parse_args(arguments)
    if given.probe:
        sys.stdout.write(json.dumps(asdict(_confine(given.folder))))
        return 0
    die_with(given.parent)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    give_way(_NICE)
    limit_files(given.bytes)
    limit_processor(given.seconds * (os.cpu_count() or 1) + _SLACK_SECONDS)
    _confine(given.folder)
    command = [sys.executable, "-P", "-m", "tilewright.isolated"]
    os.set_inheritable(given.socket, True)
    ends = [f"--socket={given.socket}", f"--parent={given.parent}"]
    os.execve(sys.executable, [*command, *ends], environment(os.environ, given.folder))


def environment(variables: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables of a child whose folder is ``folder``."""
    kept = {name: value for name, value in variables.items() if name in _KEPT | _THREADS}
    return {**kept, "HOME": str(folder), "TMPDIR": str(folder)}


def _confine(folder: Path) -> Confinement:
    network = _is_done(_leave_network)
    _give_up_privileges()
    return Confinement(network, files=_is_done(lambda: _leave_files(folder)))


def _is_done(measure: Callable[[], None]) -> bool:
    try:
        measure()
    except OSError:
        return False
    return True


def _leave_network() -> None:
    """Raises ``OSError`` if this process may not have a namespace."""
    user, group = os.geteuid(), os.getegid()
    if _libc.unshare(_CLONE_NEWNET) == 0:
        return
    _checked(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text, encoding="ascii")


def _give_up_privileges() -> None:
    """No capabilities, also of root, and no program that is started gets any: some pass by Landlock (CAP_PERFMON)."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0))
    _checked(_libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(_CAPABILITY_BYTES)))


def _leave_files(folder: Path) -> None:
    """Raises ``OSError`` if the system has no Landlock."""
    version = _checked(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION))
    every = (1 << next(count for least, count in _BITS if version >= least)) - 1
    attributes = struct.pack("=Q", every)
    if version >= 4:
        attributes += struct.pack("=Q", _TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _SCOPES)
    rules = _checked(_libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    try:
        _allow(rules, [str(folder)], every)
        _allow(rules, ["/dev/null"], _READ_FILE | _WRITE_FILE)
        _allow(rules, {*_SYSTEM, *_of_python()}, _READ)
        _checked(_libc.syscall(_RESTRICT_SELF, rules, 0))
    finally:
        os.close(rules)


def _of_python() -> set[str]:
    """Folders from which Python imports."""
    return {str(Path(path).absolute()) for path in (sys.prefix, sys.base_prefix, *sys.path) if path}


def _allow(rules: int, paths: Iterable[str], access: int) -> None:
    """Allow ``access`` to these paths and what is beneath; those that do not exist are left out."""
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = access if os.path.isdir(path) else access & _OF_FILES
            try:
                rule = struct.pack("=Qi", allowed, descriptor)
                _checked(_libc.syscall(_ADD_RULE, rules, _BENEATH, rule, 0))
            finally:
                os.close(descriptor)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "the system refuses")
    return result


if __name__ == "__main__":
    raise SystemExit(main())

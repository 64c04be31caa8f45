"""Limits of a measurement: time, enforced by the parent, and memory and files, enforced by the system."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from tilewright.measure.verdicts import Phase

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes for one candidate. ``uses``: candidates that a child measures before it is replaced."""

    start_seconds: float = 60.0
    prepare_seconds: float = 120.0
    build_seconds: float = 60.0
    run_seconds: float = 30.0
    slack_seconds: float = 1.0
    memory_bytes: int = 4096 * _MIB
    """Bytes of address space beyond those of a child when it is ready."""
    file_bytes: int = 64 * _MIB
    uses: int = 100

    def run_deadline(self, best_us: float | None, check_seconds: float = 0.0) -> float:
        """Time limits of checking and of timing, in seconds: ten times the best so far, and some slack.

        ``check_seconds``: the minimum time of checking, mostly for comparing results: added three times.
        """
        if best_us is None:
            return self.run_seconds
        return min(self.run_seconds, 10 * best_us * 1e-6 + 3 * check_seconds + self.slack_seconds)

    def seconds(self, phase: Phase, run_seconds: float) -> float:
        """The time limit of ``phase``."""
        match phase:
            case Phase.PREPARE:
                return self.prepare_seconds
            case Phase.BUILD:
                return self.build_seconds
            case Phase.CHECK | Phase.TIME:
                return run_seconds


def limit_files(file_bytes: int) -> None:
    """In a child: no core dumps, no large files."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, file_bytes)


def limit_memory(more_bytes: int) -> None:
    """In a child: limit its address space to ``bytes`` beyond the present size."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    _limit(resource.RLIMIT_AS, pages * os.sysconf("SC_PAGE_SIZE") + more_bytes)


def limit_processor(seconds: float) -> None:
    """In a child: end it (``SIGXCPU``) after ``seconds`` more of processor time, in case the supervisor fails."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime + seconds) + 1)


def _limit(kind: int, most: int) -> None:
    """Set the soft limit, within the hard limit."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))

"""A candidate in a process of its own, so that thread pools and memory of one don't disturb another.

The child sits in its own session (thus, on Linux, in its own scheduler autogroup, whose nice value is what ranks it
against other sessions), has its threads fixed by environment and affinity, and answers a slot only when its own threads
have come to rest: pools that spin for a while after a run don't take a core from the next candidate.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from .harness import CandidateError, Plan

ROOT = Path(__file__).parent.parent
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
LOWEST_NICE = -20


ANSWER_LIMIT = 600.0  # seconds


class WorkerError(CandidateError):
    """A worker process ended before its time, or does not answer; its traceback is on standard error."""


@dataclass(frozen=True, slots=True)
class Spec:
    """Which callable a worker times: `factory` ("module:function") called with `arguments` and `threads=`."""

    name: str
    factory: str
    arguments: Mapping[str, str]
    threads: int


class Worker:
    """A candidate that runs in a child process; use it as a context manager.

    The child builds its callable as soon as it is started; `wait_ready` waits for that, so that several children can
    be started first and be built side by side.
    """

    def __init__(self, spec: Spec, limit: float = ANSWER_LIMIT) -> None:
        """`limit`: seconds that building, and any one slot, may take."""
        self.spec = spec
        self._limit = limit
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", json.dumps(asdict(spec))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, str(spec.threads)),
            start_new_session=True,
        )

    @property
    def name(self) -> str:
        """What the candidate is called in a report."""
        return self.spec.name

    def wait_ready(self) -> float:
        """Wait until the callable is built and was run once; the seconds it took. Raises WorkerError."""
        return float(self._answer()["build_seconds"])

    def run_slot(self, plan: Plan) -> list[float]:
        """Warm up, then run for a slot; the seconds of each run. Raises WorkerError."""
        return list(self._ask({"command": "slot", "plan": asdict(plan)})["times"])

    def save_outputs(self, path: Path, feeds: Path | None = None) -> None:
        """Have the child run once and write the arrays its callable returns as `output_0`, ... to an npz file.

        `feeds`: an npz file of other inputs than those it times, for callables that take some. Raises WorkerError.
        """
        self._ask({"command": "save", "path": str(path), "feeds": feeds and str(feeds)})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _pipe(self._process.stdin).close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._kill()
        _pipe(self._process.stdout).close()

    def _ask(self, command: Mapping[str, object]) -> dict[str, Any]:
        stdin = _pipe(self._process.stdin)
        try:
            stdin.write(json.dumps(command) + "\n")
            stdin.flush()
        except BrokenPipeError:
            raise WorkerError(f"{self.name}: the worker ended; see its traceback") from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        stdout = _pipe(self._process.stdout)
        if not select.select([stdout], [], [], self._limit)[0]:  # nothing is left in its buffer: an answer is a line
            self._kill()
            raise WorkerError(f"{self.name}: no answer within {self._limit:g} s")
        line = stdout.readline()
        if not line:
            raise WorkerError(f"{self.name}: the worker ended, exit status {self._process.wait()}; see its traceback")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.name}: {answer['error']}")
        return answer

    def _kill(self) -> None:
        """End the child and the processes it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None, "the worker is started with pipes"
    return stream


def quiet(threads: int) -> None:
    """Put this process and its threads before all others, on `threads` of the CPUs; what isn't permitted is left.

    The autogroup's nice value counts for every process of a session, so it is set only by the session's leader. Call it
    when the pools exist: building may take all CPUs, at normal priority.
    """
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(LOWEST_NICE))
    if not hasattr(os, "sched_setaffinity"):
        return
    cpus = sorted(os.sched_getaffinity(0))[-threads:]
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, int(task.name), LOWEST_NICE)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task.name), cpus)


@contextlib.contextmanager
def exclusive(lock: Path | None) -> Iterator[None]:
    """Hold an exclusive lock on a file while timing, where several people measure on one machine."""
    if lock is None:
        yield
        return
    import fcntl  # POSIX only

    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

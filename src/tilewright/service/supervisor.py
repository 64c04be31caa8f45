"""Keeps workers running: one that ends is replaced, and what it had claimed is free at once."""

import logging
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from tilewright.service.config import Config
from tilewright.service.leases import Leases
from tilewright.service.limits import Unavailable

_LOG = logging.getLogger("tilewright.service")
COMMAND: Final = (sys.executable, "-P", "-m", "tilewright.service.worker")
_POLL_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 1.0
"""Between starts: a worker that ends at once, as its database is gone, is not started over and over."""
_GOODBYE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Running:
    name: str
    process: "subprocess.Popen[bytes]"


class Supervisor:
    """A context manager: ``count`` workers run within the block."""

    def __init__(self, leases: Leases, count: int, config: Config) -> None:
        """``config``: of all workers; each gets a name."""
        self._leases, self._count, self._config = leases, count, config
        self._stopped = threading.Event()
        self._workers: list[_Running] = []
        # Workers end with the thread that started them, so it is one that stays.
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def __enter__(self) -> "Supervisor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the workers give back what they do, and end them."""
        self._stopped.set()
        self._thread.join()

    def alive(self) -> int:
        """How many workers run."""
        return sum(worker.process.poll() is None for worker in tuple(self._workers))

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                pause = _PAUSE_SECONDS if self._replace_dead() else _POLL_SECONDS
                self._stopped.wait(pause)
        finally:
            self._end()

    def _replace_dead(self) -> bool:
        """Whether one was dead."""
        dead = [worker for worker in self._workers if worker.process.poll() is not None]
        for worker in dead:
            _LOG.warning("worker %s ended with status %s", worker.name, worker.process.returncode)
            self._workers.remove(worker)
            with suppress(Unavailable):  # the lease runs out by itself
                self._leases.release(worker.name)
        while len(self._workers) < self._count and not self._stopped.is_set():
            self._workers.append(self._start())
        return bool(dead)

    def _start(self) -> _Running:
        name = f"{socket.gethostname()[:24]}-{uuid.uuid4().hex[:16]}"
        config = replace(self._config, name=name)
        process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, start_new_session=True)
        if process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin as pipe:  # one that is dead already is found dead later
                pipe.write(config.text().encode())
        return _Running(name, process)

    def _end(self) -> None:
        for worker in self._workers:
            worker.process.terminate()
        end = time.monotonic() + _GOODBYE_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()

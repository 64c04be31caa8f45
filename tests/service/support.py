"""What tests of the service share: a service in this process, and one in its own."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
from starlette.testclient import TestClient

from tests.frontend.models import single_node
from tilewright.service.app import Service, make_app
from tilewright.service.confined import Confinement
from tilewright.service.jobs import Jobs
from tilewright.service.leases import Leases
from tilewright.service.limits import Limits
from tilewright.service.objects import Objects
from tilewright.service.store import Store
from tilewright.service.tables import Database
from tilewright.service.tokens import LOCAL, Tokens
from tilewright.service.worker import Worker

X = np.arange(6, dtype=np.float32).reshape(2, 3)
LOOPBACK = "http://127.0.0.1"


def model(summand: float = 1.0) -> bytes:
    """``x + summand``."""
    return single_node("Add", {"x": X}, {"c": np.full_like(X, summand)}).SerializeToString()


@dataclass
class Clock:
    """A clock that stands."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Here:
    """A service in this process, without workers of its own."""

    folder: Path
    tokens: Tokens = field(default_factory=lambda: Tokens({}))
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.time
    url: str | None = None
    objects: Objects | None = None

    def __post_init__(self) -> None:
        self.store = Store.open(self.folder / "store", self.objects)
        self.database = Database(self.url or f"sqlite:///{self.folder / 'jobs.db'}")
        for owner in (*self.tokens.owners.values(), LOCAL):
            self.database.add_owner(owner.name)
        self.jobs = Jobs(self.database, self.clock)
        self.leases = Leases(self.database, self.limits.lease_seconds, self.limits.attempts, self.clock)
        everything = Confinement(network=True, files=True)
        app = make_app(Service(self.jobs, self.store, self.tokens, self.limits, everything))
        self.client = TestClient(app, base_url=LOOPBACK)

    def worker(self, *command: str) -> Worker:
        """A worker; ``command``: in place of the child's."""
        worker = Worker("w", self.leases, self.store, self.limits)
        return Worker("w", self.leases, self.store, self.limits, command) if command else worker

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.database.close()


@dataclass
class There:
    """A service in a process of its own."""

    process: "subprocess.Popen[str]"
    url: str

    def call(self, method: str, path: str, body: bytes | None = None) -> dict[str, object]:
        """The answer, as JSON."""
        request = urllib.request.Request(f"{self.url}{path}", body, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def artifact(self, job: dict[str, object]) -> bytes:
        with urllib.request.urlopen(f"{self.url}/v1/artifacts/{job['artifact']}", timeout=60) as answer:
            return answer.read()

    def until(self, job: object, *states: str, seconds: float = 120.0) -> dict[str, object]:
        """The job, once it is in one of these states."""
        end = time.monotonic() + seconds
        while (found := self.call("GET", f"/v1/jobs/{job}"))["state"] not in states:
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    def kill(self) -> None:
        """As the system does it when memory ends."""
        self.process.kill()
        self.process.wait()


@contextmanager
def service(folder: Path, *options: str, variables: Mapping[str, str] = MappingProxyType({})) -> Generator[There]:
    """``variables``: of its environment, besides those of this process."""
    command = [
        sys.executable,
        "-m",
        "tilewright",
        "service",
        "--folder",
        str(folder),
        "--port",
        "0",
        "--json",
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables})
    try:
        assert process.stdout is not None
        yield There(process, str(json.loads(process.stdout.readline())["url"]))  # of workers alone: None
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def processes_of(folder: Path) -> list[int]:
    """Processes of compilations whose folder is in ``folder``."""
    found = list[int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                variables = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"HOME={folder}".encode() in variables:
                found.append(int(entry.name))
    return found


def tried(there: There, method: str, path: str, body: bytes | None = None) -> dict[str, object] | None:
    """As ``call``; None if the service is gone, also in the midst of its answer, or says to try again."""
    try:
        return there.call(method, path, body)
    except urllib.error.HTTPError as error:
        assert error.code in (429, 503), error.read()  # 429: more jobs wait than a token may have
        return None
    except (http.client.HTTPException, OSError):
        return None


def ended(process: int) -> bool:
    return not os.path.exists(f"/proc/{process}")

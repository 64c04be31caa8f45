"""Fleets on this machine: a scheduler and devices, each a process that tests may kill."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base.files import text_of
from tilewright.fleet.access import Access, Address
from tilewright.fleet.fleet import Fleet

ROOT = Path(__file__).parents[2]


@dataclass
class Local:
    """A fleet, whose processes are forked by ``zygote``; devices obey the names of jobs (``measure.faulty_child``)."""

    folder: Path
    zygote: "subprocess.Popen[str]"
    address: str
    options: tuple[str, ...] = ()
    processes: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def access(self) -> Access:
        return Access(Address.parse(self.address))

    def serve(self, *options: str) -> None:
        """Start the scheduler, or start it again."""
        self.start("scheduler", "serve", "--listen", self.address, *self.options, *options)

    def join(self, name: str, *options: str) -> None:
        """Start a device, or start it again."""
        folder = ("--folder", str(self.folder / name))
        self.start(name, "join", "--fleet", self.address, *self.options, "--name", name, *folder, *options)

    def start(self, name: str, *words: str) -> None:
        assert self.zygote.stdin is not None and self.zygote.stdout is not None
        asked = {"log": str(self.folder / f"{name}.log"), "words": words}
        self.zygote.stdin.write(json.dumps(asked) + "\n")
        self.zygote.stdin.flush()
        self.processes[name] = int(self.zygote.stdout.readline())

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a process a signal; after SIGKILL it is gone."""
        os.kill(self.processes[name], how)
        if how is signal.SIGKILL:
            until(lambda: not Path(f"/proc/{self.processes[name]}").exists())

    def log(self, name: str) -> str:
        return text_of(self.folder / f"{name}.log")

    @contextmanager
    def connected(self) -> Generator[Fleet]:
        """A client, as soon as there is a scheduler."""
        until(self.listens)
        with Fleet.connect(self.access) as client:
            yield client

    def listens(self) -> bool:
        address = Address.parse(self.address)
        with socket.socket() as tried:
            return tried.connect_ex((address.host, address.port)) == 0


@contextmanager
def local(folder: Path, *devices: str, key: str = "board", most_seconds: float = 600.0) -> Generator[Local]:
    """A scheduler, and devices that have joined."""
    made = Local(folder, started(), f"tcp://127.0.0.1:{free_port()}")
    try:
        made.serve("--most-seconds", str(most_seconds))
        for name in devices:
            made.join(name, "--key", key)
        with made.connected() as fleet:
            until(lambda: len(fleet.devices()) == len(devices))
        yield made
    finally:
        for process in made.processes.values():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
        made.zygote.communicate()


def started() -> "subprocess.Popen[str]":
    """A zygote."""
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("zygote.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)

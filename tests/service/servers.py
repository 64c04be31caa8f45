"""Servers that slow tests start, in temporary folders: PostgreSQL of the system, as a user without privileges, and an
object store."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

USER = "nobody"


def programs_of_postgresql() -> Path | None:
    """The folder with ``initdb`` and ``postgres``; Debian keeps it from the path."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "postgres").is_file()), None)


@dataclass
class Postgresql:
    """A server on a socket in ``folder``, which only its user and root reach; it asks for no password."""

    programs: Path
    folder: Path
    user: str | None
    databases: int = 0
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    def prepare(self) -> None:
        command = [self.programs / "initdb", "--auth=trust", "--username=tilewright", "--no-sync", "--no-locale"]
        self._call(*command, "--encoding=UTF8", self.folder / "data")

    def start(self) -> None:
        """Start it; after a kill, what is left of the last one may still be in the way."""
        end = time.monotonic() + 300
        while not self._answers():
            assert time.monotonic() < end, (self.folder / "log").read_text()
            if self.process is None or self.process.poll() is not None:
                # What was written survives a kill of the server, if not of the system.
                settings = ("-c", "listen_addresses=", "-c", "fsync=off")
                command = [self.programs / "postgres", "-D", self.folder / "data", "-k", self.folder, *settings]
                with (self.folder / "log").open("ab") as log:
                    self.process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, user=self.user)
            time.sleep(0.1)

    def kill(self) -> None:
        """As a power failure does it to the server; its children notice, and end."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)  # nothing need be kept
            self.process.wait(60)

    def url(self) -> str:
        """Of a new database."""
        self.databases += 1
        name = f"test{self.databases}"
        self._call(self.programs / "createdb", "-h", self.folder, "-U", "tilewright", name)
        return f"postgresql://tilewright@/{name}?host={self.folder}"

    def _answers(self) -> bool:
        command = [self.programs / "pg_isready", "-q", "-h", self.folder]
        return subprocess.run(command, check=False).returncode == 0

    def _call(self, *command: str | Path) -> None:
        subprocess.run([str(word) for word in command], check=True, capture_output=True, user=self.user)


@contextmanager
def postgresql(programs: Path) -> Generator[Postgresql]:
    with tempfile.TemporaryDirectory(prefix="tw-pg-", ignore_cleanup_errors=True) as name:
        user = USER if os.geteuid() == 0 else None  # the server refuses to run as root
        if user is not None:
            facts = pwd.getpwnam(user)
            os.chown(name, facts.pw_uid, facts.pw_gid)
        server = Postgresql(programs, Path(name), user)
        server.prepare()
        try:
            server.start()
            yield server
        finally:
            server.stop()


BUCKET = "tilewright"


def store_variables(address: str) -> dict[str, str]:
    """Where boto3 looks for the server at this address."""
    return {
        "AWS_ENDPOINT_URL_S3": address,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@contextmanager
def object_server() -> Generator[str]:
    """The address of a server with the API of S3, and an empty bucket; it asks for no real credentials."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT"), timeout=10).close()
                break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()

"""What the child of a job can't do, tried in such a child. What the system does not offer is skipped."""

import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.service.confined import environment, probe

PROGRAM = """
import os, socket, sys
from pathlib import Path
from tilewright.service.confined import _confine
folder, outside, other = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
server = socket.create_server(("127.0.0.1", 0))
print(_confine(folder))
def tried(name, action):
    try:
        action()
    except OSError as error:
        print(name, "refused")
    else:
        print(name, "done")
tried("write inside", lambda: (folder / "x").write_text("x"))
tried("read inside", lambda: (folder / "x").read_text())
tried("read outside", lambda: outside.read_text())
tried("list outside", lambda: list(outside.parent.iterdir()))
tried("write outside", lambda: (outside.parent / "new").write_text("x"))
tried("signal", lambda: os.kill(other, 0))
tried("environment", lambda: Path(f"/proc/{other}/environ").read_bytes())
tried("connect", lambda: socket.create_connection(server.getsockname(), timeout=1))
"""


def test_a_child_reaches_its_folder_only(tmp_path: Path) -> None:
    found = probe()
    if not (found.network and found.files):
        pytest.skip(f"this system has {found}")
    folder, outside = tmp_path / "inside", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("secret")
    other = subprocess.Popen(["sleep", "60"])
    try:
        command = [sys.executable, "-P", "-c", PROGRAM, str(folder), str(outside), str(other.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        other.kill()
        other.wait()
    first, *said = done.stdout.splitlines()
    assert first == "Confinement(network=True, files=True)"
    assert said == [
        "write inside done",
        "read inside done",
        "read outside refused",
        "list outside refused",
        "write outside refused",
        "signal refused",
        "environment refused",
        "connect refused",
    ]


def test_variables_of_the_service_are_not_passed_on() -> None:
    given = {"PATH": "/bin", "DATABASE": "secret", "TILEWRIGHT_RECORDS": "/r", "HOME": "/root"}
    assert environment(given, Path("/job")) == {"PATH": "/bin", "HOME": "/job", "TMPDIR": "/job"}

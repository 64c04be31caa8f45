"""What processes ask of the system."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.measure.jobs import FAULTY
from tilewright.measure import processes, worker
from tilewright.measure.limits import Limits

AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")
PROGRAM = """
import os
from pathlib import Path
from tilewright.measure.processes import give_way
before = os.nice(0)
give_way(3)
give_way(4)
print(os.nice(0) - before, Path("/proc/self/autogroup").read_text().split()[-1:] == [str(os.nice(0))])
"""


def ranks_sessions() -> bool:
    return AUTOGROUPS.exists() and AUTOGROUPS.read_text().strip() == "1"


@pytest.mark.skipif(not ranks_sessions(), reason="this system ranks no sessions")
def test_a_session_gives_way_to_others() -> None:
    """Nice values count within a session only; also twice in a row, which the system refuses at first. Where nobody has
    called ``setsid`` since the system started, there is no group of the session, and its file is empty."""
    for leads in (True, False):
        command = [sys.executable, "-P", "-c", PROGRAM]
        done = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=leads)
        assert done.stdout.split() == ["7", str(leads)]


def test_waiting_for_a_processor_puts_a_deadline_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the thread that waited longest. What the system does not tell is no waiting."""
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    child = worker.Worker(FAULTY, Limits(start_seconds=-1.0), "")
    try:
        assert child.is_late()
        for thread, waits in (("1", 0.5e9), ("2", 60e9)):
            (tmp_path / str(child.id) / "task" / thread).mkdir(parents=True)
            (tmp_path / str(child.id) / "task" / thread / "schedstat").write_text(f"7 {waits:.0f} 3\n")
        assert not child.is_late()
        child.channel.closed = True
        child.deadline = 0.0
        assert child.is_late()  # it is ending
    finally:
        child.end()
        child.errors()


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this system does not tell how long threads waited"
)
def test_who_shares_a_processor_waits() -> None:
    one = {min(os.sched_getaffinity(0))}
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for spinner in spinning:
            os.sched_setaffinity(spinner.pid, one)
        end = time.monotonic() + 20
        while min(processes.waited(spinner.pid) for spinner in spinning) < 0.05:
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        for spinner in spinning:
            spinner.kill()
            spinner.wait()

"""Devices are killed and stopped, the scheduler is killed; each job has one outcome in the end, the right one."""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet.fleets import Local, local
from tests.measure.faulty_child import Fault
from tests.measure.jobs import job
from tilewright.base import fields
from tilewright.fleet.runner import FleetRunner
from tilewright.measure.job import Job
from tilewright.measure.verdicts import Verdict

DEVICES = 4
JOBS = 200
KILL_SECONDS = 10.0
"""How often half of the devices are killed; one is stopped for good."""
SCHEDULER_AFTER = (60, 120)
"""The scheduler is killed when so many jobs are done: a fast machine is through before the clock says much."""
DEAF_SECONDS = 40.0
"""After so long the work of a device that hangs is with another one."""
BACK_SECONDS = 15.0
_FAULTS = {
    Fault.SEGV: Verdict.CRASH,
    Fault.WRONG: Verdict.WRONG,
    Fault.MEMORY: Verdict.OOM,
    Fault.GARBAGE: Verdict.PROTOCOL,
}


@pytest.mark.slow
def test_storm(tmp_path: Path) -> None:
    names = [f"d{place}" for place in range(DEVICES)]
    wanted = {j.id: (j, verdict) for j, verdict in _jobs()}
    assert len(wanted) == JOBS
    found: Counter[str] = Counter()
    with local(tmp_path, *names) as fleet, fleet.connected() as client:
        over, log = threading.Event(), list[str]()
        weather = threading.Thread(target=_rage, args=(fleet, names, over, log, found.total))
        weather.start()
        gaps: list[float] = []
        last = time.monotonic()
        try:
            with FleetRunner(client, "board") as runner:
                for measured, outcome in runner.measure_all(j for j, _ in wanted.values()):
                    assert outcome.verdict is wanted[measured.id][1], (outcome, measured.program[:200])
                    found[measured.id] += 1
                    gaps.append(time.monotonic() - last)
                    last = time.monotonic()
        finally:
            over.set()
            weather.join()
        members = map(fields.mapping, fields.items(client.status()["devices"]))
        assert all(member["user"] is None for member in members)
    assert found == dict.fromkeys(wanted, 1)
    assert Counter(log)["scheduler"] == len(SCHEDULER_AFTER)
    assert Counter(log)["stopped"] == 1
    print(f"{JOBS} jobs, {DEVICES} devices: the longest pause was {max(gaps):.1f} s")
    assert max(gaps) < DEAF_SECONDS + BACK_SECONDS


def _jobs() -> list[tuple[Job, Verdict]]:
    """Right ones, and a tenth of all kinds of wrong ones."""
    jobs: list[tuple[Job, Verdict]] = []
    for place in range(JOBS):
        if place % 10 == 9:
            fault, verdict = list(_FAULTS.items())[place // 10 % len(_FAULTS)]
            jobs.append((job(f"{fault.value}__{place}"), verdict))
        else:
            jobs.append((job(f"mm__{place}", 6 + place % 20), Verdict.OK))
    return jobs


def _rage(fleet: Local, names: list[str], over: threading.Event, log: list[str], done: Callable[[], int]) -> None:
    """Half of the devices are killed now and then, one is stopped for good, the scheduler is killed twice."""
    generator = random.Random(0)
    stopped, *others = names
    marks = [*SCHEDULER_AFTER]
    while not over.is_set():
        until = time.monotonic() + KILL_SECONDS
        while not over.wait(0.1) and time.monotonic() < until:
            if marks and done() >= marks[0]:
                marks.pop(0)
                fleet.kill("scheduler")
                log.append("scheduler")
                time.sleep(0.5)
                fleet.serve()
        if over.is_set():
            return
        if "stopped" not in log and "devices" in log:
            fleet.kill(stopped, signal.SIGSTOP)
            log.append("stopped")
            continue
        victims = generator.sample(others, (len(names) + 1) // 2)
        for name in victims:
            fleet.kill(name)
        time.sleep(0.5)
        for name in victims:
            fleet.join(name, "--key", "board")
        log.append("devices")

"""Devices are killed and stopped, the scheduler is killed; each job has one outcome in the end, the right one.

Of the devices, some are emulated ARM processors. A visitor with a higher priority leases a device now and then.

Limits of time are those of the fleet, on a machine that does nothing else. What a busy one takes longer is measured
beside it: a control has a job measured in new processes, without a fleet, again and again. Where that takes longer than
it should, kills are rarer, and limits have the difference for each of the starts that wait for each other.
"""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fleet.fleets import Local, local
from tests.measure.faulty_child import Fault
from tests.measure.jobs import QUICK, job, runner
from tilewright.base import fields
from tilewright.base.errors import FleetError
from tilewright.fleet.runner import FleetRunner
from tilewright.measure.job import Job
from tilewright.measure.verdicts import Verdict
from tilewright.simulation.cores import device_of
from tilewright.target.target import Target

A72 = "aarch64,cortex-a72"
NATIVE, EMULATED = 6, 2
"""Devices."""
JOBS = {"board": 400, "arm": 100}
"""By key."""
KILL_SECONDS = 10.0
"""How often half of the devices are killed, or as often as ``STARTS`` controls take; one is stopped for good."""
SCHEDULER_AFTER = (150, 300)
"""The scheduler is killed when so many jobs are done: a fast machine is through before the clock says much."""
DEAF_SECONDS = 40.0
"""After so long the work of a device that hangs is with another one."""
BACK_SECONDS = 15.0
"""After so long after a restart of the scheduler there are outcomes again."""
VISIT_SECONDS = 5.0
CONTROL_SECONDS = 5.0
"""Between two controls."""
NORMAL_SECONDS = 3.0
"""What a control takes at most if nothing but the storm is on the machine. On two processors of 2025, one alone takes
0.8 s, and 1.9 s while four others start, as half of the devices do after a kill; devices start more processes than it.
So much of ``BACK_SECONDS`` is for starts; the rest is for seeing that a scheduler is back, and for the jobs."""
STARTS = 3
"""Processes that start one after the other before there is an outcome again: a scheduler, a device, a child."""
_FAULTS = {
    Fault.SEGV: Verdict.CRASH,
    Fault.WRONG: Verdict.WRONG,
    Fault.MEMORY: Verdict.OOM,
    Fault.GARBAGE: Verdict.PROTOCOL,
}


@dataclass
class Log:
    """What happened; ``outcomes``: by the hash of a job, with times; ``restarts``: when the scheduler was back;
    ``controls``: when they were to begin, and ended."""

    outcomes: list[tuple[float, str, Verdict]] = field(default_factory=list[tuple[float, str, Verdict]])
    restarts: list[float] = field(default_factory=list[float])
    kills: Counter[str] = field(default_factory=Counter[str])
    visits: list[float] = field(default_factory=list[float])
    controls: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def pauses(self) -> list[tuple[float, float]]:
        """Between outcomes: when each began and ended."""
        return list(pairwise(sorted(when for when, _, _ in self.outcomes)))

    @property
    def backs(self) -> list[tuple[float, float]]:
        """From each restart of the scheduler to an outcome that no device had under way before."""
        later = [sorted(when for when, _, _ in self.outcomes if when > restart) for restart in self.restarts]
        return [
            (restart, times[min(NATIVE + EMULATED, len(times) - 1)])
            for restart, times in zip(self.restarts, later, strict=True)
        ]

    def late(self, between: tuple[float, float]) -> float:
        """How much longer all starts that follow each other took meanwhile than on a machine that does nothing else."""
        begin, end = between
        meanwhile = [ended - began for began, ended in self.controls if began < end and ended > begin]
        return STARTS * max(0.0, max(meanwhile, default=0.0) - NORMAL_SECONDS)


@pytest.mark.slow
def test_storm(tmp_path: Path) -> None:
    pytest.importorskip("capstone")
    pytest.importorskip("unicorn")
    jobs = {"board": _native_jobs(JOBS["board"]), "arm": _emulated_jobs(JOBS["arm"])}
    wanted = {j.id: verdict for pairs in jobs.values() for j, verdict in pairs}
    assert len(wanted) == sum(JOBS.values())
    devices = {f"n{place}": ("--key", "board") for place in range(NATIVE)}
    devices |= {f"e{place}": ("--key", "arm", "--emulate", A72) for place in range(EMULATED)}
    log, begin = Log(), time.monotonic()
    with local(tmp_path) as fleet:
        for name, options in devices.items():
            fleet.join(name, *options)
        with ThreadPoolExecutor(5) as pool:
            measuring = [pool.submit(_measure, log, fleet, key, [j for j, _ in pairs]) for key, pairs in jobs.items()]
            beside = [pool.submit(_rage, log, fleet, devices), pool.submit(_visit, log, fleet)]
            beside.append(pool.submit(_control, log))
            try:
                for future in measuring:
                    future.result()
            finally:
                log.over.set()
            for future in beside:
                future.result()
        with fleet.connected() as client:
            members = [fields.mapping(member) for member in fields.items(client.status()["devices"])]
            assert all(member["user"] is None for member in members)
    assert Counter(measured for _, measured, _ in log.outcomes) == dict.fromkeys(wanted, 1)
    assert (log.kills["scheduler"], log.kills["stopped"]) == (len(SCHEDULER_AFTER), 1)
    assert log.visits
    print(
        f"{len(wanted)} jobs, {len(devices)} devices, {time.monotonic() - begin:.0f} s, {log.kills['devices']} kills of"
        f" devices; seconds: the longest pause {max(map(_seconds, log.pauses)):.1f}; after restarts of the scheduler"
        f" {', '.join(f'{_seconds(back):.1f}' for back in log.backs)}; {len(log.visits)} visits, the longest wait"
        f" {max(log.visits):.1f}; the longest of {len(log.controls)} controls {max(map(_seconds, log.controls)):.1f}"
        f" ({NORMAL_SECONDS:g} at most if the machine does nothing else)"
    )
    verdicts = Counter((wanted[measured].value, verdict.value) for _, measured, verdict in log.outcomes)
    assert not {pair: count for pair, count in verdicts.items() if pair[0] != pair[1]}
    for pause in log.pauses:
        assert _seconds(pause) < DEAF_SECONDS + BACK_SECONDS + log.late(pause)
    for back in log.backs:
        assert _seconds(back) <= BACK_SECONDS + log.late(back)


def _seconds(between: tuple[float, float]) -> float:
    begin, end = between
    return end - begin


def _native_jobs(count: int) -> list[tuple[Job, Verdict]]:
    """Right ones, and a tenth of all kinds of wrong ones."""
    jobs: list[tuple[Job, Verdict]] = []
    for place in range(count):
        if place % 10 == 9:
            fault, verdict = list(_FAULTS.items())[place // 10 % len(_FAULTS)]
            jobs.append((job(f"{fault.value}__{place}"), verdict))
        else:
            jobs.append((job(f"mm__{place}", 6 + place % 20), Verdict.OK))
    return jobs


def _emulated_jobs(count: int) -> list[tuple[Job, Verdict]]:
    timing = replace(QUICK, simulated=device_of(Target.parse(A72)))
    native = (job(f"mm__{place}", 6 + place % 20) for place in range(count))
    return [(replace(made, target=A72, timing=timing), Verdict.OK) for made in native]


def _measure(log: Log, fleet: Local, key: str, jobs: Sequence[Job]) -> None:
    with fleet.connected() as client:
        while not client.status()["devices"] or not _has(client.status(), key):
            time.sleep(0.1)
        with FleetRunner(client, key) as measuring:
            for measured, outcome in measuring.measure_all(jobs):
                log.outcomes.append((time.monotonic(), measured.id, outcome.verdict))


def _has(status: dict[str, object], key: str) -> bool:
    members = [fields.mapping(fields.mapping(member)["device"]) for member in fields.items(status["devices"])]
    return any(member["key"] == key for member in members)


def _visit(log: Log, fleet: Local) -> None:
    """Lease a device with a higher priority, send it something, and give it back."""
    with fleet.connected() as client:
        while not log.over.wait(VISIT_SECONDS):
            begin = time.monotonic()
            try:
                with client.request("board", priority=1, seconds=5) as leased:
                    waited = time.monotonic() - begin
                    leased.upload(f"visit {begin}".encode())
            except FleetError:  # all of them, or the one that was leased, have just been killed
                continue
            log.visits.append(waited)


def _control(log: Log) -> None:
    """Have a job measured in new processes, now and then."""
    due = time.monotonic() + CONTROL_SECONDS
    while not log.over.wait(max(0.0, due - time.monotonic())):
        with runner() as alone:
            assert alone.measure(job("mm")).verdict is Verdict.OK
        log.controls.append((due, time.monotonic()))
        due = time.monotonic() + CONTROL_SECONDS


def _rage(log: Log, fleet: Local, devices: dict[str, tuple[str, ...]]) -> None:
    """Half of the devices are killed now and then, one is stopped for good, the scheduler is killed twice."""
    generator = random.Random(0)
    stopped, *others = devices
    marks = [*SCHEDULER_AFTER]
    while not log.over.is_set():
        until = time.monotonic() + max(KILL_SECONDS, STARTS * _seconds((log.controls or [(0.0, 0.0)])[-1]))
        while not log.over.wait(0.1) and time.monotonic() < until:
            if marks and len(log.outcomes) >= marks[0]:
                marks.pop(0)
                fleet.kill("scheduler")
                log.kills["scheduler"] += 1
                time.sleep(0.5)
                fleet.serve()
                log.restarts.append(time.monotonic())
        if log.over.is_set():
            return
        if not log.kills["stopped"] and log.kills["devices"]:
            fleet.kill(stopped, signal.SIGSTOP)
            log.kills["stopped"] += 1
            continue
        victims = generator.sample(others, len(devices) // 2)
        for name in victims:
            fleet.kill(name)
            log.kills["devices"] += 1
        time.sleep(0.5)
        for name in victims:
            fleet.join(name, *devices[name])

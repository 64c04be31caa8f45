"""A scheduler and two devices on this machine: what AutoTVM's tracker did, and a device that is killed.

One test, as processes take longer to start than what they are asked for.
"""

import threading
import time
from functools import partial
from pathlib import Path

import pytest

from tests.fleet.fleets import Local, local, until
from tests.fleet.test_accelerator import check, region_for
from tests.measure.faulty_child import MEETING, Fault
from tests.measure.jobs import HOST, job
from tilewright.backend.vta.config import VTA
from tilewright.backend.vta.runtime import Runtime
from tilewright.base import fields
from tilewright.base.errors import FleetError
from tilewright.fleet import fleet as clients
from tilewright.fleet.accelerator import FleetAccelerator
from tilewright.fleet.fleet import Fleet
from tilewright.fleet.runner import FleetRunner
from tilewright.measure.verdicts import Verdict


def test_two_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with local(tmp_path, "a", "b") as fleet, fleet.connected() as client:
        assert sorted(device.name for device in client.devices("board")) == ["a", "b"]
        assert str(client.target("board")) == HOST
        request(fleet, client)
        upload(client, monkeypatch)
        run(client)
        accelerate(client)
        time_out(client)
        lose(fleet, client)


@pytest.mark.slow
def test_four_devices_measure_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of four kernels waits for the others, in a process of its own: one device alone would wait for ever."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    monkeypatch.setenv(MEETING, f"{meeting}:4")
    with local(tmp_path, *"abcd") as fleet, fleet.connected() as client, FleetRunner(client, "board") as runner:
        found = [
            outcome for _, outcome in runner.measure_all(job(f"{Fault.MEET.value}__{place}") for place in range(4))
        ]
    assert [outcome.verdict for outcome in found] == [Verdict.OK] * 4
    assert len(list(meeting.iterdir())) == 4


def request(fleet: Local, client: Fleet) -> None:
    """By name or key; whole; the highest priority first; given back when it is returned, or its client is gone."""
    with pytest.raises(FleetError, match=r"no device is called 'rpi4'.*a \(board\)"):
        client.request("rpi4")
    with client.request("a") as a, client.request("board") as b:
        assert (a.device.name, b.device.name) == ("a", "b")
        with pytest.raises(FleetError, match="no device called board was free within 0 seconds"):
            client.request("board", timeout=0)
        order: list[str] = []
        low = threading.Thread(target=_waits, args=(fleet, "low", 0, order))
        high = threading.Thread(target=_waits, args=(fleet, "high", 1, order))
        for place, waiting in enumerate((low, high)):
            waiting.start()
            until(partial(_wait_for, client, place + 1))
        a.close()
        low.join()
        high.join()
        assert order == ["high", "low"]
    with fleet.connected() as another:
        another.request("a")  # not returned: the connection ends
    until(lambda: all(fields.mapping(d)["user"] is None for d in fields.items(client.status()["devices"])))


def _wait_for(client: Fleet, count: int) -> bool:
    return len(fields.items(client.status()["queue"])) == count


def _waits(fleet: Local, name: str, priority: int, order: list[str]) -> None:
    with fleet.connected() as client, client.request("a", priority=priority):
        order.append(name)


def upload(client: Fleet, patch: pytest.MonkeyPatch) -> None:
    """In parts; what a device has had is not sent again, also in another lease, unless it has lost it."""
    content = b"tilewright" * 1000
    with patch.context() as patched:
        patched.setattr(clients, "CHUNK", 4000)
        sent: list[int] = []
        submit = client.submit
        patched.setattr(client, "submit", lambda *given: (sent.append(1), submit(*given))[1])  # pyright: ignore[reportUnknownLambdaType]
        for _ in range(2):
            with client.request("a") as a:
                key = a.upload(content)
                a.upload(content)
        assert len(sent) == 3
        with client.request("b") as b:
            assert b.upload(content) == key
        assert len(sent) == 6


def run(client: Fleet) -> None:
    """A job, in a child, whose outcome has the device's clock and temperature if there are any."""
    with client.request("b") as b:
        outcome = b.measure(job("mm"))
        assert outcome.verdict is Verdict.OK
        assert "load" in outcome.machine


def accelerate(client: Fleet) -> None:
    """A region of a model, on the accelerator of a device; not after the lease."""
    region = region_for(VTA)
    with client.request("a") as a:
        runtime = Runtime(FleetAccelerator(a, VTA, 1 << 20))
        for seed in range(2):
            check(region, runtime, seed)
    with pytest.raises(FleetError, match="the lease of a has ended"):
        check(region, runtime, 2)


def time_out(client: Fleet) -> None:
    """A lease ends at its end, whatever runs; the device serves the next one."""
    begin = time.monotonic()
    with client.request("a", seconds=0.5) as a, pytest.raises(FleetError, match="lease of a has ended"):
        assert a.seconds <= 0.5
        a.measure(job(f"{Fault.LOOP.value}__0"))
    assert time.monotonic() - begin < 15


def lose(fleet: Local, client: Fleet) -> None:
    """A device is killed in the middle: each job has one outcome, the right one."""
    jobs = [job("mm", size) for size in range(6, 14)]
    wrong = job(f"{Fault.WRONG.value}__0")
    found: list[tuple[str, Verdict]] = []
    with FleetRunner(client, "board") as runner:
        for place, (measured, outcome) in enumerate(runner.measure_all([*jobs, wrong])):
            if place == 2:
                fleet.kill("a")
            found.append((measured.id, outcome.verdict))
        assert sorted(found, key=str) == sorted(
            [*((j.id, Verdict.OK) for j in jobs), (wrong.id, Verdict.WRONG)], key=str
        )
        fleet.kill("b")
        with pytest.raises(FleetError, match="no device is called 'board'"):
            client.devices("board")

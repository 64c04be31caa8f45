"""What is done about a scheduler that is gone, and about devices that are lost: each part in this process."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fleet.fleets import free_port
from tests.measure.jobs import job
from tilewright.fleet.access import Access, Address
from tilewright.fleet.device import Device
from tilewright.fleet.fleet import measure_message, upload_messages
from tilewright.fleet.losses import ALL_LOSSES, MOST_DEVICES, MOST_LOSSES, Losses
from tilewright.measure.job import Job
from tilewright.measure.runner import Runner
from tilewright.measure.verdicts import Outcome, Verdict


def test_who_loses_more_devices_than_others_is_given_up() -> None:
    steady = Losses(tried=500 + MOST_DEVICES, lost=2 + MOST_DEVICES)
    assert not steady.convict(["a", "b"])
    assert not steady.convict(["a"] * (MOST_LOSSES - 1))
    assert steady.convict(["a", "b", "c"])
    assert steady.convict(["a"] * MOST_LOSSES)
    alone = Losses(tried=MOST_DEVICES, lost=MOST_DEVICES)
    assert alone.convict(["a", "b", "c"])


@pytest.mark.parametrize(("lost", "enough"), [(5, 3), (50, 5), (200, 9), (1000, ALL_LOSSES)])
def test_where_devices_are_lost_again_and_again_it_takes_more(lost: int, enough: int) -> None:
    for own in range(MOST_DEVICES, ALL_LOSSES + 1):
        losses = Losses(tried=1000 + own, lost=lost + own)
        assert losses.convict([f"d{place}" for place in range(own)]) == (own >= enough)


def test_an_address_refuses_until_something_listens() -> None:
    access = Access(Address(False, "127.0.0.1", free_port()))
    assert access.refuses()
    with socket.create_server((access.address.host, access.address.port)):
        assert not access.refuses()
    assert access.refuses()


@pytest.mark.parametrize("is_done_in_time", [True, False])
def test_what_a_device_does_when_the_scheduler_is_lost(
    is_done_in_time: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is done in time, it is kept for the client that asks again; else it is killed, and measured again then."""
    begun, may_end, measured = threading.Event(), threading.Event(), list[Job]()

    def measure(_: Runner, wanted: Job) -> Outcome:
        measured.append(wanted)
        begun.set()
        may_end.wait()
        return Outcome(Verdict.OK, times_us=(1.0,))

    monkeypatch.setattr(Runner, "measure", measure)
    monkeypatch.setattr(Runner, "interrupt", lambda _: may_end.set())
    device, wanted = Device(tmp_path), job("mm")
    message, program = measure_message(wanted, "token")
    ((upload, parts),) = upload_messages(program, wanted.program.encode())
    device.lease("first", begins=True)
    device.perform("first", json.dumps(upload), parts)
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(device.perform, "first", json.dumps(message), ())
        begun.wait()
        if is_done_in_time:
            threading.Timer(0.1, may_end.set).start()
        device.end(60.0 if is_done_in_time else 0.0)
        assert is_done_in_time or json.loads(working.result()[0]) == {"ended": True}
        device.lease("second", begins=True)
        assert "outcome" in json.loads(device.perform("second", json.dumps(message), ())[0])
    assert len(measured) == 1 + (not is_done_in_time)
    device.close()

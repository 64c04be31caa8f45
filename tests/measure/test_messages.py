"""What processes say to each other: nothing that comes is believed before it was looked at."""

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.jobs import job
from tilewright.measure.messages import (
    MAX_ANSWER,
    BadMessageError,
    Channel,
    Done,
    Errand,
    Ready,
    Said,
    Unmeasurable,
    encode,
    outcome_message,
    read_outcome,
    read_said,
    said_message,
)
from tilewright.measure.requests import Request
from tilewright.measure.verdicts import Outcome, Phase, Verdict

GOOD = Outcome(
    Verdict.OK, times_us=(1.5, 2.0), baseline_us=3.0, drift=0.01, seconds={"build": 1.0}, machine={"load": 1}
)


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    ends = tuple(Channel(end, MAX_ANSWER) for end in socket.socketpair())
    yield ends[0], ends[1]
    for end in ends:
        end.close()


@pytest.mark.parametrize("said", [Ready(), Done(Phase.BUILD), Unmeasurable("why"), GOOD, Outcome(Verdict.WRONG, "x")])
def test_what_is_said_is_heard(said: Said) -> None:
    assert read_said(json.loads(json.dumps(said_message(said)))) == said


def test_requests_and_outcomes() -> None:
    request = Request(7, job("mm"), 1.5)
    sent = json.loads(json.dumps(request.message()))
    assert Request.read(sent) == request
    errand = Errand.read(sent)
    assert (errand.number, errand.run_seconds, errand.only_build) == (7, 1.5, False)
    assert Request.read(errand.message) == request
    for field in ("number", "run_seconds", "only_build"):
        with pytest.raises(BadMessageError, match=field):
            Errand.read({name: value for name, value in sent.items() if name != field})
    crash = Outcome(Verdict.CRASH, "SIGSEGV", Phase.CHECK)
    assert read_outcome(outcome_message(crash)) == crash
    assert read_outcome({**outcome_message(crash), "predicted": 5.0}) == crash  # no child says what it is thought of


def test_a_long_text_is_cut() -> None:
    message = said_message(replace(GOOD, detail="x" * 10**6, times_us=(1.0,) * 10**5))
    assert len(encode(message)) < MAX_ANSWER


@pytest.mark.parametrize("verdict", [Verdict.CRASH, Verdict.TIMEOUT, Verdict.DEVICE_LOST, Verdict.PROTOCOL])
def test_verdicts_that_a_child_can_not_know(verdict: Verdict) -> None:
    with pytest.raises(BadMessageError, match="can't give the verdict"):
        read_said(said_message(Outcome(verdict)))


def test_messages_in_pieces_and_many_at_once(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    frames = encode({"a": 1}) + encode({"b": [2]})
    here.socket.send(frames[:7])
    assert list(there.receive()) == []
    here.socket.send(frames[7:])
    assert list(there.receive()) == [{"a": 1}, {"b": [2]}]
    here.close()
    assert list(there.receive()) == []
    assert there.closed


def test_nobody_waits_for_a_reader(channels: tuple[Channel, Channel]) -> None:
    here, there = channels
    here.send({"text": "x" * 60_000})
    for number in range(100):
        here.send({"number": number, "text": "x" * 10_000})
    assert here.pending
    received = list[dict[str, object]]()
    while len(received) < 101:
        received += there.receive()
        here.flush()
    assert [message.get("number") for message in received[1:]] == list(range(100))


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_refused(content: bytes) -> None:
    here, there = (Channel(end, MAX_ANSWER) for end in socket.socketpair())
    here.socket.send(content or b"\0")
    with suppress(BadMessageError):
        for message in there.receive():
            read_said(message)
    here.close()
    there.close()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(outcome_message(GOOD))), _JSON)
def test_any_field_is_checked(name: str, value: object) -> None:
    with suppress(BadMessageError):
        read_said({"outcome": {**outcome_message(GOOD), name: value}})
    with suppress(BadMessageError):
        read_said({name: value})
    with suppress(BadMessageError):
        read_said({"done": value, "unmeasurable": value})
    with suppress(BadMessageError):
        Request.read({**Request(1, job("mm"), 1.0).message(), "job": value})

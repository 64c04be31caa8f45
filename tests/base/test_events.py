"""Events: steps are timed and told even when they fail; listeners get what happened."""

import logging
import time

import pytest

from tilewright.base.events import (
    Advanced,
    CacheLookup,
    Recorder,
    StepFinished,
    StepStarted,
    Warned,
    ignore,
    step,
    to_log,
)


def test_a_step_is_told_and_timed() -> None:
    recorder = Recorder()
    begin = time.perf_counter()
    with step(recorder, "fuse", "k0"):
        time.sleep(0.01)
    started, finished = recorder.events
    assert started == StepStarted("fuse", "k0")
    assert isinstance(finished, StepFinished)
    assert (finished.step, finished.subject, finished.failed) == ("fuse", "k0", False)
    assert 0.01 <= finished.seconds <= time.perf_counter() - begin


def test_a_step_that_fails_is_told_and_its_error_passes() -> None:
    recorder = Recorder()
    with pytest.raises(ZeroDivisionError), step(recorder, "fuse"):
        raise ZeroDivisionError
    assert isinstance(recorder.events[-1], StepFinished)
    assert recorder.events[-1].failed


def test_seconds_sum_over_subjects_in_order() -> None:
    recorder = Recorder()
    for event in (StepFinished("b", 1.0, "x"), StepFinished("a", 2.0), Warned("w"), StepFinished("b", 0.5, "y")):
        recorder(event)
    assert list(recorder.seconds().items()) == [("b", 1.5), ("a", 2.0)]
    assert recorder.warnings() == ["w"]


def test_logging_levels_and_texts(caplog: pytest.LogCaptureFixture) -> None:
    listener = to_log(logging.getLogger("tilewright.test"))
    with caplog.at_level(logging.DEBUG, "tilewright.test"):
        for event in (
            StepStarted("fuse"),
            StepFinished("schedule", 0.25, "k1"),
            StepFinished("fuse", 0.001, failed=True),
            CacheLookup("ab" * 32, hit=True),
            Warned("no disk"),
        ):
            listener(event)
            ignore(event)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("DEBUG", "fuse ..."),
        ("INFO", "schedule k1 took 250.0 ms"),
        ("INFO", "fuse failed after 1.0 ms"),
        ("DEBUG", "cache hit abababababab"),
        ("WARNING", "warning: no disk"),
    ]


def test_how_far_a_step_is_reads_well() -> None:
    assert str(Advanced("code", 2, 7, "k1_gemm")) == "code k1_gemm: 2 of 7"

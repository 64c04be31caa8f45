"""Traces of runs: events of the Trace Event Format that say which thread computed what, and when."""

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.test_artifact import X, layers
from tilewright.base.errors import Unsupported
from tilewright.cli.command import main
from tilewright.insight.trace import trace
from tilewright.runtime.native import NativeExecutable
from tilewright.runtime.timeline import MOST_CHUNKS, new_list, timeline

ROWS = 512
WIDE = np.random.default_rng(0).normal(size=(ROWS, 48)).astype(np.float32)


def checked(found: Mapping[str, object]) -> list[dict[str, object]]:
    """The complete events, after a look at the form of all."""
    events = json.loads(json.dumps(found))["traceEvents"]
    for event in events:
        assert event.keys() >= {"ph", "name", "pid", "tid", "args"}
        assert event["ph"] in "XM"
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
        else:
            assert math.isfinite(event["ts"])
            assert event["ts"] >= 0
            assert event["dur"] >= 0
    complete = [event for event in events if event["ph"] == "X"]
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert {event["tid"] for event in complete} == named
    return complete


def test_rows_of_kernels_and_threads() -> None:
    model = tilewright.compile(layers("rows"), threads=2)
    feeds, calls = {"x": WIDE}, model.executable.manifest.calls
    events = checked(trace(model.executable, feeds, [("a",)] * len(calls), runs=2))
    kernels = [event for event in events if event["tid"] == 0]
    assert [event["name"] for event in kernels] == [*calls, *calls]
    assert all(event["args"]["nodes"] == ["a"] for event in kernels)
    for before, after in pairwise(kernels):
        assert before["ts"] + before["dur"] <= after["ts"] + 1e-3
    parts = [event for event in events if event["tid"] > 0]
    assert {event["tid"] for event in parts} <= {1, 2}
    assert parts
    for part in parts:
        whole = [k for k in kernels if k["name"] == part["name"] and k["ts"] <= part["ts"]][-1]
        assert part["ts"] + part["dur"] <= whole["ts"] + whole["dur"] + 1e-3
        assert 0 < part["args"]["busy_us"] <= part["dur"] + 1e-3
        assert part["args"]["chunks"] > 0
    np.testing.assert_array_equal(model(WIDE)[0], model(WIDE)[0])


def test_one_thread_has_no_parts() -> None:
    model = tilewright.compile(layers(), threads=1)
    assert {event["tid"] for event in checked(trace(model.executable, {"x": X}))} == {0}


def test_the_list_of_chunks_may_be_too_short() -> None:
    listed = new_list()
    listed[0] = MOST_CHUNKS + 5
    listed[2:] = 7
    found = timeline(np.array([100, 10, 20]), listed)
    assert (found.begin, found.ends) == (70, (80, 100))
    assert len(found.chunks) == MOST_CHUNKS


def test_a_run_after_a_trace_lists_nothing() -> None:
    model = tilewright.compile(layers("rows"), threads=2)
    executable = model.executable
    assert isinstance(executable, NativeExecutable)
    first = executable.timeline({"x": WIDE})
    executable.run({"x": WIDE})
    assert len(executable.timeline({"x": WIDE}).chunks) == len(first.chunks)


def test_other_back_ends_are_not_traced() -> None:
    model = tilewright.compile(layers(), backend="reference")
    with pytest.raises(Unsupported, match="only runs of native code"):
        trace(model.executable, {"x": X})


def test_the_verb_writes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, to = tmp_path / "m.tw", tmp_path / "trace.json"
    tilewright.compile(layers(), threads=1).save(path, signed=False)
    quick = ["--trust", "--seconds", "0", "--threads", "1"]
    assert main(["profile", str(path), "--trace", str(to), *quick]) == 0
    assert checked(json.loads(to.read_text()))
    assert main(["profile", str(path), "--trace", str(path), *quick]) == 2
    assert "it is an input" in capsys.readouterr().err

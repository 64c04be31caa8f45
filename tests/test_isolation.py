"""Compiling in a process of its own: the same artifact, and whatever ends that process is an error of ours."""

import logging
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.frontend.models import single_node
from tilewright import isolation
from tilewright.base.errors import BadInput, InternalError, ResourceLimit, TilewrightError, UnsupportedModel
from tilewright.base.events import Advanced, Event
from tilewright.base.settings import Settings, Stage
from tilewright.isolation import Isolation
from tilewright.target.target import Target

X = np.arange(6, dtype=np.float32).reshape(2, 3)
MODEL = single_node("Add", {"x": X}, {"c": X})
ALONE = Settings(cache_dir=None)


def test_the_same_model(tmp_path: Path) -> None:
    heard: list[Event] = []
    path = tmp_path / "m.onnx"
    path.write_bytes(MODEL.SerializeToString())
    there = tilewright.compile(path, isolate=True, settings=ALONE, threads=1, listener=heard.append)
    here = tilewright.compile(path, settings=ALONE, threads=1)
    np.testing.assert_array_equal(there.run(None, {"x": X})[0], 2 * X)
    there.save(tmp_path / "there.tw", signed=False)
    here.save(tmp_path / "here.tw", signed=False)
    assert (tmp_path / "there.tw").read_bytes() == (tmp_path / "here.tw").read_bytes()
    assert any(isinstance(event, Advanced) for event in heard)
    assert not there.is_cached
    with pytest.raises(BadInput, match="compile the model without isolate="):
        there.explain()


def test_little_memory() -> None:
    """It ends there, wherever it is by then, and not here."""
    with pytest.raises(ResourceLimit, match="memory"):
        tilewright.compile(MODEL, isolate=Isolation(memory="1MiB"), settings=ALONE)


def test_errors_are_those_of_compiling() -> None:
    with pytest.raises(UnsupportedModel, match=r"node n \(Foo\): operator Foo is not supported"):
        tilewright.compile(single_node("Foo", {"x": X}), isolate=True, settings=ALONE)


def child(monkeypatch: pytest.MonkeyPatch, *program: str) -> None:
    """Let the process be a program that runs these lines after it has got its request."""
    lines = (
        "import json, os, socket, sys, time",
        "end = socket.socket(fileno=int(sys.argv[1].split('=')[1]))",
        "size = int.from_bytes(end.recv(4, socket.MSG_WAITALL), 'big')",
        "request = json.loads(end.recv(size, socket.MSG_WAITALL))",
        "def say(*said): [end.sendall(len(t).to_bytes(4, 'big') + t) for t in (json.dumps(s).encode() for s in said)]",
        *program,
    )
    monkeypatch.setattr(isolation, "COMMAND", (sys.executable, "-c", "\n".join(lines)))


DEATHS = {
    "SIGSEGV": (
        "os.kill(os.getpid(), 11)",
        ResourceLimit,
        r"by SIGSEGV \(it said nothing\); it could have 1000 ",
    ),
    "SIGABRT": ("print('bad_alloc', file=sys.stderr, flush=True); os.abort()", ResourceLimit, r"SIGABRT \(bad_alloc\)"),
    "out of memory": ("os.kill(os.getpid(), 9)", ResourceLimit, "ended by SIGKILL"),
    "processor time": ("os.kill(os.getpid(), 24)", ResourceLimit, "ended by SIGXCPU"),
    "memory error": ("raise MemoryError", ResourceLimit, "for want of memory"),
    "another error": ("raise LookupError('x')", InternalError, "status 1: LookupError: x"),
    "nothing": ("pass", InternalError, "status 0: it said nothing"),
    "no JSON": ("end.sendall(b'\\0\\0\\0\\1x')", InternalError, "said what is no answer"),
    "too long": ("end.sendall(b'\\xff\\xff\\xff\\xff')", InternalError, "said what is no answer"),
    "no answer": ("say({'what': 1})", InternalError, "said what is no answer"),
    "our error": ("say({'failed': ['BadInput', 'b']})", BadInput, "^b$"),
    "an error with parts": ("say({'failed': ['UnsupportedKernel', 'b']})", InternalError, "^UnsupportedKernel: b$"),
    "no error of ours": ("say({'failed': ['annotations', 'b']})", InternalError, "^annotations: b$"),
    "no artifact": ("say({'done': {'cached': False}})", BadInput, "can't be opened"),
    "another artifact": (
        "open(request['output'], 'wb').write(b'x' * 99)\nsay({'done': {'cached': False}})",
        TilewrightError,
        "can't be used",
    ),
}


def test_notes_come_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those that say where a bundle is."""
    child(monkeypatch, "say({'failed': ['InternalError', 'b', 'a bundle is in x']})")
    with pytest.raises(InternalError, match="b") as raised:
        tilewright.compile(MODEL, isolate=Isolation(memory=1000), settings=ALONE)
    assert str(raised.value) == "b"
    assert raised.value.__notes__ == ["a bundle is in x"]


@pytest.mark.parametrize("death", DEATHS)
def test_deaths(death: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program, kind, message = DEATHS[death]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    child(monkeypatch, program)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(kind, match=message) as raised:
        tilewright.compile(MODEL, isolate=Isolation(memory=1000), settings=ALONE)
    del raised
    assert not list(tmp_path.iterdir())
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of what talks all the time, and of what has children."""
    for program in ("while True: say({'warned': 'x'}); time.sleep(0.01)", "os.fork(); time.sleep(60)"):
        child(monkeypatch, program)
        begin = time.monotonic()
        with pytest.raises(ResourceLimit, match=r"longer than 0\.5 s in a process of its own; raise timeout="):
            tilewright.compile(MODEL, isolate=Isolation(timeout=0.5), settings=ALONE)
        assert time.monotonic() - begin < 30


def test_warnings_are_told_here(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    child(monkeypatch, "say({'warned': 'look out'}, {'failed': ['BadInput', 'b']})")
    with caplog.at_level(logging.WARNING, "tilewright"), pytest.raises(BadInput):
        tilewright.compile(MODEL, isolate=True, settings=ALONE)
    assert caplog.messages == ["warning: look out"]


def test_what_can_not_be_isolated() -> None:
    for limits, message in (
        (Isolation(memory="much"), "memory='much': give a number of bytes"),
        (Isolation(memory=0), "memory=0: give"),
        (Isolation(timeout=-1.0), r"timeout=-1\.0: give a positive number"),
        (Isolation(timeout=float("nan")), "timeout=nan"),
    ):
        with pytest.raises(BadInput, match=message):
            tilewright.compile(MODEL, isolate=limits, settings=ALONE)
    with pytest.raises(BadInput, match="isolate= makes one model"):
        tilewright.compile(MODEL, isolate=True, dynamic="specialize", settings=ALONE)
    with pytest.raises(BadInput, match="isolate= compiles for this machine only"):
        tilewright.compile(MODEL, isolate=True, target=Target.parse("riscv64"), settings=ALONE)
    with pytest.raises(BadInput, match="isolate= prints no stages"):
        tilewright.compile(MODEL, isolate=True, settings=Settings(print_stages=frozenset({Stage.GRAPH})))


@pytest.mark.slow
@pytest.mark.parametrize("memory", [2**k for k in range(10, 28)])
def test_every_amount_of_memory(memory: int) -> None:
    """Wherever memory ends, in Python, protobuf or LLVM: an error of ours, or the model."""
    try:
        compiled = tilewright.compile(MODEL, isolate=Isolation(memory=memory), settings=ALONE, threads=1)
    except ResourceLimit:
        return
    np.testing.assert_array_equal(compiled.run(None, {"x": X})[0], 2 * X)

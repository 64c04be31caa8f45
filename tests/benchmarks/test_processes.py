"""Candidates in processes of their own."""

import time
from pathlib import Path

import pytest

from benchmarks import worker
from benchmarks.candidates import load_feeds
from benchmarks.harness import Plan, measure
from benchmarks.processes import Spec, Worker, WorkerError, exclusive
from tests.benchmarks import workloads

PLAN = Plan(rounds=2, slot=0.0, warm_up=0.0, least_runs=2)


def spec(name: str, function: str, threads: int = 1, **arguments: str) -> Spec:
    return Spec(name, f"tests.benchmarks.workloads:{function}", arguments, threads)


def test_workers_take_turns_and_hand_over_outputs(tmp_path: Path) -> None:
    with Worker(spec("a", "constant", value="1.5")) as a, Worker(spec("b", "constant", 2, value="2.5")) as b:
        assert a.wait_ready() >= 0.0
        assert b.wait_ready() >= 0.0
        samples = measure([a, b], PLAN)
        b.save_outputs(tmp_path / "outputs.npz")
    assert {name: [len(slot) for slot in of.slots] for name, of in samples.items()} == {"a": [2, 2], "b": [2, 2]}
    outputs = load_feeds(str(tmp_path / "outputs.npz"))
    assert {name: float(value) for name, value in outputs.items()} == {"output_0": 2.5, "output_1": 2.0}


def test_worker_that_cannot_be_built_is_an_error() -> None:
    with (
        Worker(spec("broken", "failing")) as broken,
        pytest.raises(WorkerError, match="broken: RuntimeError: this"),
    ):
        broken.wait_ready()


def test_worker_that_never_rests_is_an_error() -> None:
    with Worker(spec("busy", "spinning", seconds="30")) as busy:
        busy.wait_ready()
        with pytest.raises(WorkerError, match="busy: TimeoutError: a thread is still busy"):
            busy.run_slot(PLAN)


def test_come_to_rest_waits_for_spinning_threads() -> None:
    worker.come_to_rest()
    begin = time.perf_counter()
    workloads.spinning("0.3", 1)()
    worker.come_to_rest()
    assert time.perf_counter() - begin >= 0.3


def test_exclusive_needs_no_lock_and_holds_one(tmp_path: Path) -> None:
    with exclusive(None):
        pass
    with exclusive(tmp_path / "lock"):
        assert (tmp_path / "lock").exists()

"""Tuners as users run them: several on one database, and some that are killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.models import model as make_model
from tests.measure.storm import MARK, marked
from tilewright.loops.parser import parse_program
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Verdict
from tilewright.schedule.replay import replay
from tilewright.schedule.trace import Trace

KILLS = 100


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two products of different sizes."""
    generator = np.random.default_rng(0)
    weights = {"a": generator.standard_normal((64, 48)), "b": generator.standard_normal((48, 80))}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "b"], ["y"], name="second"),
    ]
    constants = {name: array.astype(np.float32) for name, array in weights.items()}
    onnx.save(make_model(nodes, {"x": np.zeros((40, 64), np.float32)}, ["y"], constants), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def tuner(model: Path, records: Path, seed: int, token: str = "") -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tilewright", "tune", str(model), "--records", str(records), "--threads", "1"]
    return subprocess.Popen(
        [*command, "--minutes", "0.05", "--seed", str(seed), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, MARK: token},
    )


@pytest.mark.slow  # half a minute
def test_four_tuners_on_one_database(model: Path, tmp_path: Path) -> None:
    """Each job has one record; what each of them says it has measured is there."""
    path = tmp_path / "r.db"
    running = [tuner(model, path, seed) for seed in range(4)]
    reports = [json.loads(process.communicate()[0]) for process in running]
    with Records.open(path) as records:
        records.check()
        found = list(records.all())
        jobs = Counter(record.job.id for record in found)
        assert set(jobs.values()) == {1}
        assert len(found) <= sum(report["measured"] for report in reports)  # some measured the same at the same time
        assert {record.outcome.verdict for record in found} == {Verdict.OK}
        assert found
        for record in found:  # a schedule fits the program that it is kept for
            replay(Trace.from_json(record.job.trace), parse_program(record.job.program))


@pytest.mark.slow  # ten minutes
def test_a_tuner_that_is_killed_again_and_again(model: Path, tmp_path: Path) -> None:
    """Every record that was there before a kill is there after it; no process stays; the last one ends well."""
    path = tmp_path / "r.db"
    generator = random.Random(0)
    known: set[str] = set()
    for number in range(KILLS):
        token = f"tuner-{os.getpid()}-{number}"
        process = tuner(model, path, seed=0, token=token)
        time.sleep(generator.uniform(0.5, 6.0))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        deadline = time.monotonic() + 15
        while marked(token) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not marked(token)
        if path.exists():
            with Records.open(path) as records:
                records.check()
                now = {record.job.id for record in records.all()}
            assert known <= now
            known = now
    output, _ = tuner(model, path, seed=0).communicate()
    assert json.loads(output)["kernels"]

"""The whole service is killed while it compiles, and started again: each job has one outcome."""

import os
import random
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.service.support import There, X, ended, model, processes_of, service, tried
from tilewright.measure.processes import children_of

KILLS = 20
"""Of workers, at most."""


def test_a_killed_service_does_its_job_once_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with service(folder, "--lease", "1") as there:
        job = there.call("POST", "/v1/jobs?threads=1", model(3.0))["id"]
        there.until(job, "running")
        there.kill()
        end = time.monotonic() + 30
        while processes_of(folder):
            assert time.monotonic() < end
            time.sleep(0.02)
    with service(folder, "--lease", "1") as there:
        done = there.until(job, "done", "failed")
        assert (done["state"], done["attempts"]) == ("done", 2)
        loaded = tilewright.load(there.artifact(done), trust=True)
    np.testing.assert_array_equal(loaded.run(None, {"x": X})[0], X + 3.0)
    assert len(list((folder / "artifacts").iterdir())) == 1


@pytest.mark.slow
def test_clients_under_kills(tmp_path: Path) -> None:
    """Eight clients submit 25 models each, some of them bad, while workers and the whole service are killed.

    A token may have fewer waiting jobs than that, so clients can go on only if jobs end. Workers are therefore killed
    in the midst of a job, a limited number of times: killed by the clock alone, workers of a slow machine would die
    before they do anything, and nothing would ever end.
    """
    folder, options = tmp_path / "s", ("--lease", "2", "--workers", "2")
    current: list[There] = []
    killed: list[int] = []
    jobs: dict[str, float | None] = {}
    lock, over = threading.Lock(), threading.Event()

    def client(number: int) -> None:
        draw = random.Random(number)
        for _ in range(25):
            summand = None if draw.random() < 0.2 else float(draw.randrange(20))
            body = b"no model" if summand is None else model(summand)
            while (answer := tried(current[0], "POST", "/v1/jobs?threads=1", body)) is None:
                if over.wait(0.1):
                    return
            with lock:
                jobs[str(answer["id"])] = summand

    def killer() -> None:
        draw = random.Random(99)
        while len(killed) < KILLS and not over.wait(draw.uniform(0.5, 2.0)):
            while not processes_of(folder) and not over.wait(0.02):
                pass
            workers = list(children_of(current[0].process.pid))
            if workers:
                kill(draw.choice(workers))
                killed.append(1)

    with service(folder, *options) as first:
        current.append(first)
        port = int(first.url.rpartition(":")[2])
        threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        killing = threading.Thread(target=killer)
        for thread in (*threads, killing):
            thread.start()
        time.sleep(10)
        first.kill()
    with service(folder, *options, "--port", str(port)) as second, ExitStack() as last:
        last.callback(over.set)  # also if something fails: the threads end with the test
        current[0] = second
        for thread in threads:
            thread.join(600)
        assert len(jobs) == 200
        time.sleep(10)
        over.set()
        killing.join()
        assert len(killed) > 3
        for job, summand in jobs.items():
            found = second.until(job, "done", "failed", seconds=600)
            assert (found["artifact"] is None) != (found["error"] is None)
            if summand is None:
                assert found["state"] == "failed"
            elif found["state"] == "done":
                loaded = tilewright.load(second.artifact(found), trust=True)
                np.testing.assert_array_equal(loaded.run(None, {"x": X})[0], X + summand)
            else:
                assert "times before it was done" in str(found["error"])


def kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        assert ended(process)

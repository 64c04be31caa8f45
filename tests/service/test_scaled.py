"""A service on PostgreSQL and a bucket, with workers of their own: whatever is killed, each job has one outcome."""

import hashlib
import random
import threading
import time
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.service.servers import BUCKET, Postgresql, object_server, store_variables
from tests.service.support import There, X, model, processes_of, service, tried
from tests.service.test_kills import kill
from tilewright.measure.processes import children_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("moto") is None, reason="needs the extra [servers]"),
]


def test_a_job_goes_on_while_the_database_is_killed(database_server: Postgresql, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    with service(folder, "--lease", "2", "--database", database_server.url()) as there:
        job = there.call("POST", "/v1/jobs?threads=1", model(3.0))["id"]
        there.until(job, "running")
        end = time.monotonic() + 60
        while not processes_of(folder):
            assert time.monotonic() < end
            time.sleep(0.01)
        database_server.kill()
        try:
            assert tried(there, "GET", f"/v1/jobs/{job}") is None
            time.sleep(3.0)  # longer than the lease
        finally:
            database_server.start()
        while tried(there, "GET", f"/v1/jobs/{job}") is None:
            assert time.monotonic() < end
        done = there.until(job, "done", "failed")
        assert (done["state"], done["attempts"]) == ("done", 1)


def test_workers_elsewhere_under_kills(database_server: Postgresql, tmp_path: Path) -> None:
    """Two clients submit; the service has no workers, but two processes elsewhere have two each. Workers, one of these
    processes, the service and the database are killed."""
    url = database_server.url()
    jobs: dict[str, float | None] = {}
    lock, over = threading.Lock(), threading.Event()
    with object_server() as address:
        variables = store_variables(address)
        common = ("--database", url, "--store", f"s3://{BUCKET}/prefix", "--lease", "2")

        stack = ExitStack()

        def started(name: str, *options: str) -> There:
            return stack.enter_context(service(tmp_path / name, *common, *options, variables=variables))

        front = started("front", "--workers", "0")
        port = front.url.rpartition(":")[2]
        backs = [started(f"back{number}", "--workers-only", "--workers", "2") for number in range(2)]
        current = [front]

        def client(number: int) -> None:
            draw = random.Random(number)
            for _ in range(15):
                summand = None if draw.random() < 0.2 else float(draw.randrange(10))
                body = b"no model" if summand is None else model(summand)
                while (answer := tried(current[0], "POST", "/v1/jobs?threads=1", body)) is None:
                    time.sleep(0.1)
                with lock:
                    jobs[str(answer["id"])] = summand
                time.sleep(0.3)

        def killer() -> None:
            draw = random.Random(99)
            while not over.wait(draw.uniform(2.0, 4.0)):
                workers = [worker for back in backs for worker in children_of(back.process.pid)]
                if workers:
                    kill(draw.choice(workers))

        threads = [threading.Thread(target=client, args=(number,)) for number in range(2)]
        killing = threading.Thread(target=killer)
        try:
            for thread in (*threads, killing):
                thread.start()
            time.sleep(4)
            front.kill()
            current[0] = started("front", "--workers", "0", "--port", port)
            time.sleep(2)
            backs[0].kill()  # its machine is lost
            time.sleep(2)
            database_server.kill()
            time.sleep(2)
            database_server.start()
            for thread in threads:
                thread.join(300)
            over.set()
            killing.join()
            assert len(jobs) == 30
            for job, summand in jobs.items():
                check(current[0], job, summand)
        finally:
            over.set()
            stack.close()


def check(there: There, job: str, summand: float | None) -> None:
    found = there.until(job, "done", "failed", seconds=300)
    assert (found["artifact"] is None) != (found["error"] is None)
    if summand is None:
        assert found["state"] == "failed"
    elif found["state"] == "done":
        content = there.artifact(found)
        assert hashlib.sha256(content).hexdigest() == found["artifact"]
        np.testing.assert_array_equal(tilewright.load(content, trust=True).run(None, {"x": X})[0], X + summand)
    else:
        assert "times before it was done" in str(found["error"])

"""How long clients of `tilewright service` wait for an answer, while it has nothing to compile, and while it compiles.

`python -m benchmarks.service [--clients N] [--seconds S] [--rounds N] [--workers N] [--database URL]`. Clients ask one
thing after the other with a pause between: a job, the list of jobs, the page's table, the service's health, and they
submit a small model that was compiled before. In each round they do so for S seconds without other work, and for S
seconds while larger models are compiled. The table has the median and the 99th percentile of all rounds, in
milliseconds; the load of the system is printed beside it, as a busy machine answers late.
"""

import argparse
import http.client
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tilewright.service import tokens

QUEUED = 24
"""Models that wait while the service compiles: more than it compiles meanwhile."""


@dataclass
class Client:
    """One connection, kept open. ``waited``: seconds, by what was asked."""

    port: int
    token: str
    waited: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    def __post_init__(self) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, name: str, method: str, path: str, body: bytes | None = None) -> bytes:
        begin = time.perf_counter()
        self.connection.request(method, path, body, {"Authorization": f"Bearer {self.token}"})
        answer = self.connection.getresponse()
        content = answer.read()
        self.waited.setdefault(name, []).append(time.perf_counter() - begin)
        if answer.status not in (200, 202):
            raise RuntimeError(f"{method} {path}: {answer.status} {content.decode()}")
        return content

    def submit(self, body: bytes) -> dict[str, object]:
        return cast(dict[str, object], json.loads(self.ask("submit", "POST", "/v1/jobs?threads=1", body)))


def small() -> bytes:
    """A model that is compiled at once."""
    return dense([(8, 8)], 0)


def large(seed: int) -> bytes:
    """A model of eight different products: seconds of compiling."""
    widths = [192 + 32 * number + seed % 17 for number in range(9)]
    return dense(list(itertools.pairwise(widths)), seed)


def dense(shapes: Sequence[tuple[int, int]], seed: int) -> bytes:
    draw = np.random.default_rng(seed)
    nodes, weights = [], []
    for number, shape in enumerate(shapes):
        weights.append(numpy_helper.from_array(draw.normal(0, 0.1, shape).astype(np.float32), f"w{number}"))
        nodes.append(helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"z{number}"]))
        nodes.append(helper.make_node("Relu", [f"z{number}"], [f"x{number + 1}"]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, width])
        for name, width in (("x0", shapes[0][0]), (f"x{len(shapes)}", shapes[-1][1]))
    ]
    graph = helper.make_graph(nodes, "dense", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()


@contextmanager
def serving(folder: Path, options: Sequence[str]) -> Generator[Callable[[], Client]]:
    """A context manager: what makes clients of a service, which may submit as often as they like."""
    token, line = tokens.generate("benchmark")
    variables = {**os.environ, "TOKENS": f"{line} waiting=100000000 day=100000000"}
    command = [sys.executable, "-m", "tilewright", "service", "--folder", str(folder), "--port", "0", "--json"]
    command += ["--tokens", "env:TOKENS", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)
    if process.stdout is None:
        raise RuntimeError("the service has no output")
    try:
        port = int(str(json.loads(process.stdout.readline())["url"]).rpartition(":")[2])
        yield lambda: Client(port, token)
    finally:
        process.terminate()
        process.wait()


def ask_for(client: Client, job: str, body: bytes, end: float, pause: float) -> None:
    """What a client does until ``end``."""
    draw = random.Random(threading.get_ident())
    while time.monotonic() < end:
        client.ask("job", "GET", f"/v1/jobs/{job}")
        client.ask("jobs", "GET", "/v1/jobs")
        client.ask("table", "GET", "/table")
        client.ask("health", "GET", "/v1/health")
        client.submit(body)
        time.sleep(draw.uniform(0.0, 2 * pause))


def phase(new: Callable[[], Client], job: str, body: bytes, given: argparse.Namespace) -> list[Client]:
    """What the clients waited for."""
    every = [new() for _ in range(given.clients)]
    end = time.monotonic() + given.seconds
    threads = [threading.Thread(target=ask_for, args=(client, job, body, end, given.pause)) for client in every]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return every


def is_busy(client: Client) -> bool:
    jobs = json.loads(client.ask("health", "GET", "/v1/health"))["jobs"]
    return bool(jobs["waiting"] + jobs["running"])


def wait_until_idle(client: Client) -> None:
    while is_busy(client):
        time.sleep(0.1)


def measure(given: argparse.Namespace, new: Callable[[], Client]) -> dict[str, list[Client]]:
    """The clients of both phases. Connections that nobody uses for seconds are closed, so each step has a new one."""
    body, found = small(), dict[str, list[Client]](idle=[], compiling=[])
    job = str(new().submit(body)["id"])
    wait_until_idle(new())
    for number in range(given.rounds):
        found["idle"] += phase(new, job, body, given)
        own = new()
        queued = [own.submit(large(QUEUED * number + each))["id"] for each in range(QUEUED)]
        found["compiling"] += phase(new, job, body, given)
        own = new()
        print(f"round {number + 1}: still compiling at its end: {is_busy(own)}; load {os.getloadavg()[0]:.1f}")
        for each in queued:
            own.ask("cancel", "DELETE", f"/v1/jobs/{each}")
        wait_until_idle(own)
    return found


def report(found: dict[str, list[Client]]) -> None:
    print(f"{'':>10} {'asked':>8} {'times':>7} {'p50 ms':>8} {'p99 ms':>8} {'most ms':>8}")
    for name, clients in found.items():
        waited = dict[str, list[float]]()
        for client in clients:
            for asked, times in client.waited.items():
                waited.setdefault(asked, []).extend(times)
        waited["all"] = [seconds for times in waited.values() for seconds in times]
        for asked, times in waited.items():
            median, late = (1e3 * float(part) for part in np.percentile(times, (50, 99)))
            print(f"{name:>10} {asked:>8} {len(times):7} {median:8.1f} {late:8.1f} {1e3 * max(times):8.1f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How long clients of the service wait while it compiles.")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.25, help="mean seconds between a client's five requests")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--database", help="URL (default: SQLite)")
    given = parser.parse_args(arguments)
    options = ["--workers", str(given.workers), *(["--database", given.database] if given.database else [])]
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder, "s"), options) as new:
        report(measure(given, new))


if __name__ == "__main__":
    main()

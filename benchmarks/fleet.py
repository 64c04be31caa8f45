"""How much more four devices measure than one: `python -m benchmarks.fleet [--devices N] [--jobs N] [--sleep S]`.

The devices are on this machine, which has fewer cores than that, so their kernels sleep: what a device takes for a job
is a fixed time, as it is when it is a board, and the fleet's part (building, sending, leases, checks) is the real one.
In turns, one device and all of them measure, by the same `FleetRunner`; printed are jobs in a second, and the ratio.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tilewright.fleet.access import Access, Address
from tilewright.fleet.fleet import Fleet
from tilewright.fleet.runner import FleetRunner
from tilewright.graph import Array
from tilewright.loops.lower import lower
from tilewright.measure.build import Image
from tilewright.measure.job import Job, Timing
from tilewright.measure.verdicts import Verdict
from tilewright.runtime.executable import Executable
from tilewright.symbolic.expr import Expr, Var
from tilewright.target.target import Target
from tilewright.tensor import build as te

KEY = "sleeper"
SLEEP = "BENCHMARK_SLEEP_SECONDS"
"""The variable with the seconds that a kernel takes, twice for each job."""
_PATIENCE = 120.0


class Sleeper:
    """A kernel that computes what is right, and takes its time when it is checked."""

    def __init__(self, kernel: Executable) -> None:
        self._kernel = kernel
        self.manifest = kernel.manifest
        self.timed_run = kernel.timed_run

    def run(self, feeds: Mapping[str, Array], out: Mapping[str, Array]) -> list[Array]:
        time.sleep(float(os.environ[SLEEP]))
        return self._kernel.run(feeds, out)


def child(arguments: Sequence[str]) -> int:
    """The process of a device that measures."""
    from tilewright.measure.child import main as serve

    def start(image: Image, job: Job, _: str) -> Executable:
        return Sleeper(image.executable(job.threads))  # pyright: ignore[reportReturnType] # has what a bench uses

    return serve(arguments, start)


def device(arguments: Sequence[str]) -> int:
    """A device whose kernels sleep: `tilewright fleet join`."""
    from tilewright.cli import main as tilewright
    from tilewright.fleet import ways

    command = (sys.executable, "-m", "benchmarks.fleet", "child")
    ways.NATIVE = replace(ways.NATIVE, measuring=command)
    return tilewright(["fleet", "join", *arguments])


@contextmanager
def fleet(folder: Path, devices: int, sleep: float) -> Generator[Fleet]:
    """A context manager: a client of a scheduler with so many devices."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    variables = {**os.environ, SLEEP: str(sleep)}
    serve = [sys.executable, "-m", "tilewright", "fleet", "serve", "--listen", address]
    joins = [
        [
            *(sys.executable, "-m", "benchmarks.fleet", "device", "--fleet", address, "--key", KEY),
            *("--name", f"d{number}", "--folder", str(folder / str(number))),
        ]
        for number in range(devices)
    ]
    started = [subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL) for command in (serve, *joins)]
    try:
        with connected(address) as client:
            end = time.monotonic() + _PATIENCE
            while len(client.devices()) < devices:
                if time.monotonic() > end:
                    raise RuntimeError("the devices have not joined")
                time.sleep(0.1)
            yield client
    finally:
        for process in started:
            process.kill()
            process.wait()


def connected(address: str) -> Fleet:
    parsed = Address.parse(address)
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        with socket.socket() as tried:
            if tried.connect_ex((parsed.host, parsed.port)) == 0:
                return Fleet.connect(Access(parsed))
        time.sleep(0.1)
    raise RuntimeError("the scheduler does not answer")


def jobs(count: int, first: int) -> list[Job]:
    """Small kernels, no two the same."""
    a = te.placeholder((64,), name="A")

    def element(i: Var) -> Expr:
        return a[i] * 2.0

    program = str(lower(te.compute((64,), element, name="B"), "double"))
    empty, timing = '{"version": 1, "steps": []}', Timing(repeats=1, least_seconds=0.0005)
    target = str(Target.host())
    return [Job(program, empty, target, timing=timing, seed=first + number) for number in range(count)]


def rate(client: Fleet, devices: int, count: int, first: int) -> float:
    """Jobs in a second on so many devices, from the first outcome to the last: children have started then."""
    times: list[float] = []
    with FleetRunner(client, KEY, most=devices) as runner:
        for _, outcome in runner.measure_all(jobs(devices * (count + 1), first)):
            if outcome.verdict is not Verdict.OK:
                raise RuntimeError(f"a job went wrong: {outcome}")
            times.append(time.monotonic())
    return (len(times) - devices) / (times[-1] - times[devices - 1])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Devices that measure at the same time.")
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=10, help="of each device, in each round")
    parser.add_argument(
        "--sleep", type=float, default=1.0, help="seconds that a kernel takes when it is checked, twice"
    )
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, fleet(Path(folder), given.devices, given.sleep) as client:
        rate(client, given.devices, 1, 10_000_000)  # all children start
        ratios: list[float] = []
        for number in range(given.rounds):
            one = rate(client, 1, given.jobs, 10_000 * number)
            all_of_them = rate(client, given.devices, given.jobs, 10_000 * number + 5_000)
            ratios.append(all_of_them / one)
            print(
                f"1 device {one:.3f} jobs/s, {given.devices} devices {all_of_them:.3f} jobs/s: {ratios[-1]:.2f} times"
            )
    print(f"{given.devices} devices measure {statistics.median(ratios):.2f} times as much as one (median)")


if __name__ == "__main__":
    roles = {"child": child, "device": device}
    if len(sys.argv) > 1 and sys.argv[1] in roles:
        raise SystemExit(roles[sys.argv[1]](sys.argv[2:]))
    main()

"""How long Tilewright compiles a model, cold (nothing cached) and warm, and loads its artifact, each in a new process.

`python -m benchmarks.compilation STEP MODEL FEEDS THREADS FOLDER` is such a process; it prints its times as JSON.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .candidates import load_feeds
from .results import Compilation
from .zoo.samples import Sample

ARTIFACT = "model.tw"
STEPS = ("cold", "warm", "artifact")


def compile_and_load(case: str, model: Path, sample: Sample, threads: int, limit: float) -> Compilation:
    """Compile twice with a cache of its own, save, load; a failure, or more than `limit` seconds, is a reason."""
    with tempfile.TemporaryDirectory() as folder:
        feeds = Path(folder) / "feeds.npz"
        np.savez(feeds, allow_pickle=False, **sample.inputs)
        arguments = [str(model), str(feeds), str(threads), folder]
        try:
            measured = {step: _in_process(step, arguments, folder, limit) for step in STEPS}
        except subprocess.CalledProcessError as error:
            return Compilation(case, threads, failure=_reason(error.stderr))
        except subprocess.TimeoutExpired:
            return Compilation(case, threads, failure=f"not done within {limit:g} s")
        size = (Path(folder) / ARTIFACT).stat().st_size
    times = [seconds for step in STEPS for seconds in measured[step]]
    return Compilation(case, threads, "", *times, artifact_bytes=size)


def _reason(trace: str) -> str:
    """The last line of a traceback, its class without the module."""
    kind, colon, text = trace.strip().splitlines()[-1].partition(": ")
    return f"{kind.rpartition('.')[2]}{colon}{text}"


def _in_process(step: str, arguments: list[str], folder: str, limit: float) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.compilation", step, *arguments]
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": f"{folder}/cache", "TILEWRIGHT_KEY_DIR": f"{folder}/key"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=limit)
    seconds, cpu = json.loads(done.stdout.splitlines()[-1])
    return seconds, cpu


def main() -> None:
    """One step; prints seconds and CPU seconds."""
    step, model, feeds, threads, folder = sys.argv[1:]
    artifact = Path(folder) / ARTIFACT
    if step == "artifact":
        print(json.dumps(_timed(lambda: _load_and_run(artifact, load_feeds(feeds)))))
        return
    import tilewright.api  # not counted, and who loads an artifact has no need of it

    times = _timed(lambda: tilewright.api.compile(Path(model), threads=int(threads)))
    print(json.dumps(times))
    if step == "warm":
        tilewright.api.compile(Path(model), threads=int(threads)).save(artifact)


def _load_and_run(artifact: Path, feeds: dict[str, np.ndarray]) -> None:
    """All that a user waits for, but for NumPy."""
    import tilewright

    tilewright.load(artifact).run(None, feeds)


def _timed(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds and CPU seconds."""
    begin, begin_cpu = time.perf_counter(), _cpu_seconds()
    function()
    return time.perf_counter() - begin, _cpu_seconds() - begin_cpu


def _cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()

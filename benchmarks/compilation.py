"""How long Tilewright compiles a model, cold (nothing cached) and warm, each in a new process.

`python -m benchmarks.compilation MODEL THREADS` is that process; it prints seconds and CPU seconds as JSON.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .results import Compilation


def compile_cold_and_warm(case: str, model: Path, threads: int, limit: float) -> Compilation:
    """Compile twice with a cache of its own; a failure, or more than `limit` seconds, is a reason."""
    with tempfile.TemporaryDirectory() as cache:
        try:
            (cold, cold_cpu), (warm, warm_cpu) = (_in_process(model, threads, cache, limit) for _ in range(2))
        except subprocess.CalledProcessError as error:
            return Compilation(case, threads, failure=error.stderr.strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            return Compilation(case, threads, failure=f"not compiled within {limit:g} s")
    return Compilation(case, threads, "", cold, warm, cold_cpu, warm_cpu)


def _in_process(model: Path, threads: int, cache: str, limit: float) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.compilation", str(model), str(threads)]
    environment = os.environ | {"TILEWRIGHT_CACHE_DIR": cache}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=limit)
    seconds, cpu = json.loads(done.stdout.splitlines()[-1])
    return seconds, cpu


def main() -> None:
    """Compile once and print the times."""
    import tilewright.api  # not counted, and the parent has no need of it

    begin, begin_cpu = time.perf_counter(), _cpu_seconds()
    tilewright.api.compile(Path(sys.argv[1]), threads=int(sys.argv[2]))
    print(json.dumps([time.perf_counter() - begin, _cpu_seconds() - begin_cpu]))


def _cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()

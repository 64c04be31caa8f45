"""The process of one candidate: `python -m benchmarks.worker SPEC`, SPEC being a processes.Spec in JSON.

Speaks one JSON object a line: says `build_seconds` when the callable is built and was run once, then answers commands
from standard input until it ends. When it can't go on, it says `error` and ends. Between commands it sleeps. Stray
prints go to standard error.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from .candidates import Function, Session, load_feeds
from .harness import Plan, run_slot
from .processes import Spec, quiet

REST_WINDOW = 0.02  # seconds
REST_SHARE = 0.05  # of one core
REST_LIMIT = 2.0  # seconds


def main() -> None:
    """Build, report, serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spec = Spec(**json.loads(sys.argv[1]))
    try:
        _serve(spec, answers)
    except Exception as error:
        _say(answers, error=f"{type(error).__name__}: {' '.join(str(error).split())}")
        raise


def _serve(spec: Spec, answers: TextIO) -> None:
    begin = time.perf_counter()
    function = _build(spec)
    function()
    _say(answers, build_seconds=time.perf_counter() - begin)
    quiet(spec.threads)
    for line in sys.stdin:
        _say(answers, **_obey(function, json.loads(line)))


def _build(spec: Spec) -> Function:
    module, function = spec.factory.split(":")
    return getattr(importlib.import_module(module), function)(**spec.arguments, threads=spec.threads)


def _obey(function: Function, command: Mapping[str, Any]) -> dict[str, object]:
    match command["command"]:
        case "slot":
            times = run_slot(function, Plan(**command["plan"]))
            come_to_rest()
            return {"times": times}
        case "save":
            arrays = function() if command["feeds"] is None else _session(function).infer(load_feeds(command["feeds"]))
            outputs = {f"output_{index}": array for index, array in enumerate(arrays)}
            np.savez(Path(command["path"]), **outputs)
            come_to_rest()
            return {}
        case unknown:
            raise ValueError(f"unknown command {unknown!r}")


def _session(function: Function) -> Session:
    if not isinstance(function, Session):
        raise TypeError(f"{function} takes no feeds")
    return function


def come_to_rest() -> None:
    """Wait until no thread of this process is busy. Raises TimeoutError when some thread never rests."""
    end = time.perf_counter() + REST_LIMIT
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(REST_WINDOW)
        if time.process_time() - before < REST_SHARE * REST_WINDOW:
            return
    raise TimeoutError(f"a thread is still busy {REST_LIMIT} s after the slot; it would disturb the next candidate")


def _say(answers: TextIO, **fields: object) -> None:
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()

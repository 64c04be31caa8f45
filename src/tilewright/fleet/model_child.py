"""The process in which a device runs whole models: ``python -m tilewright.fleet.model_child``.

It answers one request on its socket, with one JSON object; outputs are files in the folder that it is given. It has
limits of memory and files, and ends with whoever started it. ``simulated_models`` and ``agent_models`` are such
processes for devices that are emulated, or have no Python.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from socket import socket

from tilewright.base import fields
from tilewright.base.arrays import Array
from tilewright.base.errors import FleetError, TilewrightError
from tilewright.base.store import Store
from tilewright.fleet.arrays import array_of, content, described
from tilewright.measure.limits import limit_files, limit_memory
from tilewright.measure.machine import machine_state
from tilewright.measure.messages import MAX_REQUEST, receive_blocking, send_blocking
from tilewright.measure.processes import die_with
from tilewright.measure.samples import sampled
from tilewright.measure.turns import Plan, measure
from tilewright.runtime.loading import load
from tilewright.runtime.runnable import RunnableModel

_MOST_FILE = 16 << 30
_STORE_BYTES = 8 << 30

CHILD = (sys.executable, "-P", "-m", "tilewright.fleet.model_child")
Doing = Callable[[Mapping[str, object]], dict[str, object]]
"""Does what is asked, and returns an answer."""


class Kind(Enum):
    """What is to be done with models."""

    RUN = "run"
    """One run of one model: outputs."""
    TURNS = "turns"
    """Times of several models, in turns."""
    SAMPLES = "samples"
    """Times of one model, kernel by kernel."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one request."""
    return serve_as(native, arguments)


def serve_as(do: Doing, arguments: Sequence[str] | None = None) -> int:
    """The same, with what does it."""
    parser = argparse.ArgumentParser(description="Runs models for a device of a fleet; not for people.")
    parser.add_argument("--socket", type=int, required=True)
    given = parser.parse_args(arguments)
    die_with(os.getppid())
    limit_files(_MOST_FILE)
    limit_memory(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with socket(fileno=given.socket) as end:
        asked = receive_blocking(end, MAX_REQUEST)
        if asked is not None:
            send_blocking(end, answer(asked, do))
    return 0


def answer(asked: Mapping[str, object], do: Doing) -> dict[str, object]:
    """Do what is asked; errors are answers, too."""
    try:
        begin = time.monotonic()
        return {**do(asked), "seconds": time.monotonic() - begin}
    except TilewrightError as error:
        return {"error": str(error), "kind": type(error).__name__}
    except MemoryError:
        return {"error": "the device has not enough memory for the model", "kind": "OutOfMemory"}


def native(asked: Mapping[str, object]) -> dict[str, object]:
    """Do it in this process."""
    models = [_model(asked, key) for key in keys_of(asked)]
    done = _done(asked, models, feeds_of(asked))
    return {**done, "machine": machine_state()}


def _done(
    asked: Mapping[str, object], models: Sequence[RunnableModel], feeds: Mapping[str, Array]
) -> dict[str, object]:
    match Kind(asked["kind"]):
        case Kind.RUN:
            results = models[0].run(None, feeds, timeout=fields.optional(asked["timeout"]))
            return {"outputs": written(asked, [spec.name for spec in models[0].outputs], results)}
        case Kind.TURNS:
            runs = {str(place): _Run(model, feeds) for place, model in enumerate(models)}
            timings = measure(runs, read_plan(asked["plan"]))
            return {"turns": [timings[name].turns for name in runs]}
        case Kind.SAMPLES:
            found = sampled(models[0].executable, feeds, fields.number(asked["sample_seconds"]))
            return {"totals": found.totals, "parts": found.parts, "threads": found.threads}


class _Run:
    def __init__(self, model: RunnableModel, feeds: Mapping[str, Array]) -> None:
        self._model = model
        self._feeds = feeds

    def __call__(self) -> object:
        return self._model.run(None, self._feeds)


def read_plan(value: object) -> Plan:
    """A plan from JSON; an infinite budget is null. Raises ``KeyError``, ``TypeError``."""
    found = fields.mapping(value)
    budget = fields.optional(found["budget"])
    slot, rest = fields.number(found["slot"]), fields.number(found["rest"])
    return Plan(fields.whole(found["rounds"]), slot, rest, float("inf") if budget is None else budget)


def _model(asked: Mapping[str, object], key: str) -> RunnableModel:
    """The model of an artifact. Who may use the device may run code on it."""
    return load(content_of(asked, key), trust=True, threads=fields.whole(asked["threads"]))


def keys_of(asked: Mapping[str, object]) -> list[str]:
    """The hashes of the artifacts."""
    return list(map(fields.text, fields.items(asked["artifacts"])))


def feeds_of(asked: Mapping[str, object]) -> dict[str, Array]:
    """The inputs, by name. Raises ``BadFeed``, ``FleetError``."""
    return dict(_feed(asked, item) for item in fields.items(asked["feeds"]))


def written(asked: Mapping[str, object], names: Sequence[str], results: Sequence[Array]) -> list[dict[str, object]]:
    """Write outputs to the folder that is given; returns what they are."""
    folder = Path(fields.text(asked["folder"]))
    for place, result in enumerate(results):
        (folder / f"output_{place}").write_bytes(content(result))
    return [described(name, result) for name, result in zip(names, results, strict=True)]


def _feed(asked: Mapping[str, object], item: object) -> tuple[str, Array]:
    return array_of(item, content_of(asked, fields.text(fields.mapping(item)["hash"])))


def content_of(asked: Mapping[str, object], key: str) -> bytes:
    """What was uploaded. Raises ``FleetError`` if it is there no more."""
    found = Store(Path(fields.text(asked["store"])), _STORE_BYTES).get(key)
    if found is None:
        raise FleetError("the device has dropped what was uploaded: its disk is full")
    return found


if __name__ == "__main__":
    raise SystemExit(main())

"""Whether a process grows that runs models with random shapes: `python -m benchmarks.growth [--minutes M]`.

A BERT-like encoder with open batch and sequence, and a model in stages, whose sizes depend on data. Prints what the
process keeps for itself after each tenth of the time; the growth is counted from the first tenth on.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import tilewright

from .memory import encoder

Run = Callable[[np.random.Generator], object]
"""Runs a model with shapes that the generator draws."""
PARTS = 10
_MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Reading:
    """After some time: the runs so far, and the bytes of memory that are the process's own."""

    seconds: float
    runs: int
    own: int


def texts(width: int, layers: int) -> Run:
    """An encoder, with up to 8 texts of up to 128 words."""
    proto, _ = encoder(width, layers, 1000)
    model = tilewright.compile(proto, threads=1)

    def run(random: np.random.Generator) -> object:
        shape = random.integers((1, 1), (9, 129))
        ids = random.integers(0, 1000, shape)
        mask = np.ones_like(ids)
        return model.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids})

    return run


def chosen_rows() -> Run:
    """What is above a limit of up to a million numbers, times itself: how many these are is known only in a run."""
    nodes = [
        helper.make_node("Greater", ["x", "least"], ["good"]),
        helper.make_node("Compress", ["x", "good"], ["kept"]),
        helper.make_node("Mul", ["kept", "kept"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
    least = helper.make_tensor("least", TensorProto.FLOAT, [], [0.5])
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")], [least])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    model = tilewright.compile(proto, threads=1)
    return lambda random: model.run(None, {"x": random.random(int(random.integers(1_000_000)), np.float32)})


def readings(runs: Sequence[Run], seconds: float, parts: int = PARTS) -> Iterator[Reading]:
    """One after each part of the time."""
    random, count, begin = np.random.default_rng(0), 0, time.monotonic()
    for part in range(1, parts + 1):
        while time.monotonic() < begin + seconds * part / parts:
            for run in runs:
                run(random)
            count += len(runs)
        gc.collect()
        yield Reading(time.monotonic() - begin, count, _own_bytes())


def _own_bytes() -> int:
    """Anonymous memory of this process. Linux only."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Anonymous:"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each tenth of the time, and the growth."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description="Memory of runs of random shapes.")
    parser.add_argument("--minutes", type=float, default=15.0, help="default %(default)s")
    options = parser.parse_args(arguments)
    found: list[Reading] = []
    print("| seconds | runs | MB |\n|---:|---:|---:|")
    for reading in readings((texts(256, 2), chosen_rows()), 60 * options.minutes):
        print(f"| {reading.seconds:.0f} | {reading.runs} | {reading.own / _MEGABYTE:.1f} |", flush=True)
        found.append(reading)
    print(f"growth after the first tenth: {(found[-1].own - found[0].own) / _MEGABYTE:.1f} MB")


if __name__ == "__main__":
    main()

"""What it saves to run layers for a part of the batch at a time: `python -m benchmarks.batch_parts --zoo build/zoo16`.

Each network is compiled with the loops that the model chooses (`passes/choose_parts.py`) and without any; both run in
turn, in one thread, and must give the same bits. `python -m benchmarks.zoo --batch 16 --folder build/zoo16` writes the
networks.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from unittest.mock import patch

import numpy as np

import tilewright
from tilewright import compilation
from tilewright.base.settings import Settings
from tilewright.model import CompiledModel

RUNS = 2
"""Runs in a turn."""


def main() -> int:
    """Print a row for each network; the exit status is 1 if results differ."""
    options = _options()
    return 0 if all([_compare(options.zoo / f"{name}.onnx", options) for name in options.networks.split(",")]) else 1


def _compare(path: Path, options: argparse.Namespace) -> bool:
    with patch.object(compilation, "choose_parts", _no_loops):
        whole = _compiled(path, options.precision)
    models = whole, _compiled(path, options.precision)
    random = np.random.default_rng(1)
    feeds = {spec.name: random.standard_normal(spec.static_shape, np.float32) for spec in whole.inputs}
    equal = all(map(np.array_equal, *(model.run(None, feeds) for model in models)))
    before, after = _times(models, feeds, options.seconds)
    sizes = [f"{int(str(model.executable.manifest.workspace)) / 1e6:.1f}" for model in models]
    times = f"{before * 1e3:.1f} ms, in parts {after * 1e3:.1f} ms: {before / after:.2f}"
    told = "" if equal else "; RESULTS DIFFER"
    print(f"{path.stem}, {options.precision}: {times}; workspace {', '.join(sizes)} MB{told}", flush=True)
    return equal


def _no_loops(*_: object) -> tuple[()]:
    return ()


def _compiled(path: Path, precision: str) -> CompiledModel:
    settings = replace(Settings.from_environment(), model_cache_bytes=0)
    made = tilewright.compile(path, precision=precision, threads=1, settings=settings)
    assert isinstance(made, CompiledModel), "networks of the zoo are one native part"
    return made


def _times(models: tuple[CompiledModel, ...], feeds: dict[str, np.ndarray], seconds: float) -> list[float]:
    """Median seconds of each model, in turns."""
    taken: list[list[float]] = [[] for _ in models]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not all(taken):
        for model, times in zip(models, taken, strict=True):
            for _ in range(RUNS):
                begin = time.perf_counter()
                model.run(None, feeds)
                times.append(time.perf_counter() - begin)
    return [median(times) for times in taken]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.batch_parts", description=__doc__)
    parser.add_argument("--zoo", type=Path, default=Path("build/zoo16"), help="folder of the networks, %(default)s")
    parser.add_argument("--networks", default="resnet50", metavar="NAME,...", help="default %(default)s")
    parser.add_argument("--precision", default="bf16", choices=["fp32", "bf16"], help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each network, default %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

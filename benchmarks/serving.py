"""What a server cares about: how fast an artifact is there, and what many threads get out of one model.

`python -m benchmarks.serving [--megabytes N]`. Loading is timed in new processes, from the imports of NumPy and
ml-dtypes on, with the file in the page cache. Throughput of four Python threads is paired, round by round, with that of
one.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tilewright
from tilewright.base.arrays import Array
from tilewright.base.settings import Settings
from tilewright.runtime.runnable import RunnableModel

LOAD = """
import sys, time
import numpy, ml_dtypes
begin = time.perf_counter()
import tilewright
model = tilewright.load(sys.argv[1], trust=True)
loaded = time.perf_counter()
model(*(numpy.zeros(spec.static_shape, spec.dtype.numpy) for spec in model.inputs))
print(loaded - begin, time.perf_counter() - begin)
"""
CALLERS = 4


def dense_layers(rows: int, width: int, layers: int) -> ModelProto:
    """``layers`` matrix products of `width` columns, with a ReLU after each."""
    random = np.random.default_rng(0)
    shape = (width, width)
    weights = [
        numpy_helper.from_array(random.normal(0, width**-0.5, shape).astype(np.float32), f"w{layer}")
        for layer in range(layers)
    ]
    nodes = []
    for layer in range(layers):
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"z{layer}"]))
        nodes.append(helper.make_node("Relu", [f"z{layer}"], [f"x{layer + 1}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, width]) for name in ("x0", f"x{layers}")]
    graph = helper.make_graph(nodes, "dense", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def loading(megabytes: int) -> None:
    """Time to load, and to load and run once, a model with so many megabytes of weights."""
    width = 1024
    model = tilewright.compile(dense_layers(1, width, max(1, round(megabytes * 1e6 / (4 * width**2)))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dense.tw"
        begin = time.perf_counter()
        model.save(path, settings=Settings(key_dir=Path(folder) / "keys"))
        saving = time.perf_counter() - begin
        print(f"artifact of {path.stat().st_size / 1e6:.0f} MB: saved in {saving:.3f} s")
        runs = [
            subprocess.run([sys.executable, "-c", LOAD, str(path)], check=True, capture_output=True, text=True).stdout
            for _ in range(7)
        ]
    loaded, ran = (statistics.median(float(run.split()[column]) for run in runs) for column in (0, 1))
    print(f"  loaded, hashes checked: {loaded:.3f} s beyond importing NumPy; loaded and run once: {ran:.3f} s")


def calls_per_second(model: RunnableModel, inputs: Sequence[Array], seconds: float) -> float:
    """Finished calls of one thread for each input, together."""
    counts = [0] * len(inputs)
    start = threading.Barrier(len(inputs) + 1)

    def call(caller: int) -> None:
        start.wait()
        while time.perf_counter() < deadline:
            model(inputs[caller])
            counts[caller] += 1

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(len(inputs))]
    deadline = time.perf_counter() + seconds
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def callers(rounds: int = 15, seconds: float = 0.2) -> None:
    """Calls per second of four threads, beside one's."""
    print(f"one model, {CALLERS} Python threads: calls per second, beside one thread's")
    for rows, width, layers in ((1, 16, 1), (4, 128, 2), (32, 256, 4)):
        for workers in (1, 2):
            model = tilewright.compile(dense_layers(rows, width, layers), threads=workers)
            inputs = [np.full((rows, width), caller, np.float32) for caller in range(CALLERS)]
            pairs = [
                (calls_per_second(model, inputs[:1], seconds), calls_per_second(model, inputs, seconds))
                for _ in range(rounds)
            ]
            one = statistics.median(pair[0] for pair in pairs)
            ratio = statistics.median(pair[1] / pair[0] for pair in pairs)
            name = f"{layers} x [{rows}, {width}] x [{width}, {width}], {workers} workers"
            print(f"  {name:44} {one:9.0f}/s alone, {ratio:5.2f} times that by {CALLERS}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100, help="of weights (default: %(default)s)")
    options = parser.parse_args()
    loading(options.megabytes)
    callers()


if __name__ == "__main__":
    main()

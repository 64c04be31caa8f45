"""Under ``math="strict"`` results are the same bits, for any number of threads, however often a model is run.

What could break this: sums that are split by the number of threads, work that is handed to whoever comes first and
combined in that order, memory that was not written. So every model is large enough to be run in parallel.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from benchmarks.networks import NETWORKS, ZOO
from benchmarks.zoo.samples import load_samples
from tests.frontend.models import model as make_model
from tilewright.api import CompiledModel
from tilewright.api import compile as compile_model
from tilewright.base.numerics import Math
from tilewright.loops.ir import Loop, LoopKind
from tilewright.loops.visit import walk

Array = NDArray[np.generic]
Feeds = dict[str, Array]
Make = Callable[[], tuple[onnx.ModelProto, Feeds]]
RUNS = 100
THREADS = (1, 2, 3)
FOLDER = Path(os.environ.get("ZOO_FOLDER") or Path(__file__).parent.parent / ZOO)


def drawn(*shape: int, scale: float = 1.0) -> Array:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * scale).astype(np.float32)


def convolutions() -> tuple[onnx.ModelProto, Feeds]:
    """A stem, batch normalization, a depthwise and a 1x1 convolution, a residual, means over the plane."""
    x = {"x": drawn(1, 3, 64, 64)}
    weights = {
        "stem": drawn(32, 3, 7, 7, scale=0.1),
        "three": drawn(32, 32, 3, 3, scale=0.1),
        "depthwise": drawn(32, 1, 3, 3, scale=0.3),
        "one": drawn(32, 32, 1, 1, scale=0.2),
        "scale": np.abs(drawn(32)) + 0.5,
        "shift": drawn(32),
    }
    normalization = ["a", "scale", "shift", "shift", "scale"]
    nodes = [
        helper.make_node("Conv", ["x", "stem"], ["a"], strides=[2, 2], pads=[3, 3, 3, 3]),
        helper.make_node("BatchNormalization", normalization, ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "three"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["d", "depthwise"], ["e"], group=32, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["e", "one"], ["f"]),
        helper.make_node("Add", ["f", "c"], ["g"]),
        helper.make_node("GlobalAveragePool", ["g"], ["h"]),
        helper.make_node("ReduceSum", ["g"], ["i"], keepdims=0),
    ]
    return make_model(nodes, x, ["h", "i"], weights), x


def attention() -> tuple[onnx.ModelProto, Feeds]:
    """Layer normalization, products of matrices, softmax."""
    x = {"x": drawn(1, 96, 128)}
    weights = {"q": drawn(128, 128, scale=0.1), "k": drawn(128, 128, scale=0.1), "s": drawn(128), "b": drawn(128)}
    nodes = [
        helper.make_node("LayerNormalization", ["x", "s", "b"], ["n"]),
        helper.make_node("MatMul", ["n", "q"], ["queries"]),
        helper.make_node("MatMul", ["n", "k"], ["keys"]),
        helper.make_node("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["queries", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"]),
        helper.make_node("MatMul", ["shares", "n"], ["y"]),
    ]
    return make_model(nodes, x, ["y"], weights), x


def recurrence() -> tuple[onnx.ModelProto, Feeds]:
    """An LSTM over 20 steps, and the sum of all that it says."""
    x = {"x": drawn(20, 2, 32)}
    weights = {"w": drawn(1, 256, 32, scale=0.2), "r": drawn(1, 256, 64, scale=0.2)}
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["h", "last"], hidden_size=64),
        helper.make_node("ReduceMean", ["h"], ["y"], keepdims=0),
    ]
    return make_model(nodes, x, ["h", "last", "y"], weights), x


def long_sums() -> tuple[onnx.ModelProto, Feeds]:
    """Few results of many terms each: where one would split a sum between threads."""
    x = {"x": drawn(4, 1 << 16)}
    weights = {"w": drawn(1 << 16, 5)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ReduceL2", ["x"], ["b"], keepdims=0),
        helper.make_node("ReduceLogSumExp", ["x"], ["c"], axes=[1], keepdims=0),
        helper.make_node("ReduceMean", ["x"], ["d"], axes=[0], keepdims=0),
    ]
    return make_model(nodes, x, ["a", "b", "c", "d"], weights, opset=17), x


MODELS: tuple[Make, ...] = (convolutions, attention, recurrence, long_sums)


def bits(results: list[Array]) -> list[bytes]:
    return [result.tobytes() for result in results]


def check(model: CompiledModel, feeds: Feeds) -> None:
    """The same bits, run after run, with one thread and several in turns, and in several calls at once."""
    expected = bits(model.executable.run(feeds, threads=1))
    for run in range(RUNS):
        threads = THREADS[run % len(THREADS)]
        assert bits(model.executable.run(feeds, threads=threads)) == expected, f"run {run}, {threads} threads"


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_the_same_bits(make: Make) -> None:
    see_that_bits_stay(make, Math.STRICT)


@pytest.mark.parametrize("math", [Math.DEFAULT, Math.FAST], ids=lambda math: math.value)
def test_other_policies_promise_that_too(math: Math) -> None:
    see_that_bits_stay(convolutions, math)


def see_that_bits_stay(make: Make, math: Math) -> None:
    proto, feeds = make()
    model = compile_model(proto, math=math, threads=2)
    loops = [stmt for kernel in model.compiled.kernels for stmt in walk(kernel.program.body) if isinstance(stmt, Loop)]
    assert any(loop.kind is LoopKind.PARALLEL for loop in loops)
    check(model, feeds)


def test_the_number_of_threads_changes_no_code() -> None:
    proto, _ = long_sums()
    one, many = (compile_model(proto, math=Math.STRICT, threads=threads).compiled for threads in (1, 8))
    assert one.objects == many.objects
    assert one.executable.manifest == many.executable.manifest


def test_calls_at_the_same_time() -> None:
    proto, feeds = convolutions()
    model = compile_model(proto, math=Math.STRICT, threads=2)
    expected = bits(model.executable.run(feeds, threads=1))
    with ThreadPoolExecutor(4) as callers:
        results = callers.map(lambda run: model.executable.run(feeds, threads=1 + run % 2), range(RUNS))
        assert all(bits(result) == expected for result in results)


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"there is no {FOLDER}: see tests/test_zoo.py")
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_zoo(name: str) -> None:
    model = compile_model(FOLDER / f"{name}.onnx", math=Math.STRICT, threads=2)
    check(model, dict(load_samples(FOLDER / f"{name}.npz")[0].inputs))

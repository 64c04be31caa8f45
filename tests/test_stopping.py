"""Compiled models are stopped by timeouts and signals wherever they are, and give the same bits afterwards."""

import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cli.schema import report
from tilewright.api import compile as compiled
from tilewright.base.errors import BadInput, Timeout
from tilewright.cli import main
from tilewright.model import CompiledModel

SIZE = 384


def products(layers: int, size: int = SIZE, batch: int | str = SIZE) -> onnx.ModelProto:
    """``x @ w @ w ...``."""
    weight = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32) / np.float32(np.sqrt(size))
    names = ["x", *(f"y{layer}" for layer in range(layers))]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, size]) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return compiled(products(12))


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(SIZE, SIZE)).astype(np.float32)


def test_stopped_a_hundred_times_at_random_moments(model: CompiledModel, x: np.ndarray) -> None:
    begin = time.perf_counter()
    (expected,) = model.run(None, {"x": x})
    whole = time.perf_counter() - begin
    moments, stopped = np.random.default_rng(2), 0
    for turn in range(100):
        try:
            model.run(None, {"x": x}, timeout=float(moments.uniform(0, 0.5 * whole)))
        except Timeout:
            stopped += 1
        if turn % 10 == 0:
            np.testing.assert_array_equal(model.run(None, {"x": x})[0], expected)
    assert stopped > 30
    np.testing.assert_array_equal(model.run(None, {"x": x})[0], expected)


def test_several_threads_with_timeouts_of_their_own(model: CompiledModel, x: np.ndarray) -> None:
    (expected,) = model.run(None, {"x": x})
    wrong: list[str] = []

    def call(number: int) -> None:
        for turn in range(10):
            hurried = (number + turn) % 2 == 0
            try:
                (result,) = model.run(None, {"x": x}, timeout=0.0 if hurried else 60.0)
            except Timeout:
                if not hurried:
                    wrong.append("a timeout of another thread")
                continue
            if hurried or not np.array_equal(result, expected):
                wrong.append("no timeout, or another result")

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def scan(steps: int) -> onnx.ModelProto:
    """An LSTM of many steps: one kernel, whose outermost loop is serial."""
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 64, 16), "r": (1, 64, 16)}
    weights = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32) / 8, n) for n, s in shapes.items()]
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=16)
    info = helper.make_tensor_value_info
    values = info("x", TensorProto.FLOAT, [steps, 1, 16]), info("y", TensorProto.FLOAT, [steps, 1, 1, 16])
    graph = helper.make_graph([node], "g", [values[0]], [values[1]], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_within_a_serial_loop(threads: int) -> None:
    steps = 400_000
    model = compiled(scan(steps), threads=threads)
    x = np.zeros((steps, 1, 16), np.float32)
    begin = time.perf_counter()
    model.run(None, {"x": x})
    whole = time.perf_counter() - begin
    assert whole > 0.1
    times: list[float] = []
    for _ in range(3):
        begin = time.perf_counter()
        with pytest.raises(Timeout):
            model.run(None, {"x": x}, timeout=0.01)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.5 * whole


def test_of_a_version_for_each_size(x: np.ndarray) -> None:
    model = compiled(products(2, batch="n"), dynamic="specialize")
    with pytest.raises(Timeout):
        model.run(None, {"x": x}, timeout=0)
    with pytest.raises(BadInput, match="give seconds"):
        model.run(None, {"x": x}, timeout=-1)
    assert model.run(None, {"x": x}, timeout=60)[0].shape == x.shape


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(products(2, 32, 32).SerializeToString())
    assert main(["run", str(tmp_path / "m.onnx"), "--timeout", "0"]) == 2
    assert "longer than its timeout" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "m.onnx"), "--timeout", "60", "--json"]) == 0
    assert report("run", capsys.readouterr().out)["outputs"]


_INTERRUPTED = """
import sys, numpy as np, tilewright
from tests.test_stopping import products
model = tilewright.compile(products(4), threads=int(sys.argv[1]))
x = np.ones((384, 384), np.float32)
(expected,) = model.run(None, {"x": x})
long = tilewright.compile(products(150, 1024, 1024), threads=int(sys.argv[1]))
y = np.ones((1024, 1024), np.float32)
try:
    print("ready", flush=True)
    long.run(None, {"x": y})
except KeyboardInterrupt:
    print("stopped", flush=True)
else:
    print("too late", flush=True)
print(np.array_equal(model.run(None, {"x": x})[0], expected))
"""

_COMPILING = """
import tilewright
from tests.test_stopping import scan
from tilewright.base.settings import Settings
try:
    print("ready", flush=True)
    while True:
        tilewright.compile(scan(1000), settings=Settings())
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.parametrize(
    ("program", "argument", "expected"),
    [
        pytest.param(_INTERRUPTED, "1", ["stopped", "True"], id="run on one thread", marks=pytest.mark.slow),
        pytest.param(_INTERRUPTED, "2", ["stopped", "True"], id="run on two threads"),
        pytest.param(_COMPILING, "", ["stopped"], id="compile"),
    ],
)
def test_interrupts(program: str, argument: str, expected: list[str]) -> None:
    """SIGINT in a process of its own."""
    # Where tests run in the background, shells let processes ignore it.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heard + program, argument]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().split() == expected
    assert process.returncode == 0

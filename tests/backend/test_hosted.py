"""Back ends whose kernels Python calls: whole models, run-time extents, timing, timeouts, refusals."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.backend.hosted import HostedBackend, Kernel
from tilewright.base.arrays import Array
from tilewright.base.errors import BadInput, Timeout, Unsupported, UnsupportedModel
from tilewright.base.settings import Settings
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import LoopKind
from tilewright.loops.memory import GLOBAL
from tilewright.loops.program import Program
from tilewright.target.target import Target

W = np.arange(64, dtype=np.float32).reshape(8, 8) / 64 - 0.5


class Interpreted(HostedBackend):
    """Runs each kernel by the loop interpreter; refuses those whose name has ``refused`` in it."""

    name = "interpreted"

    def __init__(self, refused: str = " ") -> None:
        self._refused = refused

    def write(self, program: Program, target: Target) -> str:
        if self._refused in program.name:
            raise Unsupported("it is refused")
        return str(program)

    def load(self, program: Program, text: str) -> Kernel:
        assert text == str(program)

        def run(arrays: Mapping[str, Array], extents: Mapping[str, int]) -> None:
            found = interpret(program, {buffer.name: arrays[buffer.name] for buffer in program.inputs}, extents)
            for name, array in found.items():
                arrays[name][...] = array

        return run


def model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Softmax", ["y"], ["s"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in ("s", "z")]
    graph = helper.make_graph(nodes, "g", [given], made, [onnx.numpy_helper.from_array(W, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def expected(x: Array) -> tuple[Array, Array]:
    y = x @ W
    powers = np.exp(y - y.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True), np.maximum(y, 0)


def test_a_model_with_run_time_extents() -> None:
    compiled = tilewright.compile(model(), backend=Interpreted())
    for rows in (1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        for found, wanted in zip(compiled.run(None, {"x": x}), expected(x), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_outputs_can_be_given() -> None:
    x, z = np.ones((2, 8), np.float32), np.full((2, 8), 7, np.float32)
    executable = tilewright.compile(model(), backend=Interpreted()).executable
    results = executable.run({"x": x}, {"z": z})
    assert results[1] is z
    np.testing.assert_allclose(z, expected(x)[1], rtol=1e-5, atol=1e-6)


def test_each_kernel_is_timed() -> None:
    executable = tilewright.compile(model(), backend=Interpreted()).executable
    _, seconds = executable.timed_run({"x": np.ones((2, 8), np.float32)}, runs=2)
    assert len(seconds) == len(executable.manifest.calls) >= 2
    assert min(seconds) > 0


def test_a_timeout_ends_a_run_before_the_next_kernel() -> None:
    with pytest.raises(Timeout, match="was not begun"):
        tilewright.compile(model(), backend=Interpreted()).run(None, {"x": np.ones((2, 8), np.float32)}, timeout=0)


def test_what_a_back_end_refuses_is_named() -> None:
    with pytest.raises(UnsupportedModel, match="it is refused"):
        tilewright.compile(model(), backend=Interpreted("k0"))


def test_its_models_can_be_compared_and_not_saved(tmp_path: Path) -> None:
    compiled = tilewright.compile(model(), backend=Interpreted())
    assert not compiled.is_cached
    assert compiled.compare(np.ones((2, 8), np.float32)).agrees
    with pytest.raises(Unsupported, match="interpreted"):
        compiled.save(tmp_path / "m.tw")
    assert not (tmp_path / "m.tw").exists()


def test_isolated_processes_know_installed_back_ends_only() -> None:
    with pytest.raises(BadInput, match="isolate="):
        tilewright.compile(model(), backend=Interpreted(), isolate=True)


class Serial(Interpreted):
    """Has no vectors."""

    name = "serial"
    loop_kinds = frozenset({LoopKind.SERIAL, LoopKind.PARALLEL})


def test_loops_that_it_has_not_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="is unrolled; serial has parallel, serial ones"):
        tilewright.compile(model(), backend=Serial())


class Local(Interpreted):
    """All in one memory."""

    name = "local"
    memories: ClassVar = {GLOBAL.name: GLOBAL}


def test_memories_that_it_has_not_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="is in local; local has global"):
        tilewright.compile(model(), backend=Local())


def test_the_reference_runs_models() -> None:
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    compiled = tilewright.compile(model(), backend="reference")
    for found, wanted in zip(compiled.run(None, {"x": x}), expected(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_checks_that_it_has_not_are_refused() -> None:
    with pytest.raises(Unsupported, match="leave checks='off' out"):
        tilewright.compile(model(), backend=Interpreted(), checks="off")
    checking = Settings(bounds_check=True)
    with pytest.raises(Unsupported, match="unset TILEWRIGHT_BOUNDS_CHECK"):
        tilewright.compile(model(), backend=Interpreted(), settings=checking)
    tilewright.compile(model(), backend="reference", settings=checking)


def test_an_unknown_name() -> None:
    with pytest.raises(BadInput, match=r"backend='cpp'.*cpu, reference"):
        tilewright.compile(model(), backend="cpp")

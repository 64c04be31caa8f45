"""A main program of many calls is several functions: it computes the same, also after a call that was too late."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.backend.api import Emission
from tilewright.backend.cpu.image import emit
from tilewright.backend.cpu.kernel import MOST_CALLS
from tilewright.base.errors import Timeout
from tilewright.base.settings import Settings
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.target.target import Target

COUNT = 2 * MOST_CALLS + 8
SIZE = 64


def chain() -> onnx.ModelProto:
    """Products that need each other, so that none is fused with the next; every tenth is an output."""
    generator = np.random.default_rng(3)
    weights = [generator.standard_normal((SIZE, SIZE), np.float32) / np.float32(SIZE**0.5) for _ in range(3)]
    constants = [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)]
    nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i % 3}"], [f"v{i + 1}"], name=f"n{i}") for i in range(COUNT)]
    outputs = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, None) for i in range(10, COUNT + 1, 10)]
    inputs = [helper.make_tensor_value_info("v0", TensorProto.FLOAT, [SIZE, SIZE])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def expected(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    weights = [numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer]
    values = [x.astype(np.float64)]
    for i in range(COUNT):
        values.append(values[-1] @ weights[i % 3])
    return values[10::10]


def test_it_computes_also_after_a_timeout() -> None:
    model = chain()
    made = compile_graph(importer.load(model), Options(Target.host(), threads=1))
    assert str(made.main).count("kernel ") > 2 * MOST_CALLS
    text = emit(made.main, [kernel.program for kernel in made.kernels], Target.host(), Emission(3)).main
    assert text.count("call i1 @tw_check") == COUNT + 3, "whether to go on is asked after each kernel and each part"
    compiled = tilewright.compile(model, threads=1, settings=Settings())
    x = np.random.default_rng(4).standard_normal((SIZE, SIZE), np.float32)
    for found, value in zip(compiled.run(None, {"v0": x}), expected(model, x), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-3, atol=1e-3 * float(np.abs(value).max()))
    with pytest.raises(Timeout):
        compiled.run(None, {"v0": x}, timeout=1e-9)
    for found, value in zip(compiled.run(None, {"v0": x}), expected(model, x), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-3, atol=1e-3 * float(np.abs(value).max()))

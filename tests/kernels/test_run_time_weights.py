"""Weights that are known only at run time are copied in blocks of filters; results are those of ONNX Runtime."""

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model, run_onnxruntime
from tests.ops.nodes import NodeCase, check

random = np.random.default_rng(11)


def f(*shape: int) -> NDArray[np.float32]:
    return random.uniform(-1, 1, shape).astype(np.float32)


COPIED = [
    NodeCase("Conv", [f(1, 32, 9, 9), f(48, 32, 3, 3)], {"pads": [1] * 4}),
    NodeCase("Conv", [f(2, 24, 7, 8), f(40, 24, 1, 1), f(40)]),
    NodeCase("Conv", [f(1, 32, 6, 6), f(64, 8, 3, 2), f(64)], {"group": 4, "strides": [2, 1]}),
    NodeCase("Conv", [f(1, 16, 20), f(32, 16, 5)], {"pads": [2, 2]}),
    NodeCase("Conv", [f(1, 8, 4, 5, 6), f(16, 8, 2, 3, 1)], {"dilations": [2, 1, 1]}),
]
NOT_COPIED = [
    NodeCase("Conv", [f(1, 32, 6, 6), f(32, 1, 3, 3)], {"group": 32}),
    NodeCase("Conv", [f(1, 6, 6, 6), f(5, 6, 3, 3)]),
    NodeCase("MatMul", [f(7, 33), f(33, 40)]),
]


@pytest.mark.parametrize("case", [*COPIED, *NOT_COPIED], ids=str)
def test_results_are_those_of_onnx_runtime(case: NodeCase) -> None:
    check(case)


@pytest.mark.parametrize("case", COPIED, ids=str)
def test_weights_of_blocked_convolutions_are_copied(case: NodeCase) -> None:
    compiled = tilewright.compile(case.model(), target="x86_64,znver4,l1=32K,l2=1M,l3=32M").compiled
    assert any("_copy" in str(kernel.program) for kernel in compiled.kernels)


def test_a_weight_that_is_computed_and_read_twice() -> None:
    feeds = {"x": f(1, 32, 8, 8), "v": f(32, 32, 3, 3)}
    nodes = [
        helper.make_node("Exp", ["v"], ["w"]),
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["y"], pads=[1] * 4),
        helper.make_node("Mul", ["w", "w"], ["z"]),
    ]
    proto = model(nodes, feeds, ["y", "z"])
    for found, wanted in zip(tilewright.compile(proto).run(None, feeds), run_onnxruntime(proto, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)

"""Estimates of products that were once not tiled: one pixel, and a matrix that is transposed at run time."""

import numpy as np
import onnx
from onnx import numpy_helper, parser

from tilewright.base.settings import Settings
from tilewright.compilation import Options, prepare
from tilewright.frontend.opening import opened
from tilewright.superopt.costs.kernel_model import KernelCosts
from tilewright.target.target import Target

OPTIONS = Options(Target.parse("x86_64,znver4"), threads=1)


def cycles(model: onnx.ModelProto) -> float:
    graph = opened(model).load({}, {}, Settings.from_environment().model_bytes)
    made = prepare(graph, math=OPTIONS.math)
    return KernelCosts.of(made, OPTIONS.target, OPTIONS.math, OPTIONS.bounds, OPTIONS.alternatives).of_graph(made)


def written(signature: str, body: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]>\nnet {signature} {{ {body} }}')


def test_a_filter_of_one_pixel_on_one_pixel() -> None:
    """2,048 multiply-adds of vectors, of which two run in a cycle, and as many loads."""
    model = written("(float[1,128,1,1] x) => (float[1,256,1,1] y)", "y = Conv(x, w)")
    weights = np.ones((256, 128, 1, 1), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    assert cycles(model) <= 2 * weights.size / 16


def test_a_transposed_matrix_of_run_time() -> None:
    """It is copied in panels, and then multiplied by as any other one."""
    plain = written("(float[64,128] a, float[128,64] b) => (float[64,64] y)", "y = MatMul(a, b)")
    turned = written(
        "(float[64,128] a, float[64,128] b) => (float[64,64] y)", "t = Transpose<perm = [1, 0]>(b) y = MatMul(a, t)"
    )
    assert cycles(plain) <= cycles(turned) <= 1.3 * cycles(plain)

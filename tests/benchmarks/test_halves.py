"""The conversion of networks to 16 bits."""

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.halves import converted, with_rounded_weights
from tests.frontend.models import run_onnxruntime


def network() -> onnx.ModelProto:
    model = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 18]>
    net (float[4, 8] x, int64[4] i) => (float[4, 8] y) {
      c = Cast <to = 1> (i)  u = Unsqueeze(c, axis)  h = MatMul(x, w)  m = Min(h, most)  y = Add(m, u)
    }
    """)
    random = np.random.default_rng(0)
    arrays = {"w": random.standard_normal((8, 8)).astype(np.float32), "axis": np.array([1]), "most": np.float32(3e38)}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items())
    return model


def test_a_converted_network_has_16_bits_inside() -> None:
    model = network()
    half = converted(model, np.dtype(np.float16))
    types = {t.name: t.data_type for t in half.graph.initializer}
    assert types == {"w": onnx.TensorProto.FLOAT16, "most": onnx.TensorProto.FLOAT16, "axis": onnx.TensorProto.INT64}
    onnx.checker.check_model(half, full_check=True)
    feeds = {"x": np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32), "i": np.arange(4)}
    (found,), (expected,) = (
        run_onnxruntime(made, feeds) for made in (half, with_rounded_weights(model, np.dtype(np.float16)))
    )
    assert found.dtype == np.float32
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 2e-3

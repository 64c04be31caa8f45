"""Models with extents that are known at run time only, with and without bounds."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.base.errors import BadFeed


@pytest.mark.parametrize("bound", [None, 1, 2, 8, 100])
def test_a_matrix_product_with_any_number_of_rows(bound: int | None) -> None:
    weight = np.random.default_rng(0).standard_normal((16, 40)).astype(np.float32)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 40])]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(weight, "w")])
    proto = onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model = tilewright.compile(proto, bounds={} if bound is None else {"n": bound}, threads=1)
    for rows in (0, 1, 2, 7, 8, 100):
        x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
        if bound is not None and rows > bound:
            with pytest.raises(BadFeed, match="extent 'n'"):
                model(x)
        else:
            np.testing.assert_allclose(model(x), x @ weight, rtol=1e-4, atol=1e-5)

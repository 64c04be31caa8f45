"""No feed makes a compiled model touch memory that is not its own."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright


@pytest.mark.parametrize("wild", [7, -8, 10**9, -(10**9), 2**62, -(2**62)])
def test_indices_out_of_range_give_the_nearest_row(wild: int) -> None:
    table = np.arange(7 * 3, dtype=np.float32).reshape(7, 3)
    gather = helper.make_node("Gather", ["table", "ids"], ["rows"], axis=0)
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [2])
    rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([gather], "g", [ids], [rows], [numpy_helper.from_array(table, "table")])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (result,) = tilewright.compile(model, threads=1).run(None, {"ids": np.array([wild, -1])})
    np.testing.assert_array_equal(result, [table[-1] if wild > 0 else table[0], table[-1]])

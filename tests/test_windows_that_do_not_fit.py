"""A window that is larger than its image is refused at run time as it is when the image's size is known."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.models import run_onnxruntime
from tilewright.api import compile as compiled
from tilewright.base.errors import BadFeed, InvalidModel


def sliding(op: str, kernel: int, extent: int | str, **attributes: object) -> onnx.ModelProto:
    """``op`` over ``[1, 1, extent]``; its weights, if it has any, are constants."""
    weights = {"Conv": (2, 1, kernel), "ConvTranspose": (1, 2, kernel)}
    constants = [numpy_helper.from_array(np.ones(weights[op], np.float32), "w")] if op in weights else []
    own = {} if op in weights else {"kernel_shape": [kernel]}
    node = helper.make_node(op, ["x", "w"] if op in weights else ["x"], ["y"], **own, **attributes)
    values = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 1, extent]), ("y", None)))
    graph = helper.make_graph([node], "g", [next(values)], [next(values)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("op", "kernel", "attributes", "least"),
    [
        ("Conv", 1, {}, 1),
        ("Conv", 2, {"strides": [2]}, 2),
        ("Conv", 2, {"dilations": [3]}, 4),
        ("Conv", 3, {"strides": [2], "pads": [1, 0]}, 2),
        ("MaxPool", 2, {"strides": [2]}, 2),
        ("AveragePool", 5, {"strides": [3]}, 5),
        ("ConvTranspose", 3, {"pads": [1, 1]}, 1),
        ("ConvTranspose", 2, {"pads": [2, 1], "strides": [2]}, 2),
    ],
)
def test_of_run_time_size(op: str, kernel: int, attributes: dict[str, object], least: int) -> None:
    proto = sliding(op, kernel, "h", **attributes)
    model = compiled(proto, dynamic="symbolic")
    for extent in range(least):
        with pytest.raises(BadFeed, match="extent"):
            model.run(None, {"x": np.ones((1, 1, extent), np.float32)})
        with pytest.raises(InvalidModel):
            compiled(sliding(op, kernel, extent, **attributes))
    for extent in (least, least + 1, 9):
        x = np.arange(extent, dtype=np.float32).reshape(1, 1, extent)
        np.testing.assert_allclose(model.run(None, {"x": x})[0], run_onnxruntime(proto, {"x": x})[0], rtol=1e-5)

"""Small ONNX models, and ONNX Runtime's answers for them."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[np.generic]

OPSET = 21


def single_node(
    op: str,
    inputs: Mapping[str, Array],
    constants: Mapping[str, Array] | None = None,
    order: Sequence[str] | None = None,
    outputs: int = 1,
    opset: int = OPSET,
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one node called `n`, which reads all inputs and then all constants, or those in `order`."""
    constants = constants or {}
    names = order if order is not None else [*inputs, *constants]
    results = [f"y{position}" for position in range(outputs)]
    node = helper.make_node(op, names, results, name="n", **attributes)
    return model([node], inputs, results, constants, opset)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = OPSET,
) -> onnx.ModelProto:
    """A model with static shapes taken from `inputs`; the types of outputs are left to ONNX's inference."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    initializers = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", infos, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run_onnxruntime(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """All outputs, by the unoptimized graph."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))

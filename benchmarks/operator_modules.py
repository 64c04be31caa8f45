"""The models of operator_models.py as PyTorch modules: what PyTorch is timed on, and, in float64, the exact answers.

A module goes through the nodes of the model and calls the function of the same name, so both run the same thing.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import NodeProto, numpy_helper
from torch import Tensor, nn
from torch.nn import functional

Attributes = dict[str, Any]


def module_of(model: Path) -> nn.Module:
    """The module of a file."""
    return OnnxModule(onnx.load(model))


def exact(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs in float64, by name."""
    with torch.no_grad():
        result = OnnxModule(model).double()(*(torch.from_numpy(array).double() for array in feeds.values()))
    return {model.graph.output[0].name: result.numpy()}


class OnnxModule(nn.Module):
    """A model whose operators are all in FUNCTIONS, with one output. Raises KeyError for another operator."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self.inputs = [value.name for value in model.graph.input]
        self.steps = [(FUNCTIONS[n.op_type], list(n.input), n.output[0], _attributes(n)) for n in model.graph.node]
        self.shapes: dict[str, list[int]] = {}
        for tensor in model.graph.initializer:
            array = numpy_helper.to_array(tensor)
            if array.dtype == np.int64:  # a shape: known while compiling
                self.shapes[tensor.name] = array.tolist()
            else:
                self.register_buffer(tensor.name, torch.from_numpy(array.copy()))

    def forward(self, *inputs: Tensor) -> Tensor:
        values: dict[str, Any] = {
            **self.shapes,
            **dict(self.named_buffers()),
            **dict(zip(self.inputs, inputs, strict=True)),
        }
        result = inputs[0]
        for function, names, output, attributes in self.steps:
            result = values[output] = function(*(values[name] for name in names), **attributes)
        return result


def _attributes(node: NodeProto) -> Attributes:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def _convolution(
    x: Tensor, w: Tensor, strides: list[int], pads: list[int], group: int = 1, **more: list[int]
) -> Tensor:
    dims = x.ndim - 2
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[dims - 1]
    dilation = more.get("dilations", [1] * dims)
    return function(x, w, stride=strides, padding=pads[:dims], dilation=dilation, groups=group)


def _transposed(x: Tensor, w: Tensor, strides: list[int], pads: list[int]) -> Tensor:
    return functional.conv_transpose2d(x, w, stride=strides, padding=pads[:2])


def _batch_norm(x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return functional.batch_norm(x, mean, variance, scale, shift)


def _norm(x: Tensor, axes: list[int], keepdims: int) -> Tensor:
    return torch.linalg.vector_norm(x, dim=axes, keepdim=bool(keepdims))


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    "BatchNormalization": _batch_norm,
    "ReduceL2": _norm,
    "MatMul": torch.matmul,
    "Mul": torch.mul,
    "Relu": torch.relu,
    "Softmax": lambda x, axis: torch.softmax(x, axis),
    "Transpose": lambda x, perm: x.permute(perm),
    "Reshape": lambda x, shape: x.reshape(shape),
}

"""Networks written node by node, and pairs of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[np.float32]
OPSET, IR_VERSION = 21, 10


@dataclass(frozen=True, slots=True)
class Planted:
    """A pair of models that compute the same. `shown_by`: who shows it, or where it is found."""

    name: str
    shown_by: str
    given: onnx.ModelProto
    rewritten: onnx.ModelProto


def planted(name: str, shown_by: str, given: "Network", rewritten: "Network") -> Planted:
    """The pair of two networks."""
    return Planted(name, shown_by, given.model(), rewritten.model())


Maker = Callable[[], Planted]


def weights(seed: int, *shape: int) -> Array:
    """Normal numbers, scaled so that sums over all but the first dimension keep the scale of data."""
    scale = float(np.sqrt(max(1, np.prod(shape[1:]))))
    return (np.random.default_rng(seed).standard_normal(shape) / scale).astype(np.float32)


def matrix(seed: int, rows: int, columns: int) -> Array:
    """A matrix that is multiplied from the right."""
    return np.ascontiguousarray(weights(seed, columns, rows).T)


class Network:
    """A network in the making: each call adds a node, and gives the name of its result."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []

    def input(self, name: str, *shape: int, of: int = TensorProto.FLOAT) -> str:
        """An input, by default float32. `of`: ONNX's number of its type."""
        self._inputs.append(helper.make_tensor_value_info(name, of, shape))
        return name

    def constant(self, array: np.ndarray) -> str:
        """A weight, or a list of integers."""
        name = f"constant{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def __call__(self, operator: str, *operands: "str | np.ndarray", **attributes: object) -> str:
        """The result of an operator; arrays become constants."""
        return self.several(operator, 1, *operands, **attributes)[0]

    def several(self, operator: str, results: int, *operands: "str | np.ndarray", **attributes: object) -> list[str]:
        """The results of an operator."""
        inputs = [operand if isinstance(operand, str) else self.constant(operand) for operand in operands]
        names = [f"{operator.lower()}{len(self._nodes)}_{number}" for number in range(results)]
        self._nodes.append(helper.make_node(operator, inputs, names, f"node{len(self._nodes)}", **attributes))
        return names

    def returns(self, *names: str, of: int = TensorProto.FLOAT) -> "Network":
        """The network with these results, in this order, called y0, y1 ... `of`: ONNX's number of their type."""
        for number, name in enumerate(names):
            self._nodes.append(helper.make_node("Identity", [name], [f"y{number}"], f"result{number}"))
            self._outputs.append(helper.make_tensor_value_info(f"y{number}", of, None))
        return self

    def model(self) -> onnx.ModelProto:
        """The model, checked, with the shapes of its results."""
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        onnx.checker.check_model(inferred)
        return inferred

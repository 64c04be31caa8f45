"""Convolutions with a single tap run over one row of all positions; sums of one term are products."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import tilewright
from tilewright.kernels.schedules import is_reduction
from tilewright.model import CompiledModel
from tilewright.schedule.tree import all_blocks
from tilewright.target.target import Target

Floats = NDArray[np.float32]


def model_of(
    operator: str, inputs: dict[str, Floats], weight: Floats | None = None, **attributes: object
) -> ModelProto:
    """One node of ``operator`` on ``inputs``, and on a constant ``weight``."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()]
    constants = [] if weight is None else [numpy_helper.from_array(weight, "w")]
    node = helper.make_node(operator, [*inputs, *(constant.name for constant in constants)], ["y"], **attributes)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", given, [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


ONE_UNIT = replace(Target.host(), fma_per_cycle=1)
"""With two units, the costs of the ways of these small nodes are others."""


def checked(model: ModelProto, inputs: dict[str, Floats]) -> CompiledModel:
    """The compiled model, whose result is that of ONNX Runtime."""
    compiled = tilewright.compile(model, target=ONE_UNIT, threads=1)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, inputs)
    np.testing.assert_allclose(compiled.run(None, inputs)[0], expected, rtol=1e-5, atol=1e-5)
    return compiled


def random(*shape: int) -> Floats:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("shape", "groups"), [((2, 12, 10, 10, 10), 1), ((1, 24, 19, 18), 1), ((1, 48, 19, 18), 3)])
def test_rows_of_all_positions(shape: tuple[int, ...], groups: int) -> None:
    x, rank = random(*shape), len(shape) - 2
    weight = random(3, shape[1] // groups, *[1] * rank)
    compiled = checked(model_of("Conv", {"x": x}, weight, group=groups), {"x": x})
    assert "flat positions" in str(compiled.compiled.choices)


@pytest.mark.parametrize("attributes", [{"strides": [2, 2]}, {"pads": [0, 1, 0, 1]}])
def test_not_of_some_of_them(attributes: dict[str, list[int]]) -> None:
    x, weight = random(1, 24, 19, 18), random(3, 24, 1, 1)
    compiled = checked(model_of("Conv", {"x": x}, weight, **attributes), {"x": x})
    assert "flat positions" not in str(compiled.compiled.choices)


def test_a_sum_of_one_term_is_no_reduction() -> None:
    given = {"a": random(3, 20, 1), "b": random(3, 1, 30)}
    (kernel,) = checked(model_of("MatMul", given), given).compiled.kernels
    assert not any(map(is_reduction, all_blocks(kernel.schedule.program.body)))


def layers(*operators: str) -> ModelProto:
    """Convolutions of one tap, and elementwise operators, one after the other."""
    nodes, constants = list[NodeProto](), dict[str, Floats]()
    for at, operator in enumerate(operators):
        if operator == "Conv":
            constants[f"w{at}"] = random(32, 32, 1, 1)
        nodes.append(helper.make_node(operator, [f"v{at}", *[f"w{at}"] * (operator == "Conv")], [f"v{at + 1}"]))
    given = [helper.make_tensor_value_info("v0", TensorProto.FLOAT, (4, 32, 40, 40))]
    made = [helper.make_tensor_value_info(f"v{len(operators)}", TensorProto.FLOAT, None)]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", given, made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("operators", "expected"), [(["Conv"], 1), (["Conv", "Relu", "Conv", "Relu", "Conv", "Relu"], 0)]
)
def test_where_data_are_plain_anyway(operators: list[str], expected: int) -> None:
    """Blocks would be brought into rows again; between other convolutions they are not, and share their kernels."""
    x = random(4, 32, 40, 40)
    compiled = checked(layers(*operators), {"v0": x})
    choices = [state.way for state in compiled.compiled.choices.states.values() if state.way.cycles]
    assert sum(not way.is_blocked for way in choices) == expected

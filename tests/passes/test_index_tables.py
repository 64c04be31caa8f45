"""Constant positions become arithmetic where they have that form, and the results stay what they are."""

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.loops.visit import buffers
from tilewright.model import CompiledModel
from tilewright.passes.index_tables import index_table
from tilewright.symbolic.expr import Const, const

Places = NDArray[np.int64]


def values(table: Places) -> list[int]:
    """What the arithmetic for ``table`` gives in each place."""
    found = index_table(table)
    assert found is not None
    elements = [found.at([const(number) for number in place]) for place in np.ndindex(*table.shape)]
    return [int(element.value) for element in elements if isinstance(element, Const)]


@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("step", [1, 2, 3, 5])
@pytest.mark.parametrize("shift", [-3, -1, 0, 2])
def test_positions_that_are_divided_and_limited(divisor: int, step: int, shift: int) -> None:
    rows = np.arange(25)
    table = np.clip((rows * step + shift) // divisor, 0, 24 * step // divisor - 1).clip(0)
    assert values(table) == table.tolist()
    taps = np.clip(((rows * step + shift) // divisor)[:, None] + np.arange(4), 0, 24 * step // divisor)
    assert values(taps) == taps.ravel().tolist()


@pytest.mark.parametrize("table", [[3, 3, 3], [5, 4, 3, 2, 1, 0], [7, 2], [0, 1], [9, 6, 3, 0], [0, 0, 1]])
def test_constant_positions_and_steps_back(table: list[int]) -> None:
    assert values(np.array(table)) == table


@pytest.mark.parametrize("table", [[0, 1, 0, 1, 0, 1], [0, 3, 1, 2, 9], [-1, 0, 1], [1]])
def test_other_tables_stay(table: list[int]) -> None:
    assert index_table(np.array(table)) is None
    assert index_table(np.array([[table]])) is None


def gathered(places: Places) -> CompiledModel:
    """A model that takes the columns ``places``."""
    shapes = {"x": (4, 40), "y": (4, len(places))}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    node = helper.make_node("Gather", ["x", "places"], ["y"], axis=1)
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(places, "places")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return tilewright.compile(model, threads=1)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_kernel_computes_them(step: int) -> None:
    places = np.clip((np.arange(70) * step + 1) // 4, 0, 39)
    model, data = gathered(places), np.arange(160, dtype=np.float32).reshape(4, 40)
    (kernel,) = model.compiled.kernels
    assert not any(buffer.dtype.is_int for buffer in buffers(kernel.schedule.program.body))
    np.testing.assert_array_equal(model.run(None, {"x": data})[0], data[:, places])

"""What a call of a library would compute, in graphs; no library is needed."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.models import Array, model, single_node
from tilewright.compilation import prepare
from tilewright.frontend.opening import opened
from tilewright.offload.library.units import Kept, Unit, find_units
from tilewright.runtime.library.primitive import Function, Window

X = np.random.default_rng(0).normal(size=(2, 4, 6, 6)).astype(np.float32)
ROWS = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
FILTERS = np.random.default_rng(2).normal(size=(8, 4, 3, 3)).astype(np.float32)
PLAIN = Window((1, 1), (1, 1), (0, 0), (0, 0))
LOWEST = float(np.finfo(np.float32).min)


def found(proto: onnx.ModelProto) -> tuple[tuple[Unit, ...], tuple[Kept, ...]]:
    return find_units(prepare(opened(proto).load({}, {})))


def chain(*nodes: onnx.NodeProto, constants: Mapping[str, Array]) -> onnx.ModelProto:
    """Nodes, of which the first reads `x` (four dimensions) or `r` (two), and the last makes `y`."""
    inputs = {name: array for name, array in (("x", X), ("r", ROWS)) if any(name in node.input for node in nodes)}
    return model(nodes, inputs, ["y"], constants)


def node(kind: str, inputs: Sequence[str], result: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [result], name=kind.lower(), **attributes)


@pytest.mark.parametrize(
    ("attributes", "shape", "window"),
    [
        ({}, (8, 4, 3, 3), PLAIN),
        (
            {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "group": 2},
            (8, 2, 3, 3),
            Window((2, 1), (1, 2), (1, 0), (2, 1), 2),
        ),
    ],
)
def test_windows_are_those_of_convolutions(
    attributes: Mapping[str, object], shape: tuple[int, ...], window: Window
) -> None:
    (unit,), kept = found(single_node("Conv", {"x": X}, {"w": np.ones(shape, np.float32)}, **attributes))
    assert (unit.function, kept) == (Function(window), ())
    assert unit.function.result(unit.shapes[0], unit.weights.shape) == unit.shapes[1]


@pytest.mark.parametrize(
    ("after", "low", "high"),
    [
        (node("Relu", ["c"], "y"), 0.0, None),
        (node("Clip", ["c", "", "high"], "y"), LOWEST, 1.5),
        (node("Clip", ["c", "low", "high"], "y"), -0.5, 1.5),
        (node("Sigmoid", ["c"], "y"), None, None),
    ],
)
def test_limits_of_results(after: onnx.NodeProto, low: float | None, high: float | None) -> None:
    constants = {"w": FILTERS, "low": np.float32(-0.5), "high": np.float32(1.5)}
    (unit,), _ = found(chain(node("Conv", ["x", "w"], "c"), after, constants=constants))
    assert (unit.function.low, unit.function.high) == (low, high)
    assert unit.nodes[-1].op.name == ("Conv" if low is None else after.op_type)


@pytest.mark.parametrize("offset", [(5,), (1, 5), (1,)])
@pytest.mark.parametrize("inputs", [["p", "b"], ["b", "p"]])
def test_a_row_that_is_added_is_the_bias(offset: tuple[int, ...], inputs: Sequence[str]) -> None:
    constants = {"w": np.ones((4, 5), np.float32), "b": np.arange(np.prod(offset), dtype=np.float32).reshape(offset)}
    (unit,), _ = found(chain(node("MatMul", ["r", "w"], "p"), node("Add", inputs, "y"), constants=constants))
    assert unit.bias is not None
    assert np.array_equal(unit.bias, np.broadcast_to(constants["b"].ravel(), 5))


@pytest.mark.parametrize("addend", [np.ones((3, 1), np.float32), np.ones((3, 5), np.float32)])
def test_other_addends_are_not(addend: Array) -> None:
    constants = {"w": np.ones((4, 5), np.float32), "b": addend}
    (unit,), _ = found(chain(node("MatMul", ["r", "w"], "p"), node("Add", ["p", "b"], "y"), constants=constants))
    assert unit.bias is None
    assert len(unit.nodes) == 1


def test_what_others_read_ends_a_unit() -> None:
    nodes = [node("Conv", ["x", "w"], "c"), node("Relu", ["c"], "r0"), node("Mul", ["r0", "c"], "y")]
    (unit,), _ = found(chain(*nodes, constants={"w": FILTERS}))
    assert [each.op.name for each in unit.nodes] == ["Conv"]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("MatMul", ["r", "r2"], "y")], "its weights are no constants"),
        ([node("Gemm", ["r", "w"], "y", alpha=0.5)], "its operands or attributes are not those of a call"),
        ([node("Gemm", ["w", "r"], "y", transA=1, transB=1)], "its weights are no constants"),
        ([node("Gemm", ["r", "w", "columns"], "y")], "its operands or attributes are not those of a call"),
    ],
)
def test_why_one_is_no_unit(nodes: Sequence[onnx.NodeProto], reason: str) -> None:
    inputs = {"r": ROWS} | ({"r2": ROWS.T.copy()} if "r2" in nodes[0].input else {})
    constants = {"w": np.ones((4, 5), np.float32), "columns": np.ones((3, 1), np.float32)}
    units, kept = found(model(nodes, inputs, ["y"], constants))
    assert not units
    assert [each.reason for each in kept] == [reason]


def test_doubles_are_no_unit() -> None:
    units, kept = found(single_node("MatMul", {"x": ROWS.astype(np.float64)}, {"w": np.ones((4, 5))}))
    assert not units
    assert kept[0].reason == "it computes in f64"

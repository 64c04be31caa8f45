"""Coverage: all that is refused, and what is only a consequence."""

import numpy as np
import pytest
from onnx import helper

from tests.frontend.models import model, single_node
from tilewright.base.errors import InvalidModel
from tilewright.frontend.api import OperatorCount
from tilewright.frontend.onnx.read.coverage import coverage

X = np.zeros((3, 4), np.float32)


def fly(source: str, result: str, name: str = "") -> object:
    return helper.make_node("Fly", [source], [result], name=name, domain="my.ops")


def test_a_model_without_refusals() -> None:
    found = coverage(single_node("Relu", {"x": X}))
    assert found.places == ("node n (Relu)",)
    assert found.operators == (OperatorCount("Relu", 1, 0),)
    assert found.refusals == ()


def test_all_refusals_at_once() -> None:
    """The first and third make values of unknown type: their readers are not refused; the last node is, by itself."""
    nodes = [
        fly("x", "a"),
        helper.make_node("Relu", ["a"], ["b"]),
        fly("b", "c", "named"),
        helper.make_node("CumSum", ["x", "s"], ["y"]),
    ]
    made = model(nodes, {"x": X, "s": np.array(0)}, ["b", "c", "y"])
    found = coverage(made)
    assert [(r.node, r.operator, r.follows) for r in found.refusals] == [
        ("node 0 (Fly)", "my.ops.Fly", False),
        ("node named (Fly)", "my.ops.Fly", False),
        ("node 3 (CumSum)", "CumSum", False),
    ]
    assert "operator my.ops::Fly" in found.refusals[0].reason
    assert "must be a constant" in found.refusals[2].reason
    assert OperatorCount("my.ops.Fly", 2, 2) in found.operators
    assert OperatorCount("Relu", 1, 0) in found.operators


def test_what_follows_from_another_refusal() -> None:
    nodes = [
        helper.make_node("CumSum", ["x", "s"], ["wide"], name="cause"),
        helper.make_node("Shape", ["wide"], ["shape"], name="between"),
        helper.make_node("Expand", ["x", "shape"], ["y"], name="effect"),
    ]
    found = coverage(model(nodes, {"x": X, "s": np.array(0)}, ["y"]))
    assert (found.refusals[0].node, found.refusals[0].follows) == ("node cause (CumSum)", False)
    assert all(refusal.follows for refusal in found.refusals[1:])


def test_a_model_that_is_wrong_outside_of_its_nodes() -> None:
    made = single_node("Relu", {"x": X})
    del made.graph.output[:]
    with pytest.raises(InvalidModel, match="no outputs"):
        coverage(made)
    with pytest.raises(InvalidModel, match="shapes= names z"):
        coverage(single_node("Relu", {"x": X}), {"z": (1,)})


def test_the_model_is_left_as_it_is() -> None:
    made = model([fly("x", "y")], {"x": X}, ["y"])
    before = made.SerializeToString()
    assert len(coverage(made).refusals) == 1
    assert made.SerializeToString() == before

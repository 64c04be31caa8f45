"""Comparison with references: measures by hand, and a planted fault that is found where it is."""

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO

import numpy as np
import onnx
import pytest
from onnx import helper
from rich.console import Console

from tests.frontend.models import Array, model
from tests.insight.models import FEEDS, X, classifier, compiled
from tilewright.base.errors import BadInput
from tilewright.compilation import Compiled
from tilewright.frontend.onnx.onnxruntime import values_of
from tilewright.insight.compare import Comparison, ValueComparison, all_values, compare
from tilewright.insight.places import calls_of
from tilewright.insight.references import Reference, in_float64
from tilewright.measure.difference import difference

VALUES = ("g", "logits", "y")


def both(proto: onnx.ModelProto, feeds: dict[str, Array]) -> tuple[Compiled, dict[str, Array], Reference]:
    graph, made = compiled(proto)
    values = all_values(made, feeds)
    return made, values, in_float64(graph, feeds, map(made.name_in_model, values), {})


def test_measures() -> None:
    r = np.array([3.0, -4.0])
    found = difference(r + np.array([0.0, 1.0]), r)
    assert (found.euclidean, found.largest, found.worst) == (1 / 5, 1 / 4, 1 / 4)
    assert difference(r, r).worst == 0
    assert difference(r * 0, r * 0).worst == 0
    assert difference(r, r * 0).worst == float("inf")
    assert difference(r[:1], r).worst == float("inf")
    assert difference(np.zeros(0), np.zeros(0)).worst == 0
    special = np.array([np.nan, np.inf, 1.0])
    assert difference(special, special).worst == 0
    assert difference(special, np.array([np.nan, -np.inf, 1.0])).worst == float("inf")
    assert difference(special, np.ones(3)).worst == float("inf")


@pytest.mark.parametrize("against", ["float64", "onnxruntime"])
def test_every_value_agrees(against: str) -> None:
    made, values, reference = both(classifier(), FEEDS)
    assert tuple(values) == ("y", "g", "logits")
    if against == "onnxruntime":
        reference = Reference(values_of(classifier(), FEEDS, values))
    found = compare(made, made.executable.run(FEEDS), values, reference, against)
    assert found.agrees
    assert found.first is None
    assert tuple(row.value for row in found.values) == (*VALUES, "y")
    assert all(row.euclidean < 1e-5 for row in found.values)


def test_the_first_value_that_differs() -> None:
    made, values, reference = both(classifier(), FEEDS)
    changed = {**reference.values, "logits": reference.values["logits"] + 1}
    found = compare(made, made.executable.run(FEEDS), values, Reference(changed, ("a note",)), "float64")
    assert found.notes == ("a note",)
    first = found.first
    assert first is not None
    assert (first.value, first.kernel, first.nodes) == ("logits", made.kernels[1].program.name, ("node fc1 (Gemm)",))
    assert not found.agrees
    assert not found.to_json()["agrees"]


def test_values_that_are_stored_in_blocks() -> None:
    random = np.random.default_rng(3)
    x, w = (random.normal(size=shape).astype(np.float32) for shape in ((1, 3, 6, 6), (32, 3, 3, 3)))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Conv", ["r", "v"], ["d"], name="again"),
        helper.make_node("Flatten", ["d"], ["f"], name="flat"),
        helper.make_node("Softmax", ["f"], ["y"], name="soft"),
    ]
    v = random.normal(size=(32, 32, 3, 3)).astype(np.float32)
    made, values, reference = both(model(nodes, {"x": x}, ["d", "y"], {"w": w, "v": v}), {"x": x})
    found = compare(made, made.executable.run({"x": x}), values, reference, "float64")
    assert found.agrees
    assert found.notes == ()
    assert len(found.values) == sum(1 for _ in calls_of(made)) + 2
    assert made.layouts


def test_values_whose_names_look_like_copies() -> None:
    """A user may call a tensor as we call what is stored otherwise; then ours has another name."""
    random = np.random.default_rng(3)
    x, w = (random.normal(size=shape).astype(np.float32) for shape in ((1, 3, 6, 6), (32, 3, 3, 3)))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["d"], name="conv"),
        helper.make_node("Softmax", ["x"], ["d.blocked"], name="other", axis=1),
        helper.make_node("Softmax", ["d.blocked"], ["d.plain"], name="another", axis=2),
    ]
    names = ["d", "d.plain"]
    made, values, reference = both(model(nodes, {"x": x}, names, {"w": w}), {"x": x})
    assert {"d.blocked.flat", "d.blocked_1", "d.plain"} <= {value.name for value in made.layouts} | values.keys()
    found = compare(made, made.executable.run({"x": x}), values, reference, "float64")
    assert found.agrees
    assert found.notes == ()
    assert {row.value for row in found.values} == {"d", "d.blocked", "d.plain"}


def test_outputs_only() -> None:
    made, _, reference = both(classifier(), FEEDS)
    (row,) = compare(made, made.executable.run(FEEDS), {}, reference, "float64").values
    assert (row.value, row.kernel, row.agrees) == ("y", "", True)


def test_the_reference_is_float64() -> None:
    x = np.array([1.0, 2.0**-30], np.float32)
    graph, _ = compiled(model([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], {"x": x}, ["y"]))
    assert in_float64(graph, {"x": x}, ["y"], {}).values["y"] == 1.0 + 2.0**-30


def test_a_cast_to_a_float_type_is_no_rounding_and_one_to_an_integer_stays() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=onnx.TensorProto.FLOAT16),
        helper.make_node("Cast", ["x"], ["whole"], to=onnx.TensorProto.INT64),
    ]
    graph, _ = compiled(model(nodes, {"x": X}, ["half", "whole"]))
    found = in_float64(graph, FEEDS, ["half", "whole"], {}).values
    np.testing.assert_array_equal(found["half"], X.astype(np.float64))
    np.testing.assert_array_equal(found["whole"], X.astype(np.int64))


def test_a_model_that_onnxruntime_refuses() -> None:
    proto = classifier()
    proto.graph.node[3].op_type = "Fly"
    with pytest.raises(BadInput, match="onnxruntime does not run the model"):
        values_of(proto, FEEDS, [])


ROWS = (
    ValueComparison("h", "k0_gemm", ("node a",), 1e-7, 2e-7, True),
    ValueComparison("[bold]\x1b", "k1_softmax", ("node b", "node c"), float("inf"), float("inf"), False),
    ValueComparison("y", "", (), 0.5, 0.25, False),
)


def test_what_is_printed(golden: Callable[[str, str], None]) -> None:
    console = Console(width=120, record=True, file=StringIO())
    everything = Comparison("float64", 1e-4, ROWS, ("something was left out",))
    everything.show(console)
    replace(everything, values=ROWS[:1], notes=()).show(console)
    replace(everything, values=(ROWS[0], ROWS[2]), notes=()).show(console)
    replace(everything, values=ROWS[2:], notes=()).show(console)
    golden("insight/compare", console.export_text())


def test_json_has_no_infinity() -> None:
    report = json.loads(json.dumps(Comparison("float64", 1e-4, ROWS).to_json(), allow_nan=False))
    assert report["first"] == "[bold]\x1b"
    assert report["values"][1]["largest"] is None

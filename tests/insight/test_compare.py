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
from tilewright.insight.compare import Comparison, ValueComparison, compare, difference, exposed
from tilewright.insight.references import by_onnxruntime, in_float64

VALUES = ("g", "logits", "y")


def all_values(proto: onnx.ModelProto, feeds: dict[str, Array]) -> tuple[object, dict[str, Array], dict[str, Array]]:
    graph, made = compiled(proto)
    whole = exposed(made)
    names = [spec.name for spec in whole.manifest.outputs]
    values = dict(zip(names, whole.run(feeds), strict=True))
    return made, values, dict(in_float64(graph, feeds, names, {}).values)


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
    made, values, reference = all_values(classifier(), FEEDS)
    assert tuple(values) == ("y", "g", "logits")
    if against == "onnxruntime":
        reference = dict(by_onnxruntime(classifier(), FEEDS, values).values)
    found = compare(made, made.executable.run(FEEDS), values, reference, against)
    assert found.agrees
    assert found.first is None
    assert tuple(row.value for row in found.values) == (*VALUES, "y")
    assert all(row.euclidean < 1e-5 for row in found.values)


def test_the_first_value_that_differs() -> None:
    made, values, reference = all_values(classifier(), FEEDS)
    reference["logits"] = reference["logits"] + 1
    found = compare(made, made.executable.run(FEEDS), values, reference, "float64")
    first = found.first
    assert first is not None
    assert (first.value, first.kernel, first.nodes) == ("logits", made.kernels[1].program.name, ("node fc1 (Gemm)",))
    assert not found.agrees
    assert not found.to_json()["agrees"]


def test_outputs_only() -> None:
    made, _, reference = all_values(classifier(), FEEDS)
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
        by_onnxruntime(proto, FEEDS, [])


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

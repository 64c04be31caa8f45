"""Explanations: the fate of every node, and findings with a reason and a next step."""

import json
from collections.abc import Callable
from io import StringIO

import numpy as np
import onnx
from onnx import helper
from rich.console import Console

from tests.frontend.models import model, single_node
from tests.insight.models import classifier, compiled
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.insight.explain import Explanation, explain
from tilewright.target.target import Target


def explained(proto: onnx.ModelProto) -> Explanation:
    graph, made = compiled(proto)
    return explain(made, graph)


def test_the_fate_of_every_node() -> None:
    graph, made = compiled(classifier())
    found = explain(made, graph, ["node before (Constant)"])
    fates = {row.node: (row.fate, len(row.kernels)) for row in found.nodes}
    assert fates == {
        "node before (Constant)": ("folded", 0),
        "node folded (Neg)": ("folded", 0),
        "node dissolved (Identity)": ("dissolved", 0),
        "node unused (Exp)": ("unused", 0),
        "node fc0 (Gemm)": ("kernel", 1),
        "node act (Relu)": ("kernel", 1),
        "node fc1 (Gemm)": ("kernel", 1),
        "node soft (Softmax)": ("kernel", 1),
    }


def test_every_finding_has_a_reason_and_a_next_step() -> None:
    findings = explained(classifier()).findings
    assert {finding.kind for finding in findings} == {"not parallel", "untuned"}
    assert all(finding.subject and finding.reason and finding.next_step for finding in findings)


def test_large_work_is_parallel_and_one_element_is_no_vector() -> None:
    large = np.zeros((256, 256), np.float32)
    graph = importer.load(single_node("Exp", {"x": large}))
    for threads in (1, 2):
        (fact,) = explain(compile_graph(graph, Options(Target.host(), threads=threads)), graph).kernels
        assert (fact.vectorized, fact.threads, fact.calls, fact.operators) == (True, threads, 1, ("Exp",))
    small = compile_graph(importer.load(classifier()), Options(Target.host(), threads=2))
    assert {fact.threads for fact in explain(small, small.graph).kernels} == {1}
    one = explained(single_node("Exp", {"x": np.zeros((), np.float32)}))
    assert [f.reason for f in one.findings if f.kind == "not vectorized"] == ["its result has one element"]


def test_run_time_extents_and_bounds_checks() -> None:
    proto = single_node("Relu", {"x": np.zeros((2, 3), np.float32)})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    graph = importer.load(proto)
    made = compile_graph(graph, Options(Target.host(), threads=1, bounds={"n": 64}, checked=True))
    found = {finding.kind: finding for finding in explain(made, graph).findings}
    assert found["run-time extent"].subject == "n"
    assert "at most 64" in found["run-time extent"].reason
    assert "bounds checks" in found


def test_a_shared_kernel_is_one_fact_with_several_calls() -> None:
    x = np.zeros((4, 8), np.float32)
    nodes = [helper.make_node("Softmax", [a], [b], name=f"soft {b}") for a, b in (("x", "h"), ("h", "y"))]
    (fact,) = explained(model(nodes, {"x": x}, ["y"])).kernels
    assert (fact.calls, fact.nodes) == (2, ("node soft h (Softmax)", "node soft y (Softmax)"))


def test_what_is_printed(golden: Callable[[str, str], None]) -> None:
    graph = importer.load(classifier())
    made = compile_graph(graph, Options(Target.parse("x86_64,haswell"), threads=1))
    console = Console(width=120, record=True, file=StringIO())
    found = explain(made, graph)
    found.show(console)
    golden("insight/explain", console.export_text())
    assert json.loads(json.dumps(found.to_json()))["target"] == "x86_64,haswell"

"""ONNX's own node tests, imported and written again: the model that comes out is valid and does the same."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.backend.test.runner import Runner

from tests.frontend.models import run_onnxruntime
from tests.onnx_nodes import ledger
from tests.onnx_nodes.cases import Array, Case, all_cases, array_of
from tests.onnx_nodes.ledger import Status
from tilewright.base.errors import UnsupportedModel
from tilewright.frontend.onnx.read import importer
from tilewright.frontend.onnx.write import exporter
from tilewright.frontend.onnx.write.forms import OF_CODES, STAGED
from tilewright.graph import Graph, evaluate_graph, verify
from tilewright.passes.parts import is_cut

NAMES = [
    name
    for name, found in ledger.read(ledger.PATH.read_text()).items()
    if found.status is Status.PASS and "_expanded" not in name
]
"""What can be imported; the bodies of functions are made of operators that other tests have."""

UNSUPPORTED: Mapping[str, str] = {
    "bitshift": "does not take i",
    "celu_bfloat16": "does not take bf16",
    "celu_float16": "does not take f16",
    "cumprod": "is newer than",
    "einsum": "does not take bf16",
    "onehot_with_bfloat16": "does not take bf16",
    "reversesequence_bfloat16": "does not take bf16",
    "tensorscatter": "is newer than",
}
"""Tests that may be refused, by a part of their names, and the reason that is then given."""
ROUNDED = {"test_attention_4d_causal_fp16": 2.0**-9}
"""Relative tolerances of tests whose expected numbers were rounded to f16 at each step, in other places than ours: they
are 4.9e-4 from those of float64, ours 4.0e-4. Compiled, nothing is rounded between operators."""


def graph_of(case: Case) -> Graph:
    """Its parameters become constants if the model is refused, or is cut where they are read off data."""
    try:
        graph = importer.load(case.model, case.shapes)
    except UnsupportedModel:
        return importer.load(case.with_constants(), case.shapes)
    return importer.load(case.with_constants(), case.shapes) if is_cut(graph) else graph


@pytest.mark.share(8)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if at % 2 else name for at, name in enumerate(NAMES)]
)
def test_written_again(name: str) -> None:
    case = all_cases()[name]
    graph = graph_of(case)
    try:
        model = exporter.export(graph)
    except UnsupportedModel as error:
        if is_cut(graph):
            assert STAGED in str(error) or OF_CODES in str(error)
            return
        reasons = [reason for part, reason in UNSUPPORTED.items() if part in name]
        assert any(reason in str(error) for reason in reasons), error
        return
    onnx.checker.check_model(model, full_check=True)
    again = importer.load(model)
    verify(again)
    feeds = {value.name: array_of(case.inputs[value.name]) for value in again.inputs}
    wanted = [array_of(item) for item in case.outputs]
    rtol, atol = case.tolerance
    Runner.assert_similar_outputs(wanted, evaluate_graph(again, feeds), ROUNDED.get(name, rtol), atol)
    found = _by_onnxruntime(model, feeds)
    if found is None or not _agree(found, wanted, case):
        original = _by_onnxruntime(case.model, {name: array_of(item) for name, item in case.inputs.items()})
        assert (found is None) == (original is None)
        Runner.assert_similar_outputs(original or [], found or [], *case.tolerance)


def _by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Sequence[Array] | None:
    """Its results; None if it can't run the model."""
    onnxruntime.set_default_logger_severity(4)
    try:
        return run_onnxruntime(model, feeds)
    except Exception:  # noqa: BLE001  its own kinds of errors have no common base
        return None


def _agree(found: Sequence[Array], wanted: Sequence[Array], case: Case) -> bool:
    try:
        Runner.assert_similar_outputs(wanted, found, *case.tolerance)
    except AssertionError:
        return False
    return True


def test_what_may_be_refused_is() -> None:
    """No entry is left over, and each is refused for its own reason only."""
    for part in UNSUPPORTED:
        names = [name for name in NAMES if part in name]
        refused = 0
        for name in names:
            try:
                exporter.export(graph_of(all_cases()[name]))
            except UnsupportedModel:
                refused += 1
        assert refused, f"nothing of {part} is refused: remove it"
    assert np.array_equal(sorted(UNSUPPORTED), list(UNSUPPORTED))

"""Models that are written otherwise: random graphs, and ONNX's node tests, one of each operator and form."""

from collections.abc import Mapping, Sequence
from functools import cache
from random import Random

import numpy as np
import onnx
import pytest

import tilewright
from tests.metamorphic.changes import CHANGES, Change, all_changes
from tests.onnx_nodes import ledger
from tests.onnx_nodes.cases import Array, all_cases, array_of
from tests.onnx_nodes.ledger import Status
from tests.random_graphs.generator import generate
from tilewright.base.errors import UnsupportedModel

SEEDS = range(9)
"""Of random graphs of 3 to 15 nodes."""
FIRST = 50_000
"""The first of them: no other test has these."""
PARTS = 16
"""Of the node tests: which ones there are is known when onnx has made them, which takes seconds."""


def results(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Sequence[Array]:
    compiled = tilewright.compile(model, threads=1)
    return compiled.run(None, {spec.name: feeds[spec.name] for spec in compiled.inputs})


def assert_same_bits(found: Sequence[Array], wanted: Sequence[Array]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes(), np.flatnonzero(one.ravel() != other.ravel())


@cache
def as_written(seed: int) -> Sequence[Array] | None:
    """The results of a random graph; none if it can't be compiled."""
    case = generate(FIRST + seed)
    try:
        return results(case.model(), case.inputs)
    except UnsupportedModel:
        return None


@pytest.mark.share(6)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs(seed: int, change: Change) -> None:
    wanted = as_written(seed)
    if wanted is None:
        return
    case = generate(FIRST + seed)
    assert_same_bits(results(change(case.model(), Random(seed)), case.inputs), wanted)


@cache
def forms() -> Sequence[str]:
    """The names of node tests of tensors that pass: one for each set of operators, without the bodies of functions."""
    lines = ledger.read(ledger.PATH.read_text()).items()
    passing = [name for name, found in lines if found.status is Status.PASS and "_expanded" not in name]
    passing = [name for name in passing if _has_tensors_only(all_cases()[name].model.graph)]
    first = {frozenset(n.op_type for n in all_cases()[name].model.graph.node): name for name in reversed(passing)}
    return sorted(first.values())


def _has_tensors_only(graph: onnx.GraphProto) -> bool:
    return all(value.type.HasField("tensor_type") for value in (*graph.input, *graph.output))


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_nodes(part: int) -> None:
    """All changes at once."""
    for name in forms()[part::PARTS]:
        try:
            _check_node(name)
        except Exception as error:
            error.add_note(name)
            raise


def _check_node(name: str) -> None:
    case = all_cases()[name]
    feeds = {key: array_of(item) for key, item in case.inputs.items()}
    try:
        model, wanted = case.model, results(case.model, feeds)
    except UnsupportedModel:
        model, wanted = case.with_constants(), results(case.with_constants(), feeds)
    assert_same_bits(results(all_changes(_with_onnx(model), Random(name)), feeds), wanted)


def _with_onnx(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model that imports ONNX's own operators, which changes add."""
    if all(used.domain for used in model.opset_import):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        changed.opset_import.append(onnx.helper.make_opsetid("", 21))
        return changed
    return model


# The harness


def test_bits_are_compared() -> None:
    zero, nan = np.zeros(2, np.float32), np.full(2, np.nan, np.float32)
    assert_same_bits([nan], [nan.copy()])
    for other in (-zero, zero.astype(np.float64), zero[:1], nan):
        with pytest.raises(AssertionError):
            assert_same_bits([zero], [other])


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_change_is_one(change: Change) -> None:
    """Valid models come out, other ones than went in, which stay as they are."""
    changed = 0
    for seed in SEEDS[:5]:
        model = onnx.shape_inference.infer_shapes(generate(FIRST + seed).model())
        before = model.SerializeToString(deterministic=True)
        after = change(model, Random(seed))
        assert model.SerializeToString(deterministic=True) == before
        onnx.checker.check_model(after)
        changed += after.SerializeToString(deterministic=True) != before
    assert changed > 2 or (change.__name__ == "types_added" and changed)

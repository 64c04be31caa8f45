"""The table of operators: every model is valid, and computes what its definition says."""

from collections.abc import Callable
from itertools import product

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from benchmarks.operator_models import (
    BATCHES,
    CAPSULE,
    OPERATORS,
    OperatorCase,
    Parts,
    assemble,
    build_model,
    capsule,
    cases,
)

Array = NDArray[np.float32]


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> Array:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def test_the_table_has_ten_operators_and_two_subgraphs_in_four_shapes() -> None:
    assert len(OPERATORS) == 12
    assert all(len(shapes) == 4 for _, shapes in OPERATORS.values())
    names = [case.name for case in cases(list(OPERATORS), BATCHES)]
    assert len(set(names)) == 12 * 4 * 2
    assert names[:3] == ["C1D-1-b1", "C1D-1-b16", "C1D-2-b1"]


SMALLEST = [OperatorCase(operator, 3 if operator in ("C1D", "CAP", "TBS", "T2D") else 1, 1) for operator in OPERATORS]


@pytest.mark.parametrize("case", [c for c in SMALLEST if c.operator != "C3D"], ids=lambda case: case.name)
def test_models_are_valid_and_in_scale(case: OperatorCase) -> None:
    model, feeds = build_model(case)
    onnx.checker.check_model(model, full_check=True)
    again, feeds_again = build_model(case)
    assert model.SerializeToString() == again.SerializeToString(), "the same weights every time"
    assert all(np.array_equal(array, feeds_again[name]) for name, array in feeds.items())
    result = run(model, feeds)
    assert tuple(d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim) == result.shape
    if case.operator not in ("NRM", "TBS"):  # a single number; probabilities
        assert 0.5 < result.std() < 1.5


def test_capsules_are_what_their_definition_says() -> None:
    batch, height, width, inner, outer, kernel, stride, pad = 2, 5, 4, 3, 2, 3, 2, 1
    model, feeds = _tiny(lambda parts: capsule(parts, batch, height, width, inner, outer, kernel, stride, pad))
    x = np.pad(feeds["x0"], [(0, 0), (pad, pad), (pad, pad), (0, 0), (0, 0), (0, 0)]).astype(np.float64)
    weight = next(numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT)
    w = weight.reshape(CAPSULE, outer, CAPSULE, inner, kernel, kernel)  # j, co, k, ci, r, s
    rows, columns = ((size + 2 * pad - kernel) // stride + 1 for size in (height, width))
    expected = np.zeros((batch, rows, columns, CAPSULE, CAPSULE, outer))
    for r, s in product(range(kernel), repeat=2):
        window = x[:, r : r + stride * rows : stride, s : s + stride * columns : stride][:, :rows, :columns]
        expected += np.einsum("nhwikc,jokc->nhwijo", window, w[..., r, s])
    np.testing.assert_allclose(run(model, feeds), expected, atol=1e-5)


def _tiny(make: Callable[[Parts], str]) -> tuple[onnx.ModelProto, dict[str, Array]]:
    parts = Parts(np.random.default_rng(0))
    return assemble(parts, make(parts), "tiny")

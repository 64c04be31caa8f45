"""Places of extremes, the best k, running sums: against ONNX Runtime and ONNX's reference, with ties and NaN."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tilewright
from tests.frontend.models import run_onnxruntime, single_node
from tests.ops.nodes import NodeCase, check, run_reference
from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.frontend.onnx.read import importer
from tilewright.ops.sorting import PARALLEL_WORK
from tilewright.passes.normalize import normalize

Array = NDArray[np.generic]
random = np.random.default_rng(3)


def few(*shape: int, dtype: type = np.float32, low: int = -4) -> Array:
    """Few different values, so that there are ties."""
    return random.integers(low, 5, shape).astype(dtype)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


HARD = np.array([[1, np.nan, 3, np.nan], [-np.inf, -np.inf, -np.inf, -np.inf], [np.inf, 2, np.inf, -0.0]], np.float32)
EXTREMES = [
    *(
        NodeCase(op, [few(3, 5, 4, dtype=dtype, low=0)], {"axis": axis, "keepdims": keep, "select_last_index": last})
        for op in ("ArgMax", "ArgMin")
        for dtype, axis, keep, last in (
            (np.float32, 1, 1, 0),
            (np.float32, -1, 0, 1),
            (np.int32, 0, 0, 0),
            (np.uint8, 2, 1, 1),
            (np.float64, 1, 0, 1),
        )
    ),
    *(
        NodeCase(op, [data], {"axis": -1, "select_last_index": last}, oracle=run_reference)
        for op in ("ArgMax", "ArgMin")
        for last in (0, 1)
        for data in (HARD, few(2, 33, dtype=np.uint64, low=0), few(3, 70, dtype=np.float16), few(0, 3), few(1))
    ),
    NodeCase("ArgMax", [few(4, 100, 3)], opset=7),
    NodeCase("ArgMin", [few(40, 300)], {"axis": 1}, opset=11),
]
ACCUMULATIONS = [
    *(
        NodeCase("CumSum", [few(4, 5, 6, dtype=dtype)], {"exclusive": e, "reverse": r}, [np.array(axis)])
        for dtype, axis, e, r in (
            (np.float32, 0, 0, 0),
            (np.float32, 1, 1, 0),
            (np.int64, 2, 0, 1),
            (np.int32, -2, 1, 1),
            (np.float64, -1, 0, 0),
        )
    ),
    NodeCase("CumSum", [few(0)], {}, [np.array(0)]),
    NodeCase("CumSum", [few(3, 0, 2)], {"exclusive": 1}, [np.array(1, np.int32)], oracle=run_reference),
    NodeCase("CumSum", [few(200, dtype=np.float16)], {}, [np.array(0)], oracle=run_reference),
    *(
        NodeCase(
            "CumProd",
            [few(3, 4, 5, dtype=dtype)],
            {"exclusive": e, "reverse": r},
            [np.array(axis)],
            opset=26,
            oracle=run_reference,
        )
        for dtype, axis, e, r in ((np.float32, 0, 0, 0), (np.int32, -1, 1, 0), (np.float64, 1, 1, 1))
    ),
]
SELECTIONS = [
    *(
        NodeCase("TopK", [few(3, 40, 2, dtype=dtype)], {"axis": 1, "largest": largest}, [ints(k)], 2)
        for dtype in (np.float32, np.int64)
        for largest in (0, 1)
        for k in (1, 7, 33, 40)
    ),
    NodeCase("TopK", [few(3, 6)], {}, [ints(0)], 2, oracle=run_reference),
    NodeCase("TopK", [few(0, 6)], {}, [ints(2)], 2, oracle=run_reference),
    NodeCase("TopK", [few(5, 3)], {"axis": 0}, [ints(2)], 2, opset=10),
    NodeCase("TopK", [few(5, 3)], {"axis": -1, "k": 2}, [], 2, opset=9),
]


@pytest.mark.share(2)
@pytest.mark.parametrize("case", [*EXTREMES, *ACCUMULATIONS, *SELECTIONS], ids=str)
def test_against_an_oracle(case: NodeCase) -> None:
    check(case)


@pytest.mark.parametrize(("k", "largest"), [(5, 1), (100, 0)])
def test_rows_on_several_workers(k: int, largest: int) -> None:
    """As native code only: element by element, so much takes many seconds."""
    x = few(70, 300)
    assert x.size >= PARALLEL_WORK
    proto = single_node("TopK", {"x": x}, {"k": ints(k)}, outputs=2, largest=largest)
    for result, wanted in zip(
        tilewright.compile(proto).run(None, {"x": x}), run_onnxruntime(proto, {"x": x}), strict=True
    ):
        np.testing.assert_array_equal(result, wanted)


@st.composite
def selections(draw: st.DrawFn) -> tuple[Array, int, int, int]:
    """Data with ties, an axis, k and the direction."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shape = tuple(draw(st.integers(1, 50)) if p == axis % len(shape) else n for p, n in enumerate(shape))
    dtype = draw(st.sampled_from([np.float32, np.int32, np.int64]))
    data = np.random.default_rng(draw(st.integers(0, 9))).integers(-3, 4, shape).astype(dtype)
    return data, axis, draw(st.integers(1, shape[axis])), draw(st.integers(0, 1))


@given(selections())
@settings(max_examples=6, deadline=None)
def test_top_k_of_any_shape(drawn: tuple[Array, int, int, int]) -> None:
    data, axis, k, largest = drawn
    check(NodeCase("TopK", [data], {"axis": axis, "largest": largest}, [ints(k)], 2))


@pytest.mark.parametrize("k", [2, 40])
def test_nan_is_the_largest(k: int) -> None:
    data = np.array([[3, np.nan, np.inf, -np.inf, np.nan, *range(60)]], np.float32)
    proto = single_node("TopK", {"x": data}, {"k": ints(k)}, outputs=2)
    values, places = tilewright.compile(proto).run(None, {"x": data})
    np.testing.assert_array_equal(places[0, :2], [1, 4])
    np.testing.assert_array_equal(values, np.take_along_axis(data, places, 1))
    proto = single_node("TopK", {"x": data}, {"k": ints(65)}, outputs=2, largest=0)
    _, places = tilewright.compile(proto).run(None, {"x": data})
    np.testing.assert_array_equal(places[0, [0, -2, -1]], [3, 1, 4])


def test_run_time_extents() -> None:
    """All but the axis of TopK."""
    x = few(5, 6)
    for op, constants, outputs in (("TopK", {"k": ints(2)}, 2), ("CumSum", {"a": np.array(0)}, 1), ("ArgMax", {}, 1)):
        proto = single_node(op, {"x": x}, constants, outputs=outputs)
        model = tilewright.compile(_with_free_rows(proto), shapes={"x": ("n", 6)}, bounds={"n": 9})
        expected = run_reference(proto, {"x": x})
        for result, wanted in zip(model.run(None, {"x": x}), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)


def _with_free_rows(proto: "object") -> "object":
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"  # pyright: ignore
    return proto


def test_small_constants_are_folded() -> None:
    x = few(8, 6)
    graph = importer.load(single_node("TopK", {}, {"x": x, "k": ints(2)}, outputs=2))
    assert all(node.op.name != "TopK" for node in normalize(graph).nodes)


@pytest.mark.parametrize(
    ("op", "inputs", "constants", "error", "message"),
    [
        ("ArgMax", [few(0, 3)], [], InvalidModel, "ArgMax: dimension 0 of .* is empty"),
        ("TopK", [few(2, 3)], [ints(4)], InvalidModel, "k = 4 is out of range"),
        ("TopK", [few(2, 3)], [ints(1, 2)], InvalidModel, "K must be one number"),
        ("CumSum", [few(2, 3), ints(1)], [], UnsupportedModel, "must be a constant"),
        ("CumSum", [few(2, 3)], [np.array(2)], InvalidModel, "axis 2 is out of range"),
    ],
)
def test_refusals(
    op: str, inputs: Sequence[Array], constants: Sequence[Array], error: type[Exception], message: str
) -> None:
    feeds = {f"x{p}": array for p, array in enumerate(inputs)}
    proto = single_node(op, feeds, {f"c{p}": array for p, array in enumerate(constants)}, outputs=1 + (op == "TopK"))
    with pytest.raises(error, match=message):
        importer.load(proto)

"""Gathers, scatters and their relatives, by the evaluator and as native code: chosen cases, and shapes at random."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import tilewright
from tests.frontend.models import single_node
from tests.ops.nodes import Array, NodeCase, check, run_reference
from tests.profiles import examples
from tilewright.base.errors import InvalidModel
from tilewright.base.settings import Settings
from tilewright.frontend.onnx.read import importer

PROFILE = examples(10, by_night=80)
random = np.random.default_rng(9)
REDUCTIONS = ["none", "add", "mul", "max", "min"]
INT_MIN = -(2**63)


def counted(*shape: int, dtype: type = np.float32) -> NDArray[np.generic]:
    """Every element another number."""
    return np.arange(1, 1 + math.prod(shape)).reshape(shape).astype(dtype)


def indices(shape: tuple[int, ...], extent: int, dtype: type = np.int64) -> Array:
    return random.integers(-extent, extent, shape).astype(dtype)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


X = counted(4, 5, 6)
ROWS = np.array([[0, -1], [3, 4], [-4, 2]])

GATHERS = [
    *(NodeCase("GatherElements", [X, indices((4, 5, 6), X.shape[axis])], {"axis": axis}) for axis in (0, 1, -1)),
    NodeCase("GatherElements", [X, indices((2, 5, 9), 6, np.int32)], {"axis": 2}),
    NodeCase("GatherElements", [X, indices((3, 2, 6), 5)], {"axis": 1}, opset=11),
    NodeCase("GatherND", [X, ROWS]),
    NodeCase("GatherND", [X, ROWS[:, :1]]),
    NodeCase("GatherND", [X, indices((2, 3, 3), 4)]),
    NodeCase("GatherND", [X, indices((4, 2, 1), 5)], {"batch_dims": 1}),
    NodeCase("GatherND", [X, indices((4, 5, 1), 6)], {"batch_dims": 2}),
    NodeCase("GatherND", [X, indices((4, 2), 5)], {"batch_dims": 1}, opset=12),
    NodeCase("Gather", [X, indices((2, 3), 4)], opset=7),
    NodeCase("Compress", [X], {"axis": 1}, [np.array([True, False, True, True, False])]),
    NodeCase("Compress", [X], {}, [np.array([False, True, True])]),
    NodeCase("NonZero", [], {}, [np.array([[1, 0], [0, 5]])]),
    NodeCase("ReverseSequence", [X, ints(0, 4, 1, 3, 2)]),
    NodeCase("ReverseSequence", [X, ints(5, 1, 0, 2)], {"batch_axis": 0, "time_axis": 1}),
]


def one_hot(chosen: Array, depth: int, off: float, on: float, axis: int) -> Array:
    """ONNX: what is outside of ``-depth .. depth - 1`` is nowhere."""
    places = np.expand_dims(np.where(chosen < 0, chosen + depth, chosen), axis)
    line = np.arange(depth).reshape([depth if p == axis % places.ndim else 1 for p in range(places.ndim)])
    return np.where(places == line, np.float32(on), np.float32(off))


@pytest.mark.parametrize("axis", [0, 1, -1, -3])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32, np.uint8])
def test_one_hot(axis: int, dtype: type) -> None:
    chosen = np.array([[0, 4, 2], [5, 77, 3]]).astype(dtype)
    if dtype is not np.uint8:
        chosen -= np.array([[5, 0, 0], [0, 0, 9]]).astype(dtype)
    order, constants = ["x", "depth", "values"], {"depth": np.array([5])}
    values = np.array([2, 7], np.float32)
    proto = single_node("OneHot", {"x": chosen, "values": values}, constants, order, axis=axis)
    (result,) = tilewright.compile(proto).run(None, {"x": chosen, "values": values})
    np.testing.assert_array_equal(result, one_hot(chosen, 5, 2, 7, axis))


DUPLICATES = np.array([[1, 1, -2, 0, 1], [0, 3, 3, 3, -1], [2, -4, 0, 1, 1]])
SCATTERS = [
    *(
        NodeCase(
            "ScatterElements",
            [X, random.permuted(np.tile(np.arange(6), (3, 2, 1)), axis=2), counted(3, 2, 6)],
            {"axis": axis},
        )
        for axis in (2, -1)
    ),
    *(
        NodeCase(
            "ScatterElements",
            [counted(4, 5, dtype=dtype), DUPLICATES, 3 - counted(3, 5, dtype=dtype)],
            {"reduction": reduction},
            opset=18,
            oracle=run_reference,
        )
        for reduction in REDUCTIONS
        for dtype in (np.float32, np.int32, np.float16)
    ),
    NodeCase("ScatterElements", [counted(4, 5), DUPLICATES, counted(3, 5)], {"axis": 0}, opset=11),
    NodeCase("Scatter", [counted(4, 5), DUPLICATES, counted(3, 5)], opset=9),
    NodeCase("ScatterElements", [counted(4, 5), np.zeros((0, 5), np.int64), counted(0, 5)]),
    *(
        NodeCase(
            "ScatterND",
            [X, np.array([[1], [0], [1], [-1]]), 2 - counted(4, 5, 6)],
            {"reduction": reduction},
            opset=18,
            oracle=run_reference,
        )
        for reduction in REDUCTIONS
    ),
    NodeCase("ScatterND", [X, np.array([[1, 2, 3], [0, -1, -1]]), counted(2)]),
    NodeCase("ScatterND", [X, np.array([[[1, 2], [0, 4]], [[3, 3], [1, 1]]]), counted(2, 2, 6)], opset=11),
    NodeCase("ScatterND", [counted(3, 40), np.array([[2], [0]]), counted(2, 40)]),
    NodeCase("ScatterND", [counted(7), np.array([3]), np.array(9, np.float32)], oracle=run_reference),
    *(
        NodeCase(
            "TensorScatter",
            [counted(2, 1, 6, 3), -counted(2, 1, 2, 3), ints(4, 1)],
            {"mode": mode},
            opset=24,
            oracle=run_reference,
        )
        for mode in ("linear", "circular")
    ),
    NodeCase("TensorScatter", [counted(2, 6, 3), -counted(2, 3, 3)], {"axis": 1}, opset=24, oracle=run_reference),
    NodeCase(
        "TensorScatter",
        [counted(2, 6, 3), -counted(2, 3, 3), ints(5, 4)],
        {"axis": 1, "mode": "circular"},
        opset=24,
        oracle=run_reference,
    ),
]


@pytest.mark.parametrize("case", [*GATHERS, *SCATTERS], ids=str)
def test_node(case: NodeCase) -> None:
    check(case)


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


@given(shapes, st.integers(0, 2), st.integers(0, 6), st.sampled_from(REDUCTIONS), st.integers(0, 99))
@PROFILE
def test_elements_drawn_at_random(shape: tuple[int, ...], axis: int, length: int, reduction: str, seed: int) -> None:
    """A gather, and a scatter whose indices repeat: writes happen in order."""
    own, axis = np.random.default_rng(seed), axis % len(shape)
    chosen_shape = tuple(length if p == axis else int(own.integers(0, e + 1)) for p, e in enumerate(shape))
    chosen = own.integers(-shape[axis], shape[axis], chosen_shape)
    x, updates = counted(*shape, dtype=np.int32), own.integers(-9, 9, chosen_shape).astype(np.int32)
    places = list(np.ndindex(chosen_shape))
    targets = [(*p[:axis], int(chosen[p]), *p[axis + 1 :]) for p in places]
    gathered = np.array([x[t] for t in targets], np.int32).reshape(chosen_shape)
    check(NodeCase("GatherElements", [x, chosen], {"axis": axis}, oracle=lambda *_: [gathered]))
    scattered = x.copy()
    combine = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    with np.errstate(all="ignore"):
        for place, target in zip(places, targets, strict=True):
            scattered[target] = combine[reduction](scattered[target], updates[place])
    attributes = {"axis": axis, "reduction": reduction}
    check(NodeCase("ScatterElements", [x, chosen, updates], attributes, oracle=lambda *_: [scattered]))


@given(shapes, st.integers(1, 3), st.integers(0, 5), st.integers(0, 99))
@PROFILE
def test_slices_drawn_at_random(shape: tuple[int, ...], coordinates: int, rows: int, seed: int) -> None:
    own, coordinates = np.random.default_rng(seed), min(coordinates, len(shape))
    chosen = np.stack([own.integers(-e, e, rows) for e in shape[:coordinates]], axis=-1)
    x = counted(*shape)
    gathered = np.array([x[tuple(row)] for row in chosen], np.float32).reshape((rows, *shape[coordinates:]))
    check(NodeCase("GatherND", [x, chosen], oracle=lambda *_: [gathered]))
    updates = -counted(rows, *shape[coordinates:])
    scattered = x.copy()
    for row, update in zip(chosen, updates, strict=True):
        scattered[tuple(row)] = update
    check(NodeCase("ScatterND", [x, chosen, updates], oracle=lambda *_: [scattered]))


FAR = np.array([5, -6, 2**62, INT_MIN, -(2**62), 2**63 - 1])


@pytest.mark.parametrize("checked", [False, True])
def test_circular_writes_start_anywhere(checked: bool) -> None:
    past, update = counted(6, 4, 1), -counted(6, 2, 1)
    feeds: dict[str, Array] = {"x": past, "u": update, "i": FAR}
    proto = single_node("TensorScatter", feeds, opset=24, mode="circular")
    (circular,) = tilewright.compile(proto, settings=Settings(bounds_check=checked)).run(None, feeds)
    expected = past.copy()
    for b, start in enumerate(FAR):
        for step in range(2):
            expected[b, (int(start) + step) % 4] = update[b, step]
    np.testing.assert_array_equal(circular, expected)


BAD = [
    (NodeCase("Gather", [X], {}, [ints(4)]), "index 4 of dimension 0"),
    (NodeCase("GatherElements", [counted(3)], {}, [ints(-4)]), "index -4 of dimension 0"),
    (NodeCase("GatherND", [X], {}, [np.array([[0, 5]])]), "index 5 of"),
    (NodeCase("GatherND", [X, np.zeros((1, 4), np.int64)]), "must be up to 3 coordinates"),
    (NodeCase("GatherND", [X, ROWS], {"batch_dims": 1}), "do not share 1 batch dimensions"),
    (NodeCase("GatherElements", [X, np.zeros((4, 6, 6), np.int64)]), "exceed .* in dimension 1"),
    (NodeCase("ScatterElements", [X, np.zeros((4, 5), np.int64), X]), "need as many dimensions"),
    (NodeCase("ScatterElements", [counted(3), ints(0), counted(2)]), r"should be f32\[1\]"),
    (NodeCase("ScatterND", [X, ROWS, counted(2, 6)]), r"should be f32\[3, 6\]"),
    (NodeCase("ScatterND", [X, ROWS, counted(3, 6)], {"reduction": "sub"}), "the reduction is 'sub'"),
    (NodeCase("ReverseSequence", [X, ints(1, 2)]), "with a length each"),
    (NodeCase("Compress", [X], {"axis": 0}, [np.array([False] * 5 + [True])]), "index 5 of dimension 0"),
]


@pytest.mark.parametrize(("case", "message"), BAD, ids=str)
def test_what_breaks_the_rules_is_named(case: NodeCase, message: str) -> None:
    with pytest.raises(InvalidModel, match=rf"node n \({case.op}\).*{message}"):
        importer.load(case.model())

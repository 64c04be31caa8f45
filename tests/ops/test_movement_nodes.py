"""Operators that move or make elements, by the evaluator and as native code: chosen cases, and shapes at random."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.nodes import Array, NodeCase, check, run_reference
from tests.profiles import examples
from tilewright.base.dtypes import f32
from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.frontend.onnx.read import importer
from tilewright.ops import Attribute, find
from tilewright.symbolic.expr import Extent
from tilewright.tensor.build import placeholder
from tilewright.tensor.evaluate import evaluate

PROFILE = examples(12, by_night=100)


def counted(*shape: int, dtype: type = np.float32) -> NDArray[np.generic]:
    """Every element another number."""
    return np.arange(1, 1 + math.prod(shape)).reshape(shape).astype(dtype)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


X = counted(3, 4, 5)
HALF = np.array(0.5, np.float32)

PADS: list[NodeCase] = [
    *(
        NodeCase("Pad", [X], {"mode": mode}, [ints(*pads)], opset=21)
        for mode in ("constant", "reflect", "edge", "wrap")
        for pads in ((0, 1, 2, 0, 2, 1), (1, 0, 0, 2, 0, 0), (0, 0, 0, 0, 0, 0), (2, 3, 4, 2, 3, 4))
    ),
    *(
        NodeCase("Pad", [X], {"mode": "constant"}, [ints(*pads), HALF])
        for pads in ((0, -1, 2, 1, 0, -2), (-1, -2, -3, -1, 0, -1), (-3, 1, 1, 0, 1, 1))
    ),
    NodeCase("Pad", [X], {"mode": "edge"}, [ints(0, -1, 2, 1, 2, -2)]),
    NodeCase("Pad", [X], {}, [ints(1, 2, 0, 1), HALF, ints(-1, 0)]),
    NodeCase("Pad", [X], {"mode": "reflect"}, [ints(1, 2), None, ints(1)], opset=18),
    NodeCase("Pad", [X], {"pads": [0, 1, 2, 0, 2, 1], "value": 1.5}, opset=10),
    NodeCase("Pad", [X], {"pads": [0, 1, 2, 0, 2, 1], "mode": "edge"}, opset=7),
    NodeCase("Pad", [counted(1, 3)], {"mode": "reflect"}, [ints(0, 5, 0, 4)], oracle=run_reference),
    NodeCase("Pad", [counted(3, 2)], {"mode": "wrap"}, [ints(7, 0, 4, 5)], oracle=run_reference),
    NodeCase("Pad", [np.array([True, False])], {}, [ints(1, 1)]),
    NodeCase("Pad", [counted(2, 0)], {}, [ints(1, 1, 0, 2), HALF]),
]
SPLITS = [
    NodeCase("Split", [X], {"axis": 1}, [ints(1, 3)], 2),
    NodeCase("Split", [X], {"axis": -1}, [ints(2, 0, 3)], 3),
    NodeCase("Split", [X], {"axis": 2, "num_outputs": 3}, [], 3),
    NodeCase("Split", [X], {"axis": 2, "num_outputs": 2}, [], 2),
    NodeCase("Split", [X], {}, [], 3, opset=13),
    NodeCase("Split", [X], {"axis": 1, "split": [3, 1]}, [], 2, opset=11),
    NodeCase("Split", [X], {}, [], 3, opset=7),
]
OTHERS = [
    NodeCase("Tile", [X], {}, [ints(2, 1, 3)]),
    NodeCase("Tile", [X], {}, [ints(1, 0, 1)]),
    NodeCase("Tile", [counted(2, 3, dtype=np.int8)], {}, [ints(3, 2)], opset=7, oracle=run_reference),
    *(NodeCase("DepthToSpace", [counted(2, 12, 2, 3)], {"blocksize": 2, "mode": mode}) for mode in ("DCR", "CRD")),
    NodeCase("DepthToSpace", [counted(2, 9, 2, 3)], {"blocksize": 3}, opset=7),
    NodeCase("SpaceToDepth", [counted(2, 3, 4, 6)], {"blocksize": 2}),
    NodeCase("SpaceToDepth", [counted(2, 3, 4, 6)], {"blocksize": 2, "mode": "CRD"}, opset=28, oracle=run_reference),
    *(
        NodeCase("Trilu", [x, np.array(k, np.int64)], {"upper": upper})
        for upper in (0, 1)
        for x, k in ((X, 0), (X, -2), (counted(3, 3), 1), (counted(2, 3, 0), 7), (X, 2**62), (X, -(2**62)))
    ),
    NodeCase("Trilu", [counted(4, 3)]),
    *(NodeCase("EyeLike", [counted(3, 4)], {"k": k, "dtype": dtype}) for k in (0, 2, -1, 9) for dtype in (1, 7)),
    NodeCase("EyeLike", [counted(2, 2, dtype=np.int32)]),
    NodeCase("CenterCropPad", [X], {}, [ints(5, 3, 5)], oracle=run_reference),
    NodeCase("CenterCropPad", [X], {"axes": [-1, 0]}, [ints(2, 6)], oracle=run_reference),
    NodeCase("Dropout", [X], {}, [], 2),
    NodeCase("Dropout", [X], {}, [HALF, np.array(False)], 2),
    NodeCase("Dropout", [X], {"ratio": 0.3}, [], 1, opset=7),
    NodeCase("Dropout", [X], {"ratio": 0.3}, [], 2, opset=10, oracle=run_reference),
    NodeCase("Slice", [X], {"starts": [1, -3], "ends": [3, 99], "axes": [0, 2]}, opset=9),
    NodeCase("Slice", [X], {"starts": [1], "ends": [3]}, opset=7),
    NodeCase("Squeeze", [counted(1, 3, 1)], {"axes": [0]}, opset=11),
    NodeCase("Unsqueeze", [X], {"axes": [0, 2]}, opset=11),
    NodeCase("Size", [X]),
    NodeCase("ConstantOfShape", [], {}, [ints(2, 3)]),
    NodeCase("ConstantOfShape", [], {}, [ints()]),
    NodeCase("ConstantOfShape", [], {}, [ints(2, 0)]),
    *(
        NodeCase("Range", [], {}, [np.array(v, dtype) for v in values])
        for dtype in (np.float32, np.float64, np.int32, np.int64)
        for values in ((0, 7, 2), (5, -4, -3), (3, 3, 1), (2, 9, -1))
    ),
    NodeCase("Range", [], {}, [np.array(v, np.float32) for v in (0.1, 1.0, 0.3)]),
]


@pytest.mark.share(2)
@pytest.mark.parametrize("case", [*PADS, *SPLITS, *OTHERS], ids=str)
def test_node(case: NodeCase) -> None:
    check(case)


shapes = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(shapes, st.sampled_from(["constant", "reflect", "edge", "wrap"]), st.data())
@PROFILE
def test_pads_drawn_at_random(shape: list[int], mode: str, data: st.DataObject) -> None:
    """Also wider than the tensor."""
    pads = data.draw(st.lists(st.integers(0, 7), min_size=2 * len(shape), max_size=2 * len(shape)))
    check(NodeCase("Pad", [counted(*shape)], {"mode": mode}, [ints(*pads)], oracle=run_reference))


@given(shapes, st.data())
@PROFILE
def test_negative_pads_drawn_at_random(shape: list[int], data: st.DataObject) -> None:
    before = [data.draw(st.integers(-extent, 3)) for extent in shape]
    after = [data.draw(st.integers(-extent - min(b, 0), 3)) for extent, b in zip(shape, before, strict=True)]
    x = counted(*shape)
    crop = tuple(slice(max(-b, 0), e - max(-a, 0)) for b, a, e in zip(before, after, shape, strict=True))
    expected = np.pad(x[crop], [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)])
    check(NodeCase("Pad", [x], {}, [ints(*before, *after)], oracle=lambda *_: [expected]))


def places(extent: int, start: int, end: int, step: int) -> list[int]:
    """The elements of a slice, by the text of ONNX; Python has none where a slice backwards begins before the first."""
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    least, most = (0, extent) if step > 0 else (-1, extent - 1)
    begin, end = min(max(start, 0), most), min(max(end, least), most)
    return list(range(begin, end, step))


@given(shapes, st.data())
@PROFILE
def test_slices_drawn_at_random(shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    count = {"min_size": len(axes), "max_size": len(axes)}
    bound = st.integers(-8, 8) | st.sampled_from([2**31 - 1, 2**63 - 1, -(2**31), -(2**63)])
    starts, ends = (data.draw(st.lists(bound, **count)) for _ in range(2))
    steps = data.draw(st.lists(st.sampled_from([1, 2, 3, -1, -2]), **count))
    expected = counted(*shape)
    for axis, *cut in zip(axes, starts, ends, steps, strict=True):
        expected = expected.take(places(shape[axis], *cut), axis)
    constants = [ints(*starts), ints(*ends), ints(*axes), ints(*steps)]
    check(NodeCase("Slice", [counted(*shape)], {}, constants, oracle=lambda *_: [expected]))


@given(shapes, st.data())
@PROFILE
def test_slices_of_a_run_time_extent(shape: list[int], data: st.DataObject) -> None:
    """The extent of the result, as an expression, is what ONNX's rules give."""
    start, end = (data.draw(st.integers(-8, 8) | st.sampled_from([2**63 - 1, -(2**63)])) for _ in range(2))
    step = data.draw(st.sampled_from([1, 2, 3, -1, -2]))
    x, operator = counted(*shape), find("Slice")
    assert operator is not None
    source = placeholder((Extent("n"), *shape[1:]), f32, "x")
    attributes: dict[str, Attribute] = {"starts": (start,), "ends": (end,), "steps": (step,)}
    (result,) = evaluate(operator.apply([source], attributes), {source: x})
    np.testing.assert_array_equal(result, x.take(places(shape[0], start, end, step), 0))


@given(shapes, st.data())
@PROFILE
def test_tiles_splits_and_transposes_drawn_at_random(shape: list[int], data: st.DataObject) -> None:
    x = counted(*shape)
    repeats = [data.draw(st.integers(0, 3)) for _ in shape]
    check(NodeCase("Tile", [x], {}, [ints(*repeats)], oracle=lambda *_: [np.tile(x, repeats)]))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    cut = data.draw(st.integers(0, shape[axis]))
    parts = np.split(x, [cut], axis)
    check(NodeCase("Split", [x], {"axis": axis}, [ints(cut, shape[axis] - cut)], 2, oracle=lambda *_: parts))
    perm = data.draw(st.permutations(range(len(shape))))
    check(NodeCase("Transpose", [x], {"perm": perm}, oracle=lambda *_: [x.transpose(perm)]))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (NodeCase("Pad", [X], {"mode": "reflect"}, [ints(1, 0, 0, 0, 0)]), "are not two for each of the axes"),
        (NodeCase("Pad", [X], {}, [ints(0, -3, 0, 0, -2, 0)]), "takes 5 elements off axis 1"),
        (
            NodeCase("Pad", [counted(0, 2)], {"mode": "edge"}, [ints(1, 0, 0, 0)]),
            "repeats elements of axis 0, which has none",
        ),
        (NodeCase("Pad", [X], {"mode": "smear"}, [ints(*[0] * 6)]), "the mode is 'smear'"),
        (NodeCase("Split", [X], {"axis": 1}, [ints(1, 2)], 2), "do not make up extent 4"),
        (NodeCase("Split", [X], {}, [], 2, opset=13), "3 elements are no 2 equal parts"),
        (NodeCase("Split", [X], {"axis": 3}, [ints(1, 2)], 2), r"axes \(3,\) are not different axes of 3"),
        (NodeCase("Tile", [X], {}, [ints(1, 2)]), "are not one count for each dimension"),
        (NodeCase("DepthToSpace", [counted(1, 3, 2, 2)], {"blocksize": 2}), "3 channels .* are no multiple of 4"),
        (NodeCase("SpaceToDepth", [counted(1, 3, 2, 3)], {"blocksize": 2}), "do not make up extent 3"),
        (NodeCase("Range", [], {}, [np.array(v) for v in (0, 5, 0)]), "has no end"),
        (NodeCase("ConstantOfShape", [], {}, [ints(2, -1)]), "has a negative extent"),
        (NodeCase("CenterCropPad", [X], {"axes": [0]}, [ints(2, 2)]), "is not one extent for each"),
        (NodeCase("Trilu", [counted(3)]), "it needs matrices"),
    ],
)
def test_what_breaks_the_rules_is_named(case: NodeCase, message: str) -> None:
    with pytest.raises(InvalidModel, match=rf"node n \({case.op}\).*{message}"):
        importer.load(case.model())


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (NodeCase("Bernoulli", [X]), "gives random numbers"),
        (NodeCase("Dropout", [X], {}, [HALF, np.array(True)]), "Dropout in training mode is random"),
        (NodeCase("Unsqueeze", [X, ints(0)]), "`x1` must be a constant"),
    ],
)
def test_what_is_not_supported_is_named(case: NodeCase, message: str) -> None:
    with pytest.raises(UnsupportedModel, match=rf"node n \({case.op}\).*{message}"):
        importer.load(case.model())

"""Reductions, normalizations and the softmax family, against ONNX Runtime or ONNX's reference evaluator."""

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model, single_node
from tests.ops.nodes import NodeCase, check, run_reference
from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.frontend.onnx.read import importer

random = np.random.default_rng(6)


def f(*shape: int, low: float = -2.0) -> NDArray[np.float32]:
    return random.uniform(low, 2, shape).astype(np.float32)


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


BATCH = [f(3), f(3), f(3), f(3, low=0.1)]
NORMALIZATIONS = [
    NodeCase("BatchNormalization", [f(2, 3, 4, 5), *BATCH], {"epsilon": 1e-3}),
    NodeCase("BatchNormalization", [f(2, 3), *BATCH]),
    *(NodeCase("BatchNormalization", [f(2, 3, 4), *BATCH], {"momentum": 0.5}, opset=opset) for opset in (8, 9, 13)),
    NodeCase("BatchNormalization", [f(2, 3, 4), *BATCH], {"training_mode": 1, "momentum": 0.7}, outputs=3, opset=15),
    NodeCase("InstanceNormalization", [f(2, 3, 4, 5), f(3), f(3)], {"epsilon": 1e-3}),
    NodeCase("InstanceNormalization", [f(2, 3, 40), f(3), f(3)]),
    NodeCase("GroupNormalization", [f(2, 6, 4, 5), f(6), f(6)], {"num_groups": 2}, oracle=run_reference),
    NodeCase("GroupNormalization", [f(2, 6, 4), f(6), f(6)], {"num_groups": 6}, oracle=run_reference),
    NodeCase("LayerNormalization", [f(3, 4, 5), f(4, 5), f(5)], {"axis": 1}, outputs=3),
    NodeCase("LayerNormalization", [f(3, 4, 50), f(50)], outputs=2),
    NodeCase("RMSNormalization", [f(3, 4, 5), f(5)], {"epsilon": 1e-3}, opset=23, oracle=run_reference),
    NodeCase("RMSNormalization", [f(3, 4, 5), f(4, 1)], {"axis": 1}, opset=23, oracle=run_reference),
    *(NodeCase("LRN", [f(2, 7, 3, 4)], {"size": size, "alpha": 0.3, "bias": 1.5}) for size in (1, 3, 9)),
    # ONNX Runtime has odd sizes only; the reference evaluator does only as many channels as there are batches.
    NodeCase("LRN", [f(7, 7, 3, 4)], {"size": 4}, oracle=run_reference),
    *(NodeCase("LpNormalization", [f(3, 4, 5)], {"axis": axis, "p": p}) for axis in (1, -1) for p in (1, 2)),
    NodeCase("LpNormalization", [np.zeros((2, 3), np.float32)]),
    NodeCase("MeanVarianceNormalization", [f(2, 3, 4, 5)], tolerance=1e-4),
    NodeCase("MeanVarianceNormalization", [f(2, 3, 4)], {"axes": [0, 2]}, tolerance=1e-4),
]
SOFTMAXES = [
    NodeCase(op, [f(3, 4, 5)], {} if axis is None else {"axis": axis}, opset=opset)
    for op in ("Softmax", "LogSoftmax", "Hardmax")
    for axis, opset in ((None, 21), (0, 13), (1, 13), (None, 12), (0, 11), (2, 7), (-1, 11))
] + [
    NodeCase("Hardmax", [np.array([[1, 2, 2], [-np.inf, -np.inf, -np.inf]], np.float32)]),
    NodeCase("LogSoftmax", [f(3, 4) * 1000]),
]
REDUCTIONS = [
    *(
        NodeCase(op, [f(3, 4, 5, low=0.5)], {"keepdims": keep}, [ints(*axes)])
        for op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
        for axes, keep in (((1,), 0), ((0, -1), 1), ((), 0))
    ),
    *(NodeCase(op, [f(3, 4, low=0.5)], {"axes": [1]}, opset=11) for op in ("ReduceSum", "ReduceL1", "ReduceLogSumExp")),
    NodeCase("ReduceLogSumExp", [np.array([[np.inf, 1], [-np.inf, -np.inf], [900, 900]], np.float32)], {}, [ints(1)]),
    NodeCase("ReduceL1", [random.integers(-9, 9, (3, 4)).astype(np.int32)], {}, [ints(1)]),
    # The newest definitions of these take no integers, those of the model's opset do.
    *(NodeCase(op, [np.int64([[1, 2, 3], [7, 2, 9]])], {}, [ints(1)]) for op in ("ReduceLogSum", "ReduceLogSumExp")),
    *(NodeCase(op, [f(3, 4) > 0], {}, [ints(1)], opset=20) for op in ("ReduceMax", "ReduceMin")),
    *(
        NodeCase(op, [f(2, 0, 4)], {}, [ints(1)], opset=20, oracle=run_reference)
        for op in ("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")
    ),
]


@pytest.mark.share(2)
@pytest.mark.parametrize("case", [*NORMALIZATIONS, *SOFTMAXES, *REDUCTIONS], ids=str)
def test_against_the_oracle(case: NodeCase) -> None:
    check(case)


def test_large_means_do_not_cancel() -> None:
    """Elements near 1000 that differ by hundredths: the difference of means of squares would have no digit left."""
    x = (1000 + random.uniform(-0.01, 0.01, (1, 2, 600))).astype(np.float32)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-9)
    ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
    proto = single_node("InstanceNormalization", {"x": x}, {"s": ones, "b": zeros}, epsilon=1e-9)
    (result,) = tilewright.compile(proto).run(None, {"x": x})
    np.testing.assert_allclose(result, expected, atol=0.02)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "message"),
    [
        ("BatchNormalization", [(1, 2, 8), (3,), (2,), (2,), (2,)], {}, r"scale .* must have the shape \[2\]"),
        ("GroupNormalization", [(1, 5, 8), (5,), (5,)], {"num_groups": 2}, "can't"),
        ("GroupNormalization", [(1, 4, 8), (5,), (5,)], {"num_groups": 2}, r"the scale .* should have the shape \[4\]"),
        ("GroupNormalization", [(1, 4, 8), (4,), (4,)], {"num_groups": 0}, "num_groups be positive"),
        ("InstanceNormalization", [(4,), (4,), (4,)], {}, "must have the shape"),
        ("InstanceNormalization", [(2, 4, 3), (3,), (3,)], {}, "one for each channel"),
        ("LRN", [(1, 4, 8)], {"size": 0}, "size is 0"),
        ("LpNormalization", [(1, 4, 8)], {"p": 0}, "p is 0"),
        ("LpNormalization", [(1, 4, 8)], {"axis": 3}, "axis 3 is out of range"),
    ],
)
def test_what_does_not_fit(op: str, shapes: list[tuple[int, ...]], attributes: dict[str, object], message: str) -> None:
    inputs = {f"x{position}": f(*shape) for position, shape in enumerate(shapes)}
    with pytest.raises(InvalidModel, match=rf"node n \({op}\): .*{message}"):
        importer.load(single_node(op, inputs, **attributes))


def test_old_training_modes_are_refused() -> None:
    inputs = {f"x{position}": array for position, array in enumerate([f(2, 3, 4), *BATCH])}
    with pytest.raises(UnsupportedModel, match="need training_mode of opset 14"):
        importer.load(single_node("BatchNormalization", inputs, outputs=3, opset=9))


def test_statistics_that_are_read_where_the_result_is_not() -> None:
    x, scale = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    nodes = [helper.make_node("LayerNormalization", ["x", "s"], ["y", "m"]), helper.make_node("Exp", ["m"], ["z"])]
    for outputs in (["y", "z"], ["z"]):
        proto = model(nodes, {"x": x, "s": scale}, outputs)
        z = tilewright.compile(proto).run(None, {"x": x, "s": scale})[-1]
        np.testing.assert_allclose(z, np.exp(x.mean(axis=1, keepdims=True)), rtol=1e-6)


def test_statistics_of_many_elements_are_accurate() -> None:
    """As small squares are often added to a large sum, a single sum of all would lose many bits of each."""
    x = np.where(random.random((3, 16, 8, 48)) < 0.25, f(3, 16, 8, 48), 0.02).astype(np.float32)
    feeds = {"x": x, "s": f(16, 8, 48), "b": f(16, 8, 48)}
    proto = single_node("LayerNormalization", feeds, outputs=3, axis=1, epsilon=0.0)
    _, mean, inverse = tilewright.compile(proto).run(None, feeds)
    rows = x.astype(np.float64).reshape(3, -1)
    np.testing.assert_allclose(mean.reshape(3), rows.mean(1), rtol=1e-6, atol=2e-7)
    np.testing.assert_allclose(inverse.reshape(3), 1 / rows.std(1), rtol=1e-6)
    proto = single_node("MeanVarianceNormalization", {"x": x}, axes=[0, 1, 2, 3])
    (normal,) = tilewright.compile(proto).run(None, {"x": x})
    wide = x.astype(np.float64)
    np.testing.assert_allclose(normal, (wide - wide.mean()) / wide.std(), rtol=1e-6, atol=1e-6)

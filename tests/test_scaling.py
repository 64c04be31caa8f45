"""What a model takes to compile grows with its nodes, and no faster; deep and wide ones compile, and compute."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright
from benchmarks.scaling import FAMILIES, OPSET, Row, exponent, joined
from tilewright.base.settings import Stage
from tilewright.compilation import Compiled, Options, Services
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.target.target import Target

TARGET = Target.host()
ENOUGH = {"swish": 160}
"""Nodes that fill a kernel, if sketches are tried for a full one: that is a step, after which work grows evenly."""
SHARING = ("double", "swish", "newton", "last two")


def compiled(model: onnx.ModelProto, watch: Callable[[Stage, object], None] = lambda *_: None) -> Compiled:
    return compile_graph(importer.load(model), Options(TARGET, 1), Services(watch=watch))


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """How many Python functions are called."""
    calls = [0]

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        calls[0] += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def calls_for(family: str, count: int) -> int:
    model = FAMILIES[family](count)
    with counted_calls() as calls:
        compiled(model)
    return calls[0]


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("double", "last two", "swish") else name
        for name in FAMILIES
    ],
)
def test_work_grows_with_nodes(family: str) -> None:
    """Twice as many nodes take about twice as many calls: what grows with their square would take four times that."""
    calls_for(family, 8)  # what is loaded once
    count = ENOUGH.get(family, 80)
    assert calls_for(family, 2 * count) <= 2.5 * calls_for(family, count)


@pytest.mark.share(2)
@pytest.mark.parametrize("family", SHARING)
def test_programs_of_shared_values_grow_with_nodes(family: str) -> None:
    """Written out as a tree, 64 nodes would be far more than the atoms of this machine."""
    lengths = [sum(len(str(kernel)) for kernel in compiled(FAMILIES[family](count)).kernels) for count in (32, 64)]
    assert lengths[1] < 200_000
    assert lengths[1] <= 4 * lengths[0]


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("family", "count"),
    [("double", 100), ("swish", 60), ("newton", 40), ("last two", 60), ("views", 70), ("calls", 40), ("skips", 80)],
)
def test_chains_compute(family: str, count: int) -> None:
    check(FAMILIES[family](count), scale={"double": 1e-20, "newton": 0.1}.get(family, 0.5))


@pytest.mark.parametrize(("family", "count"), [("concat", 200), ("sum", 400), ("separate", 300), ("branches", 70)])
def test_many_operands_compute(family: str, count: int) -> None:
    check(FAMILIES[family](count))


@pytest.mark.share(2)
@pytest.mark.parametrize("family", SHARING)
def test_a_thousand_levels(family: str) -> None:
    compiled(FAMILIES[family]({"swish": 2000, "newton": 4000}.get(family, 1000)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "count"), [("chain", 200_000), ("concat", 20_000), ("sum", 20_000), ("separate", 10_000)]
)
def test_huge_models_compile(family: str, count: int) -> None:
    compiled(FAMILIES[family](count))


@pytest.mark.parametrize("kind", ["Max", "Min", "Sum"])
def test_many_operands_are_combined_from_left_to_right(kind: str) -> None:
    """So that the result is that of a single node, to the bit."""
    model = joined(150, kind, (1, 64))
    feeds = drawn(model)
    combine = {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}[kind]
    expected = np.zeros(0)
    for position, array in enumerate(feeds.values()):
        expected = array if position == 0 else combine(expected, array)
    np.testing.assert_array_equal(tilewright.compile(model).run(None, feeds)[0], expected)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_a_mean_of_many(dtype: int) -> None:
    names = [f"x{number}" for number in range(100)]
    inputs = [helper.make_tensor_value_info(name, dtype, (3, 5)) for name in names]
    output = helper.make_tensor_value_info("y", dtype, (3, 5))
    graph = helper.make_graph([helper.make_node("Mean", names, ["y"])], "mean", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    feeds = {name: np.random.default_rng(p).standard_normal((3, 5)).astype(kind) for p, name in enumerate(names)}
    expected = np.mean([array.astype(np.float64) for array in feeds.values()], axis=0)
    np.testing.assert_allclose(
        tilewright.compile(model).run(None, feeds)[0].astype(np.float64), expected, rtol=1e-3, atol=1e-4
    )


def test_shapes_that_are_put_into_each_other() -> None:
    """``s = s * (s // 3)``, 40 times: as an expression over the extent, that doubles with each step."""
    nodes = [helper.make_node("Shape", ["x"], ["s0"])]
    for number in range(40):
        nodes.append(helper.make_node("Div", [f"s{number}", "three"], [f"d{number}"]))
        nodes.append(helper.make_node("Mul", [f"s{number}", f"d{number}"], [f"s{number + 1}"]))
    nodes.append(helper.make_node("Cast", ["s40"], ["y"], to=TensorProto.FLOAT))
    graph = helper.make_graph(
        nodes,
        "shapes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        [helper.make_tensor("three", TensorProto.INT64, [1], [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    size, expected = 4, np.int64(4)
    for _ in range(40):
        expected = expected * (expected // 3)
    result = tilewright.compile(model).run(None, {"x": np.zeros(size, np.float32)})[0]
    np.testing.assert_array_equal(result, [np.float32(expected)])


def test_the_exponent_of_a_fit() -> None:
    rows = [Row(count, {"a": 1e-3 * count, "b": 1e-6 * count**2}) for count in (1000, 2000, 4000)]
    assert exponent(rows, "a") == pytest.approx(1.0)
    assert exponent(rows, "b") == pytest.approx(2.0)
    assert exponent(rows, "c") is None


def check(model: onnx.ModelProto, scale: float = 0.5) -> None:
    """The results are those of ONNX's reference. Small positive numbers have a root that Newton's steps come to."""
    feeds = {name: np.abs(array) for name, array in drawn(model, scale).items()}
    results = tilewright.compile(model).run(None, feeds)
    for result, expected in zip(results, ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-6 * scale)


def drawn(model: onnx.ModelProto, scale: float = 0.5) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    return {name: (scale * random.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}

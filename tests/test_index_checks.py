"""Indices that are data: wherever one is out of range, the run says which, and memory is safe whatever they are."""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.frontend.models import run_onnxruntime, single_node
from tilewright.base.errors import BadInput, IndexOutOfRange
from tilewright.base.settings import Settings
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph

Array = NDArray[np.generic]
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def f(*shape: int) -> NDArray[np.float32]:
    """Every element another number."""
    return np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape)


def ints(*values: int, dtype: type = np.int64) -> Array:
    return np.array(values, dtype)


@dataclass(frozen=True)
class Case:
    """A node whose input ``position`` holds indices, each of -least .. extent - 1."""

    op: str
    inputs: Mapping[str, Array]
    position: int
    extent: int
    least: int = 0
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])
    constants: Mapping[str, Array] = field(default_factory=dict[str, Array])
    order: tuple[str, ...] | None = None
    opset: int = 21
    outputs: int = 1
    free: tuple[int, ...] = ()
    """Extents that may be known at run time only."""

    def __str__(self) -> str:
        return self.op

    def model(self, is_free: bool = False) -> onnx.ModelProto:
        """A model of the node, called `n`; with ``is_free``, some extents are known at run time only."""
        order = None if self.order is None else list(self.order)
        feeds, constants = dict(self.inputs), dict(self.constants)
        proto = single_node(self.op, feeds, constants, order, self.outputs, self.opset, **self.attributes)
        dims = [dim for info in proto.graph.input for dim in info.type.tensor_type.shape.dim]
        for dim in dims if is_free else ():
            if dim.dim_value in self.free:
                dim.dim_param = f"d{dim.dim_value}"
        return proto

    def with_index(self, value: int, at: int = -1) -> dict[str, Array]:
        """The inputs with another index at one place."""
        name = list(self.inputs)[self.position]
        changed = self.inputs[name].copy()
        changed.reshape(-1)[at] = value
        return {**self.inputs, name: changed}


X = f(4, 5, 6)
WEIGHTS = {"W": np.full((1, 12, 4), 0.1, np.float32), "R": np.full((1, 12, 3), 0.1, np.float32)}
GRU_WEIGHTS = {"W": np.full((1, 9, 4), 0.1, np.float32), "R": np.full((1, 9, 3), 0.1, np.float32)}
RNN_WEIGHTS = {"W": np.full((1, 3, 4), 0.1, np.float32), "R": np.full((1, 3, 3), 0.1, np.float32)}
LENGTHS = {"X": f(5, 3, 4) / 60, "lengths": ints(5, 2, 3, dtype=np.int32)}
RECURRENT = ("X", "W", "R", "", "lengths")

CASES = [
    Case("Gather", {"x": X, "i": ints(0, 3, -4)}, 1, 4, 4, free=(3, 4, 5)),
    Case("Gather", {"x": X, "i": ints(0, 4, -5, dtype=np.int32).reshape(3, 1)}, 1, 5, 5, {"axis": 1}),
    Case("GatherElements", {"x": X, "i": np.zeros((4, 5, 7), np.int64)}, 1, 6, 6, {"axis": 2}, free=(6, 7)),
    Case("GatherElements", {"x": f(3, 40), "i": np.zeros((3, 40), np.int32)}, 1, 3, 3, free=(3, 40)),
    Case("GatherND", {"x": X, "i": ints(0, 1, 3, -5).reshape(2, 2)}, 1, 5, 5, free=(4, 5, 6)),
    Case("Scatter", {"x": X, "i": np.zeros((1, 5, 6), np.int64), "u": f(1, 5, 6)}, 1, 4, 4, opset=10),
    Case(
        "ScatterElements",
        {"x": f(3, 40), "i": np.zeros((3, 2), np.int64), "u": f(3, 2)},
        1,
        40,
        40,
        {"axis": 1},
        free=(40,),
    ),
    Case("ScatterND", {"x": X, "i": ints(0, -4, 1).reshape(3, 1), "u": f(3, 5, 6)}, 1, 4, 4, free=(3, 4, 5)),
    Case("TensorScatter", {"x": f(2, 6, 3), "u": f(2, 2, 3), "i": ints(4, 0)}, 2, 5, 0, {"axis": 1}, opset=24),
    Case(
        "MaxUnpool", {"x": f(1, 1, 4), "i": np.array([[[0, 3, 4, 7]]])}, 1, 8, 0, {"kernel_shape": [2], "strides": [2]}
    ),
    Case("LSTM", LENGTHS, 1, 6, 0, {"hidden_size": 3}, WEIGHTS, RECURRENT, free=(3, 5)),
    Case("GRU", LENGTHS, 1, 6, 0, {"hidden_size": 3, "direction": "reverse"}, GRU_WEIGHTS, RECURRENT, free=(3, 5)),
    Case("RNN", LENGTHS, 1, 6, 0, {"hidden_size": 3}, RNN_WEIGHTS, RECURRENT),
    Case("ReverseSequence", {"x": X, "i": ints(0, 4, 1, 3, 2)}, 1, 5, free=(4, 5)),
    Case(
        "RoiAlign",
        {"x": f(2, 3, 6, 6), "r": np.array([[0, 0, 3, 3], [1, 1, 4, 5]], np.float32), "i": ints(0, 1)},
        2,
        2,
        0,
        {"output_height": 2, "output_width": 2, "sampling_ratio": 2},
    ),
    Case("NegativeLogLikelihoodLoss", {"x": f(3, 5), "t": ints(0, 4, 2)}, 1, 5),
    Case("NegativeLogLikelihoodLoss", {"x": f(3, 5), "t": ints(0, 4, 2), "w": f(5)}, 1, 5),
    Case("SoftmaxCrossEntropyLoss", {"x": f(3, 5), "t": ints(0, 4, 2)}, 1, 5),
]


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("case", "is_free"), [(case, is_free) for case in CASES for is_free in (False, True) if case.free or not is_free]
)
def test_an_index_out_of_range_names_node_index_and_extent(case: Case, is_free: bool) -> None:
    model = tilewright.compile(case.model(is_free), threads=2)
    good = model.run(None, case.inputs)
    for wrong in (case.extent, INT_MAX, -case.least - 1, INT_MIN):
        narrow = np.iinfo(list(case.inputs.values())[case.position].dtype)
        index = max(min(wrong, int(narrow.max)), int(narrow.min))
        with pytest.raises(IndexOutOfRange, match=r"node n\b") as caught:
            model.run(None, case.with_index(index))
        assert (caught.value.index, caught.value.extent) == (index, case.extent)
        for again, before in zip(model.run(None, case.inputs), good, strict=True):
            np.testing.assert_array_equal(again, before)
    assert isinstance(caught.value, BadInput)


@pytest.mark.share(3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_that_is_in_range_is_computed(case: Case) -> None:
    """At both ends of the range; against ONNX Runtime, where it has the operator, and the evaluator of te programs."""
    for edge in (case.extent - 1, -case.least):
        feeds = case.with_index(edge)
        results = tilewright.compile(case.model()).run(None, feeds)
        oracle = evaluate_graph(importer.load(case.model()), feeds)
        if case.op != "TensorScatter":
            oracle = run_onnxruntime(case.model(), feeds)
        for result, wanted in zip(results, oracle, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.share(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_checks_the_nearest_is_taken(case: Case) -> None:
    """What is out of range is as its nearest neighbour within; and the mode that checks all accesses finds no fault."""
    for settings in (Settings(), Settings(bounds_check=True)):
        model = tilewright.compile(case.model(), checks="off", settings=settings)
        assert model.checks.value == "off"
        for far, near in ((10**9, case.extent - 1), (-(10**9), 0)):
            wanted = model.run(None, case.with_index(near))
            for result, expected in zip(model.run(None, case.with_index(far)), wanted, strict=True):
                np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_evaluator_refuses_as_well(case: Case) -> None:
    graph = importer.load(case.model())
    with pytest.raises(IndexOutOfRange, match="out of range"):
        evaluate_graph(graph, case.with_index(case.extent))


def test_one_hot_of_what_is_out_of_range_is_off() -> None:
    """ONNX says so: it is no fault."""
    depth, values = np.array(3), f(2)
    proto = single_node("OneHot", {"i": ints(7, -9, 1)}, {"depth": depth, "values": values}, ["i", "depth", "values"])
    (result,) = tilewright.compile(proto).run(None, {"i": ints(7, -9, 1)})
    np.testing.assert_array_equal(result, [[1, 1, 1], [1, 1, 1], [1, 2, 1]])


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_a_label_that_is_ignored_may_be_anything(op: str) -> None:
    feeds: dict[str, Array] = {"x": f(3, 5) / 9, "t": ints(0, -100, 2)}
    proto = single_node(op, feeds, ignore_index=-100)
    (result,) = tilewright.compile(proto).run(None, feeds)
    np.testing.assert_allclose(result, run_onnxruntime(proto, feeds)[0], rtol=1e-5)
    with pytest.raises(IndexOutOfRange, match="index -99"):
        tilewright.compile(proto).run(None, {**feeds, "t": ints(0, -99, 2)})


def gathers(rows: int, count: int = 2) -> onnx.ModelProto:
    """The sum of rows of ``count`` tables, each called as its node: they share a kernel."""
    tables = [numpy_helper.from_array(f(rows + t, 8), f"t{t}") for t in range(count)]
    nodes = [helper.make_node("Gather", [f"t{t}", f"i{t}"], [f"g{t}"], name=f"lookup {t}") for t in range(count)]
    nodes.append(helper.make_node("Sum", [f"g{t}" for t in range(count)], ["y"]))
    inputs = [helper.make_tensor_value_info(f"i{t}", TensorProto.INT64, ["n"]) for t in range(count)]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])
    graph = helper.make_graph(nodes, "g", inputs, [output], tables)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_of_several_nodes_in_one_kernel_the_right_one_is_named() -> None:
    model = tilewright.compile(gathers(5, 3))
    assert len(model.executable.manifest.calls) == 1
    for wrong in range(3):
        feeds = {f"i{t}": ints(*([99] if t == wrong else [1])) for t in range(3)}
        with pytest.raises(IndexOutOfRange, match=rf"lookup {wrong}\b.*index 99"):
            model.run(None, feeds)


def test_equal_kernels_name_the_node_that_called_them() -> None:
    """They are compiled once."""
    x, tables = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8]), []
    nodes, names = [], ["x"]
    for step in range(3):
        nodes.append(helper.make_node("Gather", [names[-1], f"i{step}"], [f"g{step}"], name=f"step {step}"))
        names.append(f"g{step}")
    ids = [helper.make_tensor_value_info(f"i{step}", TensorProto.INT64, [4]) for step in range(3)]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in names[1:]]
    graph = helper.make_graph(nodes, "g", [x, *ids], outputs, tables)
    model = tilewright.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert len(set(model.executable.manifest.calls)) == 1
    for wrong in range(3):
        feeds: dict[str, Array] = {f"i{step}": ints(0, 1, 2, 4 if step == wrong else 3) for step in range(3)}
        with pytest.raises(IndexOutOfRange, match=rf"step {wrong}\b.*index 4 "):
            model.run(None, {"x": f(4, 8), **feeds})


def test_constant_indices_cost_nothing() -> None:
    proto = single_node("Gather", {"x": f(5, 3)}, {"i": ints(0, -1, 4)}, ["x", "i"])
    model = tilewright.compile(proto)
    assert model.executable.manifest.sites == ()
    np.testing.assert_array_equal(model.run(None, {"x": f(5, 3)})[0], f(5, 3)[[0, -1, 4]])


def test_nothing_is_read_of_a_tensor_without_elements() -> None:
    """There is no index that is in range, and no element to go on with; nor is there one to take without checks."""
    proto = single_node("Gather", {"x": f(5, 3), "i": ints(0, 1)})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    feeds: dict[str, Array] = {"x": np.empty((0, 3), np.float32), "i": ints(0, 1)}
    with pytest.raises(IndexOutOfRange, match="valid is nothing, as the extent is 0"):
        tilewright.compile(proto).run(None, feeds)
    np.testing.assert_array_equal(tilewright.compile(proto, checks="off").run(None, feeds)[0], np.zeros((2, 3)))


def test_the_choice_is_part_of_what_is_saved_and_of_the_key(tmp_path: object) -> None:
    proto = gathers(5, 1)
    path = f"{tmp_path}/m.tw"
    for checks in ("on", "off"):
        tilewright.compile(proto, checks=checks).save(path)
        loaded = tilewright.load(path)
        assert loaded.checks.value == checks
        if checks == "on":
            with pytest.raises(IndexOutOfRange, match=r"lookup 0\b"):
                loaded.run(None, {"i0": ints(7)})
        else:
            np.testing.assert_array_equal(loaded.run(None, {"i0": ints(7)})[0], f(5, 8)[4:])
    assert tilewright.compile(proto, checks="off").explain().checks == "off"
    with pytest.raises(BadInput, match="checks='no': choose one of on, off"):
        tilewright.compile(proto, checks="no")


@pytest.mark.parametrize("checks", ["on", "off"])
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op in ("Gather", "GatherElements", "ScatterElements", "ScatterND")]
)
def test_indices_that_another_thread_changes_are_read_once(case: Case, checks: str) -> None:
    """Whatever is in memory at which moment, no access is out of bounds: that would end the process."""
    large = replace(case, inputs={name: np.concatenate([array] * 50) for name, array in case.inputs.items()})
    if case.op in ("Gather", "GatherND", "ScatterND"):
        large = replace(large, inputs={**large.inputs, "x": case.inputs["x"]})
    model = tilewright.compile(large.model(), checks=checks, threads=1)
    feeds = {name: array.copy() for name, array in large.inputs.items()}
    indices, stop = feeds["i"], threading.Event()

    def change() -> None:
        while not stop.is_set():
            indices.fill(2**40 if indices.dtype == np.int64 else 2**31 - 1)
            indices.fill(0)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for _ in range(100):
            try:
                model.run(None, feeds)
            except IndexOutOfRange:
                assert checks == "on"
    finally:
        stop.set()
        changing.join()

"""Functions, of the model and of ONNX's definitions, and branches: imported in the place of what calls them."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontend.models import model, run_onnxruntime, single_node
from tilewright.base.errors import InvalidModel, ResourceLimit, UnsupportedModel
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph, verify
from tilewright.graph.control import Branch

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
OWN = [helper.make_opsetid("", 21)]


def function(name: str, nodes: Sequence[onnx.NodeProto], **given: object) -> onnx.FunctionProto:
    """A function of the domain `mine` from x to y."""
    return helper.make_function("mine", name, ["x"], ["y"], nodes, OWN, **given)


def calling(
    functions: Sequence[onnx.FunctionProto], nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",)
) -> onnx.ModelProto:
    proto = model(nodes, {"x": X}, outputs)
    proto.functions.extend(functions)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    return proto


def call(name: str, x: str = "x", y: str = "y", **attributes: object) -> onnx.NodeProto:
    return helper.make_node(name, [x], [y], name=f"call_{name}_{y}", domain="mine", **attributes)


def check(proto: onnx.ModelProto) -> None:
    graph = importer.load(proto)
    verify(graph)
    for ours, theirs in zip(evaluate_graph(graph, {"x": X}), run_onnxruntime(proto, {"x": X}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_function_of_the_model_twice_and_nested() -> None:
    square = function("Square", [helper.make_node("Mul", ["x", "x"], ["y"])])
    twice = function("Twice", [call("Square", "x", "z"), helper.make_node("Add", ["z", "x"], ["y"])])
    twice.opset_import.append(helper.make_opsetid("mine", 1))
    check(calling([twice, square], [call("Twice", "x", "z"), call("Twice", "z", "y")]))


def test_attributes_of_the_call_and_their_defaults() -> None:
    scale = helper.make_node("Constant", [], ["c"])
    scale.attribute.add(name="value_float", ref_attr_name="scale", type=onnx.AttributeProto.FLOAT)
    softmax = helper.make_node("Softmax", ["z"], ["y"])
    softmax.attribute.add(name="axis", ref_attr_name="axis", type=onnx.AttributeProto.INT)
    body = [scale, helper.make_node("Mul", ["x", "c"], ["z"]), softmax]
    defaults = [helper.make_attribute("scale", 3.0)]
    f = function("Scaled", body, attributes=["axis"], attribute_protos=defaults)
    check(calling([f], [call("Scaled", axis=0)]))
    check(calling([f], [call("Scaled", scale=0.5)]))


def test_attributes_through_functions_in_functions() -> None:
    """Of the outer call, or of the outer function's defaults; in a branch, too."""
    leaky = helper.make_node("LeakyRelu", ["x"], ["y"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    inner = function("Inner", [leaky], attributes=["slope"])
    through = call("Inner")
    through.attribute.add(name="slope", ref_attr_name="steep", type=onnx.AttributeProto.FLOAT)
    outer = function("Outer", [through], attribute_protos=[helper.make_attribute("steep", 0.25)])
    outer.opset_import.append(helper.make_opsetid("mine", 1))
    check(calling([outer, inner], [call("Outer", steep=0.5)]))
    check(calling([outer, inner], [call("Outer")]))


def test_a_function_goes_before_what_is_known_of_onnxruntime() -> None:
    f = helper.make_function("com.microsoft", "QuickGelu", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], OWN)
    proto = model([helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft")], {"x": X}, ["y"])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.functions.append(f)
    np.testing.assert_array_equal(evaluate_graph(importer.load(proto), {"x": X})[0], -X)


def test_a_function_that_gives_back_its_input() -> None:
    f = function("Same", [])
    f.output[0] = "x"
    graph = importer.load(calling([f], [call("Same")]))
    verify(graph)
    np.testing.assert_array_equal(evaluate_graph(graph, {"x": X})[0], X)


def test_inputs_left_out() -> None:
    node = helper.make_node("Clip", ["x", "low", "high"], ["y"])
    f = helper.make_function("mine", "Bounded", ["x", "low", "high"], ["y"], [node], OWN)
    proto = calling([f], [helper.make_node("Bounded", ["x", "", "c"], ["y"], domain="mine")])
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1, np.float32), "c"))
    np.testing.assert_array_equal(evaluate_graph(importer.load(proto), {"x": X})[0], np.minimum(X, 1))
    with pytest.raises(InvalidModel, match=r"node 0 \(Bounded\) has 4 inputs and 1 outputs; .* has 3 and 1"):
        importer.load(calling([f], [helper.make_node("Bounded", ["x"] * 4, ["y"], domain="mine")]))


@pytest.mark.parametrize("op", ["HardSigmoid", "ThresholdedRelu", "Celu", "Mish", "Softplus", "PRelu", "HardSwish"])
def test_functions_of_onnx(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is a rule: the body must mean the same."""
    monkeypatch.setattr(importer, "RULES", {k: v for k, v in importer.RULES.items() if k != op})
    constants = {"slope": np.array([0.25], np.float32)} if op == "PRelu" else {}
    check(single_node(op, {"x": X}, constants, opset=22))


def test_errors_name_the_call_and_the_node_in_the_body() -> None:
    f = function("Odd", [helper.make_node("Reluu", ["x"], ["y"], name="inner")])
    with pytest.raises(UnsupportedModel, match=r"node call_Odd_y \(Odd\) / node inner \(Reluu\): operator Reluu"):
        importer.load(calling([f], [call("Odd")]))


def test_a_function_that_calls_itself() -> None:
    chain = [function(n, [call(m)]) for n, m in zip("ABC", "BCA", strict=True)]
    with pytest.raises(InvalidModel, match=r"mine.A calls itself \(mine.A -> mine.B -> mine.C -> mine.A\)"):
        importer.load(calling(chain, [call("A")]))


def test_functions_that_grow_without_bound() -> None:
    def level(n: int) -> onnx.FunctionProto:
        calls = [call(f"F{n + 1}", "x" if i == 0 else f"v{i - 1}", "y" if i == 9 else f"v{i}") for i in range(10)]
        return function(f"F{n}", calls)

    last = function("F10", [helper.make_node("Relu", ["x"], ["y"])])
    with pytest.raises(ResourceLimit, match=r"function mine\.F\d has \d+ nodes"):
        importer.load(calling([*map(level, range(10)), last], [call("F0")]))


def test_functions_in_each_other_too_deep() -> None:
    levels = [function(f"F{n}", [call(f"F{n + 1}")]) for n in range(100)]
    last = function("F100", [helper.make_node("Relu", ["x"], ["y"])])
    with pytest.raises(ResourceLimit, match="more than 64 functions and branches"):
        importer.load(calling([*levels, last], [call("F0")]))


def test_a_function_defined_twice() -> None:
    f = function("F", [helper.make_node("Relu", ["x"], ["y"])])
    with pytest.raises(InvalidModel, match="defines a function twice"):
        importer.load(calling([f, f], [call("F")]))


def branch(op: str, *inputs: str, name: str = "y") -> onnx.GraphProto:
    info = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(op, inputs, [name])], "branch", [], [info])


ABS = branch("Abs", "x")


def conditional(*, taken: bool, then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.ModelProto:
    node = helper.make_node("If", ["c"], ["y"], name="n", then_branch=then, else_branch=other)
    return model([node], {"x": X}, ["y"], {"c": np.array(taken)})


@pytest.mark.parametrize("taken", [False, True])
def test_a_branch_on_a_known_condition(taken: bool) -> None:
    check(conditional(taken=taken, then=branch("Relu", "x"), other=branch("Neg", "x", name="z")))


def test_a_branch_with_constants_and_a_branch_in_it() -> None:
    inner = helper.make_node("If", ["c"], ["y"], then_branch=branch("Abs", "x"), else_branch=branch("Add", "x", "k"))
    info = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    outer = helper.make_graph(
        [helper.make_node("Not", ["c0"], ["c"]), inner],
        "branch",
        [],
        [info],
        [onnx.numpy_helper.from_array(np.full(3, 2, np.float32), "k")],
    )
    node = helper.make_node("If", ["c0"], ["y"], then_branch=outer, else_branch=branch("Abs", "x"))
    check(model([node], {"x": X}, ["y"], {"c0": np.array(True)}))


def test_a_branch_on_a_condition_at_run_time() -> None:
    node = helper.make_node(
        "If", ["c"], ["y"], name="n", then_branch=branch("Abs", "x"), else_branch=branch("Abs", "x")
    )
    (graph,) = importer.load(model([node], {"x": X, "c": np.array(True)}, ["y"])).nodes
    assert isinstance(graph.op, Branch)
    other = branch("Shape", "x")
    node = helper.make_node("If", ["c"], ["y"], name="n", then_branch=branch("Abs", "x"), else_branch=other)
    with pytest.raises(UnsupportedModel, match=r"node n \(If\): operator If is not supported on a condition"):
        importer.load(model([node], {"x": X, "c": np.array(True)}, ["y"]))


def test_a_condition_that_is_none() -> None:
    node = helper.make_node(
        "If", ["c"], ["y"], name="n", then_branch=branch("Abs", "x"), else_branch=branch("Abs", "x")
    )
    with pytest.raises(InvalidModel, match=r"node n \(If\): the condition is bool\[2\], not one bool"):
        importer.load(model([node], {"x": X}, ["y"], {"c": np.array([True, True])}))


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_constants(indices: list) -> None:
    """In a `Constant` and as a constant of the graph."""
    expected = X.copy() * 0
    expected.reshape(-1)[[1, 5]] = [3, 4]
    sparse = helper.make_sparse_tensor(
        onnx.numpy_helper.from_array(np.array([3, 4], np.float32), "s"),
        onnx.numpy_helper.from_array(np.array(indices, np.int64), "i"),
        [2, 3],
    )
    constant = helper.make_node("Constant", [], ["s"], sparse_value=sparse)
    add = helper.make_node("Add", ["x", "s"], ["y"])
    listed = model([add], {"x": X}, ["y"])
    listed.graph.sparse_initializer.append(sparse)
    for proto in (model([constant, add], {"x": X}, ["y"]), listed):
        np.testing.assert_array_equal(evaluate_graph(importer.load(proto), {"x": X})[0], X + expected)


@pytest.mark.parametrize(
    ("indices", "dims", "message"),
    [
        ([1, 6], [2, 3], "constant s: an index is outside of the shape"),
        ([-1, 2], [2, 3], "constant s: an index is outside"),
        ([[0, 1], [2, 0]], [2, 3], "constant s: an index is outside"),
        ([1], [2, 3], r"its indices are int64\[1\]; 2 values"),
        ([1, 2], [2, -3], "extents are not negative"),
    ],
)
def test_bad_sparse_constants(indices: list, dims: list[int], message: str) -> None:
    sparse = onnx.SparseTensorProto(dims=dims)
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.array([3, 4], np.float32), "s"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array(indices, np.int64), "i"))
    proto = model([helper.make_node("Add", ["x", "s"], ["y"])], {"x": X}, ["y"])
    proto.graph.sparse_initializer.append(sparse)
    with pytest.raises(InvalidModel, match=message):
        importer.load(proto)


def test_dropout_drops_nothing() -> None:
    constants = {"ratio": np.array(0.3, np.float32)}
    graph = importer.load(single_node("Dropout", {"x": X}, constants, outputs=2))
    same, mask = evaluate_graph(graph, {"x": X})
    np.testing.assert_array_equal(same, X)
    np.testing.assert_array_equal(mask, np.ones_like(X, bool))
    check(single_node("Dropout", {"x": X}, opset=10, ratio=0.2))
    training = {"ratio": np.array(0.3, np.float32), "training": np.array(True)}
    with pytest.raises(UnsupportedModel, match=r"node n \(Dropout\): Dropout in training mode is random"):
        importer.load(single_node("Dropout", {"x": X}, training))
    training["ratio"] = np.array(0, np.float32)
    check(single_node("Dropout", {"x": X}, training))

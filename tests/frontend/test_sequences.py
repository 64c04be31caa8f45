"""Sequences and optionals, whose tensors are known when a model is imported, against ONNX Runtime."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.test_computed_shapes import node
from tilewright.base.errors import IndexOutOfRange, InvalidModel, TilewrightError, UnsupportedModel
from tilewright.base.settings import Settings

Array = NDArray[np.generic]
CHECKED = Settings(cache_dir=None, repro_dir=None, bounds_check=True)
GENERATOR = np.random.default_rng(11)
FLOATS = TensorProto.FLOAT


def f(*shape: int) -> Array:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def tensor(name: str, shape: Sequence[int | str], kind: int = FLOATS) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def sequence(name: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, FLOATS, shape)


def optional(name: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOATS, shape)))


def proto(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    **constants: Array,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, object]) -> list[Array]:
    """The tensors of all outputs, one after the other."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results: list[Array] = []
    for result in session.run(None, dict(feeds)):
        results += result if isinstance(result, list) else [result]
    return results


def check(
    model: onnx.ModelProto, feeds: Mapping[str, object], shapes: Mapping[str, tuple[int, ...]] | None = None
) -> tilewright.CompiledModel:
    """The model gives what ONNX Runtime gives; lists in ``feeds`` are given tensor by tensor."""
    made = tilewright.compile(model, threads=1, settings=CHECKED, shapes=shapes)
    given = dict[str, Array]()
    for name, each in feeds.items():
        items = {f"{name}.{at}": item for at, item in enumerate(each)} if isinstance(each, list) else {name: each}
        given.update((key, np.asarray(item)) for key, item in items.items())
    found, expected = made.run(None, given), run_onnxruntime(model, feeds)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6)
    return made


def test_a_tensor_is_split_changed_and_joined() -> None:
    """Also positions from the end, and a length."""
    nodes = [
        node("SplitToSequence", ["x"], ["rows"], keepdims=0),
        node("SequenceAt", ["rows", "last"], ["r"]),
        node("Exp", ["r"], ["e"]),
        node("SequenceInsert", ["rows", "e", "first"], ["more"]),
        node("SequenceErase", ["more", "third"], ["less"]),
        node("ConcatFromSequence", ["less"], ["y"], axis=1, new_axis=1),
        node("SequenceLength", ["less"], ["n"]),
        node("SplitToSequence", ["x", "two"], ["pairs"], axis=1),
        node("ConcatFromSequence", ["pairs"], ["z"], axis=1),
        node("SplitToSequence", ["x", "lengths"], ["parts"], axis=1),
    ]
    joined = [tensor("y", ["a", "b"]), tensor("n", [], TensorProto.INT64), tensor("z", ["a", "b"])]
    places = {"last": np.array(-1), "first": np.array(0), "third": np.array(-2)}
    lengths = {"two": np.array(2), "lengths": np.array([1, 4], np.int64)}
    model = proto(nodes, [tensor("x", [3, 5])], [*joined, sequence("parts", [])], **places, **lengths)
    made = check(model, {"x": f(3, 5)})
    assert [spec.name for spec in made.outputs] == ["y", "n", "z", "parts.0", "parts.1"]


@pytest.mark.slow
def test_an_element_is_chosen_by_data() -> None:
    nodes = [node("SequenceConstruct", ["x", "y"], ["s"]), node("SequenceAt", ["s", "p"], ["z"])]
    inputs = [tensor("x", ["n", 3]), tensor("y", ["n", 3]), tensor("p", [], TensorProto.INT64)]
    model = proto(nodes, inputs, [tensor("z", ["n", 3])])
    for place in (0, 1, -2):
        made = check(model, {"x": f(4, 3), "y": f(4, 3), "p": np.array(place)})
    with pytest.raises(IndexOutOfRange):
        made.run(None, {"x": f(4, 3), "y": f(4, 3), "p": np.array(2)})
    different = proto(nodes, [inputs[0], tensor("y", ["n", 4]), inputs[2]], [tensor("z", [])])
    with pytest.raises(UnsupportedModel, match=r"node 1 \(SequenceAt\): .*give a constant position"):
        tilewright.compile(different)


def loop_body() -> onnx.GraphProto:
    """Each step adds the first elements of ``x`` to a sequence, one more than before."""
    nodes = [
        node("Reshape", ["i", "one"], ["j"]),
        node("Add", ["j", "one"], ["end"]),
        node("Slice", ["x", "zero", "end"], ["part"]),
        node("SequenceInsert", ["s", "part"], ["s2"]),
        node("Identity", ["c"], ["c2"]),
    ]
    inputs = [tensor("i", [], TensorProto.INT64), tensor("c", [], TensorProto.BOOL), sequence("s", [])]
    return helper.make_graph(nodes, "body", inputs, [tensor("c2", [], TensorProto.BOOL), sequence("s2", [])])


STEPS = {"one": np.array([1]), "zero": np.array([0])}
COLLECT = [
    node("SequenceEmpty", [], ["none"]),
    node("Loop", ["m", "", "none"], ["all"], body=loop_body()),
    node("ConcatFromSequence", ["all"], ["y"], axis=0),
]


def test_a_loop_collects_a_sequence() -> None:
    check(proto(COLLECT, [tensor("x", [5])], [tensor("y", ["a"])], m=np.array(3), **STEPS), {"x": f(5)})
    with pytest.raises(UnsupportedModel, match="a state is a sequence; give a constant number"):
        inputs = [tensor("x", [5]), tensor("m", [], TensorProto.INT64)]
        tilewright.compile(proto(COLLECT, inputs, [tensor("y", ["a"])], **STEPS))


@pytest.mark.slow
def test_a_branch_makes_sequences_of_one_length() -> None:
    def branch(name: str, *made: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(made, name, [], [sequence("s", [])])

    two = branch("two", node("SequenceConstruct", ["x", "y"], ["s"]))
    other = branch("other", node("Neg", ["x"], ["t"]), node("SequenceConstruct", ["t", "x"], ["s"]))
    rest = [node("SequenceAt", ["r", "first"], ["a"]), node("Exp", ["a"], ["z"])]
    inputs = [tensor("x", [3]), tensor("y", [3]), tensor("c", [], TensorProto.BOOL)]

    def model(otherwise: onnx.GraphProto) -> onnx.ModelProto:
        chosen = node("If", ["c"], ["r"], then_branch=two, else_branch=otherwise)
        return proto([chosen, *rest], inputs, [tensor("z", [3])], first=np.array(0))

    for condition in (True, False):
        check(model(other), {"x": f(3), "y": f(3), "c": np.array(condition)})
    with pytest.raises(UnsupportedModel, match=r"node 0 \(If\): .*sequences of different lengths"):
        tilewright.compile(model(branch("one", node("SequenceConstruct", ["x"], ["s"]))))


def test_inputs_are_sequences() -> None:
    """Of as many tensors as is said, of different sizes; a body is applied to each."""
    step = helper.make_graph(
        [node("Mul", ["a", "b"], ["t"])], "step", [tensor("a", ["n"]), tensor("b", [1])], [tensor("t", ["n"])]
    )
    nodes = [node("SequenceMap", ["s", "b"], ["y"], body=step), node("SequenceInsert", ["s", "b"], ["z"])]
    model = proto(nodes, [sequence("s", ["n"]), tensor("b", [1])], [sequence("y", []), sequence("z", [])])
    made = check(model, {"s": [f(2), f(5)], "b": f(1)}, {"s": (2,)})
    assert [spec.name for spec in made.inputs] == ["s.0", "s.1", "b"]
    assert [spec.name for spec in made.outputs] == ["y.0", "y.1", "z.0", "z.1", "z.2"]
    (only,) = tilewright.compile(model, shapes={"s": (0,)}).run(None, {"b": np.ones(1, np.float32)})
    assert only == 1
    with pytest.raises(UnsupportedModel, match=r"input s is no tensor but a sequence: .*shapes=\{'s': \.\.\.\}"):
        tilewright.compile(model)


@pytest.mark.slow
def test_inputs_are_optional() -> None:
    """An optional is there or not; a sequence may be optional, too."""
    made = helper.make_graph([node("OptionalGetElement", ["o"], ["t"])], "there", [], [tensor("t", [3])])
    other = helper.make_graph([node("Neg", ["x"], ["t"])], "other", [], [tensor("t", [3])])
    nodes = [
        node("OptionalHasElement", ["o"], ["is"]),
        node("If", ["is"], ["r"], then_branch=made, else_branch=other),
        node("Exp", ["r"], ["y"]),
        node("Optional", ["y"], ["p"]),
        node("OptionalHasElement", ["p"], ["q"]),
    ]
    outputs = [tensor("y", [3]), tensor("q", [], TensorProto.BOOL)]
    model = proto(nodes, [tensor("x", [3]), optional("o", [3])], outputs)
    there = tilewright.compile(model, shapes={"o": (1,)}, settings=CHECKED)
    x, o = f(3), f(3)
    y, q = there.run(None, {"x": x, "o.0": o})
    np.testing.assert_allclose(y, np.exp(o), rtol=1e-6)
    assert q
    y, _ = tilewright.compile(model, shapes={"o": (0,)}, settings=CHECKED).run(None, {"x": x})
    np.testing.assert_allclose(y, np.exp(-x), rtol=1e-6)
    with pytest.raises(UnsupportedModel, match=r"input o is no tensor but an optional: .*\(0,\) or \(1,\)"):
        tilewright.compile(model, shapes={"o": (2,)})


WRONG: Sequence[tuple[str, Callable[[], onnx.ModelProto], type[TilewrightError], str]] = [
    (
        "a position that is not there",
        lambda: proto(
            [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "p"], ["y"])],
            [tensor("x", [3])],
            [tensor("y", [3])],
            p=np.array(1),
        ),
        InvalidModel,
        r"node 1 \(SequenceAt\): position 1 is out of range: there are 1 elements",
    ),
    (
        "a sequence where a tensor must be",
        lambda: proto(
            [node("SequenceConstruct", ["x"], ["s"]), node("Exp", ["s"], ["y"])], [tensor("x", [3])], [tensor("y", [3])]
        ),
        InvalidModel,
        r"node 1 \(Exp\) takes or makes a sequence of 1 where ONNX has a tensor",
    ),
    (
        "a tensor where a sequence must be",
        lambda: proto([node("SequenceLength", ["x"], ["y"])], [tensor("x", [3])], [tensor("y", [], TensorProto.INT64)]),
        InvalidModel,
        r"node 0 \(SequenceLength\)",
    ),
    (
        "nothing in an optional",
        lambda: proto(
            [node("OptionalGetElement", ["o"], ["y"])], [tensor("x", [3]), optional("o", [3])], [tensor("y", [3])]
        ),
        InvalidModel,
        r"node 0 \(OptionalGetElement\): the optional has no element",
    ),
    (
        "lengths that do not fit",
        lambda: proto(
            [node("SplitToSequence", ["x", "l"], ["s"])], [tensor("x", [3])], [sequence("s", [])], l=np.array([1, 1])
        ),
        InvalidModel,
        r"lengths \(1, 1\) do not make up extent 3",
    ),
    (
        "only an empty sequence",
        lambda: proto([node("SequenceEmpty", [], ["y"])], [tensor("x", [3])], [sequence("y", [])]),
        InvalidModel,
        "outputs are empty sequences",
    ),
]


@pytest.mark.parametrize(("make", "kind", "text"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG])
def test_what_is_wrong(make: Callable[[], onnx.ModelProto], kind: type[TilewrightError], text: str) -> None:
    model = make()
    shapes = {info.name: (0,) for info in model.graph.input if info.type.HasField("optional_type")}
    with pytest.raises(kind, match=text):
        tilewright.compile(model, shapes=shapes)

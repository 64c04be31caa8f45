"""What users do wrong, by the public functions: each error names the place, and says what helps."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.frontend.models import single_node
from tilewright.base.errors import MOST_CHARACTERS, TilewrightError

Array = NDArray[np.generic]
X = np.ones((2, 3), np.float32)
IMAGE = np.ones((1, 1, 2, 3), np.float32)


def refused(run: Callable[[], object], message: str) -> None:
    with pytest.raises(TilewrightError, match=message) as found:
        run()
    assert len(str(found.value)) <= MOST_CHARACTERS


@pytest.fixture(scope="module")
def relu() -> tilewright.CompiledModel:
    return tilewright.compile(single_node("Relu", {"x": X}), threads=1)


FEEDS: Mapping[str, tuple[dict[str, object], str]] = {
    "another dtype": ({"x": X.astype(np.float64)}, r"input x: f32\[2, 3\] was given float64.*astype\('float32'\)"),
    "objects": ({"x": np.full((2, 3), None, object)}, "input x: .* was given object"),
    "texts": ({"x": np.full((2, 3), "a")}, "input x: .* was given <U1"),
    "complex numbers": ({"x": X.astype(np.complex64)}, "input x: .* was given complex64"),
    "none": ({"x": None}, "input x: .* give a NumPy array"),
    "rows of several lengths": ({"x": [[1, 2, 3], [4, 5]]}, "input x: .* makes no such array"),
    "another rank": ({"x": X[0]}, r"input x: .* was given float32\[3\]; give an array of that shape"),
    "another size": ({"x": X[:, :2]}, r"input x: .* was given float32\[2, 2\]"),
    "missing": ({}, "input 'x' is missing; the inputs are x"),
    "one too many": ({"x": X, "z": X}, "no input 'z'; its inputs are x"),
}


@pytest.mark.parametrize("case", FEEDS)
def test_feeds(case: str, relu: tilewright.CompiledModel) -> None:
    feeds, message = FEEDS[case]
    refused(lambda: relu.run(None, feeds), message)


def test_an_output_that_there_is_not(relu: tilewright.CompiledModel) -> None:
    refused(lambda: relu.run(["q"], {"x": X}), "no output q; the outputs are y")


def node(op: str, inputs: Sequence[str], constants: Mapping[str, Array], **attributes: object) -> onnx.ModelProto:
    """A model of a node `n` of constants."""
    made = helper.make_node(op, inputs, ["y"], name="n", **attributes)
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph([made], "g", [], [onnx.ValueInfoProto(name="y")], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def scaled(scale: float) -> onnx.ModelProto:
    scales = {"s": np.array([1, 1, scale, 2], np.float32)}
    return single_node("Resize", {"x": IMAGE}, scales, order=["x", "", "s"])


def span(start: float, end: float, step: float, kind: type[np.generic] = np.int64) -> onnx.ModelProto:
    return node("Range", "abc", {name: kind(value) for name, value in zip("abc", (start, end, step), strict=True)})


def twice() -> onnx.ModelProto:
    proto = single_node("Add", {"x": X}, {"w": X})
    proto.graph.initializer.append(proto.graph.initializer[0])
    return proto


def shadow() -> onnx.ModelProto:
    proto = single_node("Add", {"x": X}, {"w": X})
    proto.graph.node[0].output[0] = "w"
    return proto


def cycle_in_a_branch() -> onnx.ModelProto:
    def body() -> onnx.GraphProto:
        nodes = [helper.make_node("Relu", [a], [b], name=b) for a, b in ("qp", "pq")]
        return helper.make_graph(nodes, "b", [], [onnx.ValueInfoProto(name="q")])

    return single_node("If", {"c": np.array(True)}, then_branch=body(), else_branch=body())


def huge_for_all_sizes() -> onnx.ModelProto:
    """Open sizes times 2^62."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Mul", ["s", "k"], ["t"]),
        helper.make_node("Expand", ["o", "t"], ["y"], name="n"),
    ]
    constants = {"k": np.array([2**62, 2]), "o": np.ones((1, 1), np.float32)}
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["h", 3])
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def calls_itself() -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("my", 1)]
    inner = helper.make_node("F", ["x"], ["y"], domain="my")
    proto = single_node("Relu", {"x": X})
    proto.graph.node[0].op_type, proto.graph.node[0].domain = "F", "my"
    proto.opset_import.append(opsets[1])
    proto.functions.append(helper.make_function("my", "F", ["x"], ["y"], [inner], opsets))
    return proto


LONG = "a" * 100_000
MODELS: Mapping[str, tuple[onnx.ModelProto, str]] = {
    "NaN as a scale": (scaled(np.nan), r"node n \(Resize\): scales is .*nan.* positive numbers"),
    "infinity as a scale": (scaled(np.inf), r"node n \(Resize\): scales is .*inf"),
    "0 as a scale": (scaled(0), r"node n \(Resize\): scales is"),
    "a range to NaN": (span(0, np.nan, 1, np.float32), r"node n \(Range\): .* has no end"),
    "a range by 0": (span(0, 5, 0), r"node n \(Range\): .* has no end"),
    "a huge range": (span(0, 2**62, 1), r"node n \(Range\): .* use a larger step"),
    "sizes beyond int64": (
        single_node("Reshape", {"x": X}, {"s": np.array([2**32, 2**32])}),
        r"node n \(Reshape\): .* beyond i64",
    ),
    "sizes that wrap around to the right ones": (
        single_node("Reshape", {"x": X}, {"s": np.array([2**62, 6, 4])}),
        r"node n \(Reshape\): .* beyond i64",
    ),
    "open sizes beyond int64": (huge_for_all_sizes(), r"node n \(Expand\): .* beyond i64.* compute smaller sizes"),
    "an axis beyond int32": (
        single_node("Unsqueeze", {"x": X}, {"a": np.array([2**40])}),
        r"node n \(Unsqueeze\): axis 1099511627776 is out of range",
    ),
    "negative repeats": (single_node("Tile", {"x": X}, {"r": np.array([-1, 2])}), r"node n \(Tile\): .*\(-1, 2\)"),
    "a step of 0": (
        single_node("Slice", {"x": X}, {n: np.array([v]) for n, v in zip("beas", (0, 2, 0, 0), strict=True)}),
        r"node n \(Slice\): .*a step is 0",
    ),
    "pads that take too much": (
        single_node("Pad", {"x": X}, {"p": np.array([-5, 0, 0, 0])}),
        r"node n \(Pad\): .*5 elements off axis 0",
    ),
    "the largest of nothing": (
        single_node("ArgMax", {"x": X[:0]}, axis=0),
        r"node n \(ArgMax\): .* is empty",
    ),
    "a kernel without places": (
        single_node("Conv", {"x": IMAGE}, {"w": np.ones((1, 1, 0, 3), np.float32)}),
        r"node n \(Conv\): kernel_shape \[0, 3\]",
    ),
    "a kernel larger than the image": (
        single_node("Conv", {"x": IMAGE}, {"w": np.ones((1, 1, 3, 3), np.float32)}),
        r"node n \(Conv\): the window reaches over 3 .* smaller kernel_shape",
    ),
    "other channels": (
        single_node("Conv", {"x": IMAGE}, {"w": np.ones((1, 2, 1, 1), np.float32)}),
        r"node n \(Conv\): .* 1 channels, but the weight",
    ),
    "ranks that differ": (
        single_node("Concat", {"x": X}, {"w": X[0]}, axis=0),
        r"node n \(Concat\): .* along axis 0",
    ),
    "an index that is a float": (single_node("Gather", {"x": X}, {"w": X}), r"`w` is f32, .* by a Cast node"),
    "a permutation that repeats": (single_node("Transpose", {"x": X}, perm=[0, 0]), r"\(0, 0\) is no permutation"),
    "an equation that names nothing": (
        single_node("Einsum", {"x": X}, order=["x", "x"], equation="ij,jk->il"),
        r"node n \(Einsum\): .*`ij,jk->il`",
    ),
    "lengths that do not add up": (
        single_node("Split", {"x": X}, {"s": np.array([1, 1])}, outputs=2, axis=1),
        r"node n \(Split\): lengths \[1, 1\]",
    ),
    "more than there are": (single_node("TopK", {"x": X}, {"k": np.array([9])}, outputs=2), r"\(TopK\): .*k = 9"),
    "channels of no whole blocks": (
        single_node("DepthToSpace", {"x": IMAGE}, blocksize=2),
        r"node n \(DepthToSpace\): 1 channels .* no multiple of 4",
    ),
    "two precisions": (single_node("MatMul", {"x": X}, {"w": np.ones((3, 2))}), r"`w` is f64, .* by a Cast node"),
    "two constants of one name": (twice(), "constant w makes `w`, which exists already; rename"),
    "a result with a constant's name": (shadow(), r"node n \(Add\) makes `w`, which exists already; rename"),
    "a cycle in a branch": (cycle_in_a_branch(), r"node n \(If\) then_branch / node .* is a cycle; break it"),
    "a function that calls itself": (calls_itself(), r"function my.F calls itself .* break the cycle"),
    "a name of 100,000 letters": (
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Covn", ["x"], [LONG], name=LONG)],
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                [onnx.ValueInfoProto(name=LONG)],
            ),
            opset_imports=[helper.make_opsetid("", 21)],
        ),
        r"operator Covn is not supported",
    ),
}


@pytest.mark.parametrize("case", MODELS)
def test_models(case: str) -> None:
    proto, message = MODELS[case]
    refused(lambda: tilewright.compile(proto, threads=1), message)


def test_names_that_the_model_has_not() -> None:
    proto = single_node("Relu", {"x": X})
    refused(lambda: tilewright.compile(proto, shapes={"z": (2, 3)}), "shapes= names z; the inputs are x")
    refused(lambda: tilewright.compile(proto, bounds={"n": 3}), "bounds= names 'n'")


@pytest.mark.parametrize("given", [None, 3, single_node("Relu", {"x": X}).graph], ids=["none", "number", "graph"])
def test_what_is_no_model(given: object) -> None:
    refused(lambda: tilewright.compile(given), "compile: model=.*: give a path")


def test_external_data(tmp_path: Path) -> None:
    path, data = tmp_path / "m.onnx", tmp_path / "m.bin"
    proto = single_node("Add", {"x": X}, {"w": X})
    onnx.save(proto, path, save_as_external_data=True, location=data.name, size_threshold=0)
    refused(lambda: tilewright.compile(path.read_bytes()), "constant w is in another file; give the model's path")
    data.write_bytes(b"123")
    refused(lambda: tilewright.compile(path), "tensor w: bytes 0 to 24 .* has 3; copy the whole file")
    data.unlink()
    refused(lambda: tilewright.compile(path), "tensor w: .* m.bin is missing; copy it beside the model")


def test_artifacts_and_models_are_told_apart(relu: tilewright.CompiledModel, tmp_path: Path) -> None:
    path, artifact = tmp_path / "m.onnx", tmp_path / "m.tw"
    onnx.save(single_node("Relu", {"x": X}), path)
    relu.save(artifact)
    refused(lambda: tilewright.load(path), r"it is no artifact .*tilewright.compile\(...\).save")
    refused(lambda: tilewright.compile(artifact), "tilewright.load takes artifacts")
    damaged = bytearray(artifact.read_bytes())
    damaged[len(damaged) // 2] ^= 255
    artifact.write_bytes(damaged)
    refused(lambda: tilewright.load(artifact), "m.tw can't be used: ")

"""Malformed and unsupported models: the error's kind, and that it names the place and what would help."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.models import model, single_node
from tilewright.base.errors import InvalidModel, ResourceLimit, TilewrightError, UnsupportedModel
from tilewright.frontend import onnx_importer

X = np.ones((2, 3), np.float32)
GOOD = single_node("Relu", {"x": X})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"this is no model", "can't be read as ONNX"),
        (GOOD.SerializeToString()[:-7], "can't be read as ONNX"),
        (os.urandom(4096), "can't be read as ONNX|no ONNX model"),
        (b"PK\x03\x04" + bytes(100), "can't be read as ONNX|no ONNX model"),
    ],
    ids=["empty", "text", "cut", "random", "zip"],
)
def test_files_that_are_no_model(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidModel, match=message):
        onnx_importer.load(path)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.onnx", tmp_path):
        with pytest.raises(InvalidModel, match="there is no model file"):
            onnx_importer.load(path)


def two_nodes(first: onnx.NodeProto, second: onnx.NodeProto) -> onnx.ModelProto:
    return model([first, second], {"x": X}, ["y"])


def changed(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    proto.CopyFrom(GOOD)
    change(proto)
    return proto


def with_constant(change: Callable[[onnx.TensorProto], object]) -> onnx.ModelProto:
    proto = single_node("Add", {"x": X}, {"c": np.ones(3, np.float32)})
    change(proto.graph.initializer[0])
    return proto


def set_dims(tensor: onnx.TensorProto, *dims: int) -> None:
    del tensor.dims[:]
    tensor.dims.extend(dims)


def dimension(proto: onnx.ModelProto, value: int) -> None:
    for dim in proto.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_value = value


def reshape(*target: int) -> onnx.ModelProto:
    return single_node("Reshape", {"x": X}, {"shape": np.array(target)})


def opset(version: int, model: onnx.ModelProto) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    proto.opset_import[0].version = version
    return proto


RELU = helper.make_node("Relu", ["x"], ["y"], name="n")
BAD = {
    "no outputs": (changed(lambda m: m.graph.ClearField("output")), "no outputs"),
    "repeated output": (changed(lambda m: m.graph.output.append(m.graph.output[0])), "repeat one"),
    "no opset": (changed(lambda m: m.ClearField("opset_import")), "add opset_import"),
    "negative dimension": (changed(lambda m: dimension(m, -5)), "input x has extent -5 in dimension 0"),
    "undefined name": (changed(lambda m: m.graph.node[0].input.__setitem__(0, "z")), r"node n \(Relu\) uses `z`"),
    "own output": (changed(lambda m: m.graph.node[0].input.__setitem__(0, "y0")), "is a cycle"),
    "cycle": (
        two_nodes(helper.make_node("Relu", ["y"], ["a"], name="n"), helper.make_node("Relu", ["a"], ["y"])),
        r"node n \(Relu\) uses `y`",
    ),
    "operator of a newer opset": (
        opset(11, single_node("GreaterOrEqual", {"x": X, "z": X})),
        r"node n \(GreaterOrEqual\): opset 11 has no operator GreaterOrEqual",
    ),
    "opset 0": (opset(0, GOOD), "opset 0; opsets are counted from 1"),
    "own operator without an opset": (
        changed(lambda m: setattr(m.opset_import[0], "domain", "acme")),
        r"node n \(Relu\): the model does not say",
    ),
    "made twice": (two_nodes(RELU, helper.make_node("Abs", ["x"], ["y"], name="m")), r"node m \(Abs\) makes `y`"),
    "input made again": (two_nodes(helper.make_node("Abs", ["x"], ["x"], name="m"), RELU), "makes `x`, which exists"),
    "too few inputs": (single_node("Add", {"x": X}), r"node n \(Add\) has 1 inputs; Add takes 2 to 2"),
    "too many inputs": (single_node("Relu", {"x": X, "z": X}), "Relu takes 1 to 1"),
    "input left out": (single_node("Add", {"x": X}, order=["x", ""]), "missing a required argument"),
    "unknown attribute": (single_node("Relu", {"x": X}, slope=1.0), "Relu of opset 21 has no attribute slope"),
    "attribute of another type": (
        single_node("Softmax", {"x": X}, axis=0.5),
        "attribute axis can't be of the kind FLOAT",
    ),
    "attribute missing": (single_node("Concat", {"x": X}), "attribute axis is missing"),
    "axis out of range": (single_node("Softmax", {"x": X}, axis=7), r"node n \(Softmax\): axis 7 is out of range"),
    "shapes do not fit": (single_node("MatMul", {"x": X, "z": X}), r"node n \(MatMul\): .* 3 columns against 2 rows"),
    "dtypes differ": (single_node("Add", {"x": X, "z": X.astype(np.int64)}), r"node n \(Add\): .* mixes f32 and i64"),
    "reshape": (reshape(4, -1), r"node n \(Reshape\): \[2, 3\] with 6 elements"),
    "axes of floats": (single_node("ReduceSum", {"x": X}, {"axes": np.ones(1, np.float32)}), "must hold integers"),
    "element type 99": (with_constant(lambda t: setattr(t, "data_type", 99)), "constant c: 99 is no ONNX element type"),
    "negative constant": (with_constant(lambda t: set_dims(t, -3)), "constant c has the shape"),
    "too few bytes": (with_constant(lambda t: setattr(t, "raw_data", b"12345")), "constant c can't be read"),
    "empty constant": (two_nodes(helper.make_node("Constant", [], ["c"], name="n"), RELU), "holds no value"),
    "gather out of range": (
        model(
            [helper.make_node("Gather", ["c", "i"], ["y"], name="n")],
            {},
            ["y"],
            {"c": np.array([1, 2]), "i": np.array([10**9])},
        ),
        r"node n \(Gather\): .*index 1000000000",
    ),
    "external data unread": (
        with_constant(lambda t: setattr(t, "data_location", onnx.TensorProto.EXTERNAL)),
        "give the model's path",
    ),
}
UNSUPPORTED = {
    "old opset": (
        opset(6, single_node("Add", {"x": X, "z": X})),
        r"node n \(Add\): Add of opset 6 is not supported.*version_converter",
    ),
    "future opset": (changed(lambda m: setattr(m.opset_import[0], "version", 999)), "opset 999"),
    "unknown operator": (changed(lambda m: setattr(m.graph.node[0], "op_type", "Reluu")), "nearest known: Relu"),
    "unknown domain": (changed(lambda m: setattr(m.graph.node[0], "domain", "acme")), "the domain acme"),
    "strings": (changed(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 8)), "element type STRING"),
    "cast to float8": (single_node("Cast", {"x": X}, to=17), r"node n \(Cast\) has element type FLOAT8E4M3FN"),
    "no rank": (changed(lambda m: m.graph.input[0].type.tensor_type.ClearField("shape")), "input x has; give shapes="),
    "a sequence": (
        changed(lambda m: m.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", 1, [2]))),
        "no tensor",
    ),
    "shape at run time": (
        model([helper.make_node("Reshape", ["x", "s"], ["y"], name="n")], {"x": X, "s": np.array([3, 2])}, ["y"]),
        r"node n \(Reshape\): input `s` must be a constant",
    ),
    "constant of text": (
        two_nodes(helper.make_node("Constant", [], ["c"], name="n", value_string="a"), RELU),
        "value_string",
    ),
}
TOO_LARGE = {
    "input": (changed(lambda m: dimension(m, 1 << 40)), "input x has the shape"),
    "constant": (with_constant(lambda t: set_dims(t, 1 << 33, 4)), "constant c has the shape"),
    "expand": (single_node("Expand", {"x": X[:1, :1]}, {"s": np.array([2**62, 2**62])}), r"node n \(Expand\)"),
    "concat": (
        model(
            [helper.make_node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(40)], {"v0": X}, ["v40"]
        ),
        "its result v32",
    ),
}


def check(kind: type[TilewrightError], proto: onnx.ModelProto, message: str) -> None:
    with pytest.raises(kind, match=message):
        onnx_importer.load(proto)


@pytest.mark.parametrize("case", BAD)
def test_bad(case: str) -> None:
    check(InvalidModel, *BAD[case])


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported(case: str) -> None:
    check(UnsupportedModel, *UNSUPPORTED[case])


@pytest.mark.parametrize("case", TOO_LARGE)
def test_too_large(case: str) -> None:
    check(ResourceLimit, *TOO_LARGE[case])


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"y": (2, 3)}, "shapes= names y; the inputs are x"),
        ({"x": (2, 3, 4)}, "which has 2 dimensions"),
        ({"x": (2, 4)}, r"which the model fixes as \[2, 3\]"),
        ({"x": (-2, 3)}, "extents are not negative"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        onnx_importer.load(GOOD, shapes)


def test_one_dimension_with_two_values() -> None:
    infos = [helper.make_tensor_value_info(name, 1, ["n"]) for name in "ab"]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "g", infos, [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    with pytest.raises(InvalidModel, match="gives 3 and 2 for dimension n"):
        onnx_importer.load(proto, {"a": (2,), "b": (3,)})


def test_the_shape_of_a_run_time_extent_says_what_helps() -> None:
    info = helper.make_tensor_value_info("x", 1, ["n"])
    node = helper.make_node("Shape", ["x"], ["y"], name="n")
    graph = helper.make_graph([node], "g", [info], [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    with pytest.raises(UnsupportedModel, match=r"node n \(Shape\): .* give it by shapes="):
        onnx_importer.load(proto)


@pytest.mark.parametrize(
    "location", ["../secret", "a/../../secret", "/etc/hostname", "link", "hard", "none", "/dev/zero"]
)
def test_external_data_stays_beside_the_model(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(12))
    (folder / "link").symlink_to(tmp_path / "secret")
    os.link(tmp_path / "secret", folder / "hard")
    proto = single_node("Add", {"x": X}, {"c": np.ones(3, np.float32)})
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(InvalidModel, match="can't be read as ONNX"):
        onnx_importer.load(folder / "m.onnx")


def test_damaged_bytes_never_crash() -> None:
    """Each byte of a small model changed, in turn: it loads, or the error is ours."""
    content = single_node("Add", {"x": X}, {"c": np.ones(3, np.float32)}).SerializeToString()
    random = np.random.default_rng(0)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= int(random.integers(1, 256))
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(bytes(damaged))
        except Exception:  # noqa: BLE001  protobuf's errors, not ours
            continue
        try:
            onnx_importer.load(proto)
        except TilewrightError as error:
            assert str(error)

"""Malformed and unsupported models: the error's kind, and that it names the place and what would help.

A number is the row of the table of bad inputs. Rows 17 to 29 are in ``test_external_data.py``, 38, 41 and 42 in
``test_functions.py``, 51 and 52 in ``tests/test_large_models.py``, 54 in ``tests/runtime/test_feeds.py``.
"""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.frontend.models import model, single_node
from tilewright.base.errors import IndexOutOfRange, InvalidModel, ResourceLimit, TilewrightError, UnsupportedModel
from tilewright.frontend.onnx.read import importer

X = np.ones((2, 3), np.float32)
GOOD = single_node("Relu", {"x": X})


def test_a_file_that_protobuf_can_not_hold(tmp_path: Path) -> None:
    """Row 5. The file is sparse; nothing of it is read."""
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(ResourceLimit, match=r"2147483648 bytes, more than .*; store the weights as external data"):
        importer.load(path)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none.onnx", "there is no model file"), (tmp_path, "is a directory")):
        with pytest.raises(InvalidModel, match=message):
            importer.load(path)


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


def rank(dimensions: int) -> onnx.ModelProto:
    proto = single_node("Relu", {"x": X})
    shape = proto.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    for _ in range(dimensions):
        shape.dim.add().dim_value = 1
    return proto


def conv(**attributes: object) -> onnx.ModelProto:
    return single_node("Conv", {"x": IMAGE}, {"w": np.ones((2, 2, 3, 3), np.float32)}, **attributes)


def with_bytes(old: bytes, new: bytes) -> onnx.ModelProto:
    """A model whose file was damaged: `old` became `new`."""
    proto = onnx.ModelProto()
    proto.ParseFromString(single_node("Relu", {"x": X}).SerializeToString().replace(old, new))
    return proto


def nested(depth: int) -> bytes:
    """A file with a graph in a node in a graph, and so on."""
    content = b""
    for _ in range(depth):
        for field in (6, 5, 1):  # the graph of an attribute, of a node, of a graph
            content = _delimited(field, content)
    return _delimited(7, content)


def _delimited(field: int, content: bytes) -> bytes:
    size, length = len(content), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([field << 3 | 2]) + length + bytes([size]) + content


def archive(kind: str) -> bytes:
    target = io.BytesIO()
    content = GOOD.SerializeToString()
    match kind:
        case "zip":
            with zipfile.ZipFile(target, "w") as opened:
                opened.writestr("m.onnx", content)
        case "gzip":
            target.write(gzip.compress(content))
        case _:
            with tarfile.open(fileobj=target, mode="w") as packed:
                info = tarfile.TarInfo("m.onnx")
                info.size = len(content)
                packed.addfile(info, io.BytesIO(content))
    return target.getvalue()


RELU = helper.make_node("Relu", ["x"], ["y"], name="n")
IMAGE = np.ones((1, 2, 5, 5), np.float32)
BAD = {
    "9 cycle of three": (
        model([helper.make_node("Relu", [a], [b], name=f"n{a}") for a, b in ("ab", "bc", "ca")], {"x": X}, ["a"]),
        r"node nb \(Relu\) uses `b`, which needs it in turn: node na \(Relu\) -> node nb \(Relu\) -> node nc \(Relu\) "
        r"-> node na \(Relu\) is a cycle",
    ),
    "30 too few bytes for huge": (
        with_constant(lambda t: set_dims(t, 1 << 32, 2)),
        "constant c can't be read",
    ),
    "46 stride 0": (conv(strides=[0, 1]), r"node n \(Conv\): attribute strides is \[0, 1\]; .* at least 1"),
    "46 stride 0 of a pool": (
        single_node("MaxPool", {"x": IMAGE}, kernel_shape=[2, 2], strides=[0, 1]),
        r"node n \(MaxPool\): attribute strides is \[0, 1\]",
    ),
    "48 group 0": (conv(group=0), r"node n \(Conv\): group is 0; it must be at least 1"),
    "49 no text": (with_bytes(b"Relu", b"\xff\xfelu"), "which is no UTF-8 text"),
    "53 duplicate input": (
        changed(lambda m: m.graph.input.append(m.graph.input[0])),
        "input x makes `x`, which exists already; rename",
    ),
    "53 no outputs": (changed(lambda m: m.graph.ClearField("output")), "no outputs"),
    "repeated output": (changed(lambda m: m.graph.output.append(m.graph.output[0])), "repeat one"),
    "16 no opset": (changed(lambda m: m.ClearField("opset_import")), "add opset_import"),
    "8 negative dimension": (changed(lambda m: dimension(m, -5)), "input x has extent -5 in dimension 0"),
    "12 undefined name": (changed(lambda m: m.graph.node[0].input.__setitem__(0, "z")), r"node n \(Relu\) uses `z`"),
    "10 own output": (changed(lambda m: m.graph.node[0].input.__setitem__(0, "y0")), "is a cycle"),
    "9 cycle of two": (
        two_nodes(helper.make_node("Relu", ["y"], ["a"], name="n"), helper.make_node("Relu", ["a"], ["y"])),
        r"node 1 \(Relu\) uses `a`, which needs it in turn",
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
    "11 made twice": (two_nodes(RELU, helper.make_node("Abs", ["x"], ["y"], name="m")), r"node m \(Abs\) makes `y`"),
    "11 input made again": (
        two_nodes(helper.make_node("Abs", ["x"], ["x"], name="m"), RELU),
        "makes `x`, which exists",
    ),
    "too few inputs": (single_node("Add", {"x": X}), r"node n \(Add\) has 1 inputs; Add takes 2 to 2"),
    "too many inputs": (single_node("Relu", {"x": X, "z": X}), "Relu takes 1 to 1"),
    "input left out": (single_node("Add", {"x": X}, order=["x", ""]), "missing a required argument"),
    "unknown attribute": (single_node("Relu", {"x": X}, slope=1.0), "Relu of opset 21 has no attribute slope"),
    "50 attribute of another type": (
        single_node("Softmax", {"x": X}, axis=0.5),
        "attribute axis can't be of the kind FLOAT",
    ),
    "attribute missing": (single_node("Concat", {"x": X}), "attribute axis is missing"),
    "axis out of range": (single_node("Softmax", {"x": X}, axis=7), r"node n \(Softmax\): axis 7 is out of range"),
    "37 shapes do not fit": (
        single_node("MatMul", {"x": X, "z": X}),
        r"n \(MatMul\): .* 3 columns against 2 rows",
    ),
    "dtypes differ": (single_node("Add", {"x": X, "z": X.astype(np.int64)}), r"node n \(Add\): .* i64.* f32.* Cast"),
    "reshape": (reshape(4, -1), r"node n \(Reshape\): \[2, 3\] with 6 elements"),
    "axes of floats": (
        single_node("ReduceSum", {"x": X}, {"axes": np.ones(1, np.float32)}),
        "is f32, which ReduceSum does not take as axes",
    ),
    "32 element type 99": (
        with_constant(lambda t: setattr(t, "data_type", 99)),
        "c: 99 is no ONNX element type",
    ),
    "8 negative constant": (with_constant(lambda t: set_dims(t, -3)), "constant c has the shape"),
    "31 too few bytes": (with_constant(lambda t: setattr(t, "raw_data", b"12345")), "constant c can't be read"),
    "empty constant": (two_nodes(helper.make_node("Constant", [], ["c"], name="n"), RELU), "holds no value"),
    "45 gather out of range": (
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
    "15 future opset": (changed(lambda m: setattr(m.opset_import[0], "version", 999)), "opset 999"),
    "13 unknown operator": (changed(lambda m: setattr(m.graph.node[0], "op_type", "Reluu")), "did you mean Relu"),
    "14 unknown domain": (changed(lambda m: setattr(m.graph.node[0], "domain", "acme")), "the operator acme::Relu"),
    "strings": (
        changed(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 8)),
        "element type STRING, .* make numbers of texts outside of the model",
    ),
    "cast to complex numbers": (
        single_node("Cast", {"x": X}, to=onnx.TensorProto.COMPLEX64),
        r"node n \(Cast\) has element type COMPLEX64, .* Cast node: there is bool",
    ),
    "no rank": (changed(lambda m: m.graph.input[0].type.tensor_type.ClearField("shape")), "input x has; give shapes="),
    "a sequence": (
        changed(lambda m: m.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", 1, [2]))),
        "no tensor",
    ),
    "shape at run time": (
        model([helper.make_node("CumSum", ["x", "s"], ["y"], name="n")], {"x": X, "s": np.array(0)}, ["y"]),
        r"node n \(CumSum\): input `s` must be a constant, but is an input of the model: make it an initializer",
    ),
    "constant of text": (
        two_nodes(helper.make_node("Constant", [], ["c"], name="n", value_string="a"), RELU),
        "value_string",
    ),
}
TOO_LARGE = {
    "33 ConstantOfShape": (
        model([helper.make_node("ConstantOfShape", ["s"], ["y"], name="n")], {}, ["y"], {"s": np.array([1 << 32] * 2)}),
        r"node n \(ConstantOfShape\): .*18446744073709551616 elements",
    ),
    "35 Tile": (
        single_node("Tile", {"x": X}, {"r": np.array([10**6, 10**6])}),
        r"node n \(Tile\): .*6000000000000 elements",
    ),
    "47 pads": (conv(pads=[1 << 40] * 4), r"node n \(Conv\): attribute pads is \[1099511627776"),
    "53 rank 70": (rank(70), "input x has 70 dimensions, more than 32"),
    "7 input": (changed(lambda m: dimension(m, 1 << 40)), "input x has the shape"),
    "7 constant": (with_constant(lambda t: set_dims(t, 1 << 33, 4)), "constant c has the shape"),
    "34 expand": (single_node("Expand", {"x": X[:1, :1]}, {"s": np.array([2**62, 2**62])}), r"node n \(Expand\)"),
    "36 concat": (
        model(
            [helper.make_node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(40)], {"v0": X}, ["v40"]
        ),
        "its result v32",
    ),
}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"this is no model", "can't be read as ONNX"),
        (GOOD.SerializeToString()[:-7], "can't be read as ONNX"),
        (np.random.default_rng(4).bytes(4096), "can't be read as ONNX|no ONNX model"),
        *[(archive(kind), "can't be read as ONNX|no ONNX model") for kind in ("zip", "gzip", "tar")],
        (nested(10_000), "can't be read as ONNX"),
        (b"\x1c\0\0\0TFL3" + bytes(64), "TensorFlow Lite .*--tflite"),
        (b'<?xml version="1.0"?><net/>', "OpenVINO writes such models; export"),
        (b"\x80\x02}q\0.", "Python pickled it .*torch.onnx.export"),
        (b"GGUF\3\0\0\0", "weights only; export"),
        (b'{"graph": []}', "JSON; export"),
    ],
    ids=[
        *("1 empty", "2 text", "3 cut", "4 random", "6 zip", "6 gzip", "6 tar", "39 nested"),
        *("TensorFlow Lite", "OpenVINO", "pickle", "GGUF", "JSON"),
    ],
)
def test_files_that_are_no_model(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidModel, match=message):
        importer.load(path)


def check(kind: type[TilewrightError], proto: onnx.ModelProto, message: str) -> None:
    with pytest.raises(kind, match=message):
        importer.load(proto)


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
        ({"x": (2, 4)}, r"for input x: \[2, 3\], whose dimension 1 is fixed as 3"),
        ({"x": (-2, 3)}, "extents are not negative"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        importer.load(GOOD, shapes)


def test_one_dimension_with_two_values() -> None:
    infos = [helper.make_tensor_value_info(name, 1, ["n"]) for name in "ab"]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "g", infos, [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    with pytest.raises(InvalidModel, match="gives 3 and 2 for dimension n"):
        importer.load(proto, {"a": (2,), "b": (3,)})


def test_a_shape_that_depends_on_data_says_what_helps() -> None:
    info = helper.make_tensor_value_info("x", onnx.TensorProto.INT64, ["n"])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=1),
        helper.make_node("CumSum", ["x", "s"], ["y"], name="n"),
    ]
    graph = helper.make_graph(nodes, "g", [info], [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    with pytest.raises(UnsupportedModel, match=r"node n \(CumSum\): input `s` .* give these by shapes="):
        importer.load(proto)


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
            importer.load(proto)
        except TilewrightError as error:
            assert str(error)


INTEGERS = np.array([-(2**31), 5, -7], np.int32)


@pytest.mark.parametrize("divisor", [0, -1], ids=["43 by zero", "44 the least by minus one"])
@pytest.mark.parametrize("is_constant", [False, True])
def test_division_is_defined(divisor: int, is_constant: bool) -> None:
    """By zero the quotient is 0, and the least integer stays what it is: at run time as when constants are folded."""
    by = np.full(3, divisor, np.int32)
    if is_constant:
        nodes = [helper.make_node("Div", ["a", "b"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
        compiled = tilewright.compile(model(nodes, {"x": by}, ["y"], {"a": INTEGERS, "b": by}))
        (result,) = compiled.run(None, {"x": np.zeros(3, np.int32)})
    else:
        (result,) = tilewright.compile(single_node("Div", {"x": INTEGERS}, {"b": by})).run(None, {"x": INTEGERS})
    np.testing.assert_array_equal(result, [0, 0, 0] if divisor == 0 else [-(2**31), -5, 7])


@pytest.mark.parametrize(
    ("proto", "feed"),
    [
        (changed(lambda m: (m.graph.node.pop(), setattr(m.graph.output[0], "name", "x"))), X),
        (single_node("Relu", {"x": X[:0]}), X[:0]),
        (single_node("Relu", {"x": np.array(2, np.float32)}), np.array(2, np.float32)),
        (rank(32), np.ones([1] * 32, np.float32)),
    ],
    ids=["output is input", "no elements", "rank 0", "rank 32"],
)
def test_odd_and_fine(proto: onnx.ModelProto, feed: np.ndarray) -> None:
    """Row 53."""
    (result,) = tilewright.compile(proto).run(None, {"x": feed})
    np.testing.assert_array_equal(result, feed)


@pytest.mark.parametrize("index", [-(2**62), -3, 2, 2**62])
def test_an_index_out_of_range_at_run_time_reads_nothing_else(index: int) -> None:
    """Row 45: an error, or the nearest row; never memory beside the tensor."""
    feeds = {"x": X * np.array([[1], [2]], np.float32), "i": np.array([index])}
    with pytest.raises(IndexOutOfRange, match=rf"node n \(Gather\): indices: index {index} is out of range"):
        tilewright.compile(single_node("Gather", feeds)).run(None, feeds)
    (result,) = tilewright.compile(single_node("Gather", feeds), checks="off").run(None, feeds)
    np.testing.assert_array_equal(result[0], feeds["x"][0 if index < 0 else 1])

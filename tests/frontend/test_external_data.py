"""Tensors in other files: nothing but the model's folder is opened, and every number is checked before it is used."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontend.models import model, single_node
from tilewright.base.errors import InvalidModel, UntrustedData
from tilewright.frontend.onnx.read import importer
from tilewright.frontend.onnx.read.external_data import all_tensors, locations
from tilewright.graph import evaluate_graph

X = np.ones((2, 3), np.float32)
C = np.arange(3, dtype=np.float32)


def external(tensor: onnx.TensorProto, **keys: object) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in keys.items():
        tensor.external_data.add(key=key, value=str(value))


def save(folder: Path, **keys: object) -> Path:
    """A model that adds the constant c, which is external, and a file of 16 bytes that holds it from byte 4 on."""
    folder.mkdir(exist_ok=True)
    (folder / "data").write_bytes(bytes(4) + C.tobytes())
    proto = single_node("Add", {"x": X}, {"c": C})
    external(proto.graph.initializer[0], **keys)
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def result(path: Path) -> np.ndarray:
    return evaluate_graph(importer.load(path), {"x": X})[0]


@pytest.mark.parametrize(
    "keys",
    [
        {"location": "data", "offset": 4, "length": 12},
        {"location": "data", "offset": 4},
        {"location": "./data", "offset": 4},
        {"location": "data", "offset": 4, "checksum": "any"},
    ],
)
def test_good(keys: dict[str, object], tmp_path: Path) -> None:
    np.testing.assert_array_equal(result(save(tmp_path, **keys)), X + C)


def test_below_the_folder(tmp_path: Path) -> None:
    path = save(tmp_path, location="weights/all/data")
    (tmp_path / "weights" / "all").mkdir(parents=True)
    (tmp_path / "weights" / "all" / "data").write_bytes(C.tobytes())
    np.testing.assert_array_equal(result(path), X + C)


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    save(tmp_path / "real", location="data", offset=4)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    np.testing.assert_array_equal(result(tmp_path / "link" / "m.onnx"), X + C)


def hidden(change: Callable[[Path], object]) -> Callable[[Path], object]:
    """``change`` gets the model's folder, beside which there is a file ``secret``."""

    def prepare(folder: Path) -> None:
        (folder.parent / "secret").write_bytes(bytes(12))
        (folder.parent / "elsewhere").mkdir()
        (folder.parent / "elsewhere" / "secret").write_bytes(bytes(12))
        change(folder)

    return prepare


UNTRUSTED: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "17": (lambda _: None, "../secret", "only files below the model's folder"),
    "18": (lambda _: None, "a/../../secret", "only files below the model's folder"),
    "19": (lambda _: None, "/etc/hostname", "only files below the model's folder"),
    "20": (lambda f: (f / "link").symlink_to(f.parent / "secret"), "link", "a symbolic link"),
    "20 folder": (lambda f: (f / "link").symlink_to(f.parent / "elsewhere"), "link/secret", "a symbolic link"),
    "21": (lambda f: os.link(f.parent / "secret", f / "hard"), "hard", "a hard link"),
    "22 device": (lambda _: None, "/dev/zero", "only files below the model's folder"),
    "22 pipe": (lambda f: os.mkfifo(f / "pipe"), "pipe", "no regular file"),
    "22 folder": (lambda f: (f / "folder").mkdir(), "folder", "no regular file"),
    "the folder itself": (lambda _: None, ".", "only files below the model's folder"),
    "no bytes of a name": (lambda _: None, "a\0b", "only files below the model's folder"),
    "no name": (lambda _: None, "", "only files below the model's folder"),
}


@pytest.mark.parametrize("case", UNTRUSTED)
def test_untrusted(case: str, tmp_path: Path) -> None:
    prepare, location, message = UNTRUSTED[case]
    path = save(tmp_path / "model", location=location)
    hidden(prepare)(tmp_path / "model")
    with pytest.raises(UntrustedData, match=f"tensor c: its external data .*{message}"):
        importer.load(path)


@pytest.mark.parametrize(
    ("row", "keys", "message"),
    [
        (23, {"location": "none"}, "its external data none is missing"),
        (24, {"location": "data", "offset": 17}, "bytes 17 to 29 are wanted of data, which has 16"),
        (24, {"location": "data", "offset": 8}, "bytes 8 to 20 are wanted"),
        (24, {"location": "data", "offset": 2**62}, "which has 16"),
        (25, {"location": "data", "offset": -16}, "the offset of its external data is '-16'"),
        (26, {"location": "data", "length": 2**62}, r"has length 4611686018427387904, and \[3\] elements take 12"),
        (27, {"location": "data", "offset": "abc"}, "the offset of its external data is 'abc'"),
        (27, {"location": "data", "length": "9" * 40}, "the length of its external data is"),
        (0, {"offset": 4}, "has no location"),
    ],
)
def test_numbers_that_do_not_fit(row: int, keys: dict[str, object], message: str, tmp_path: Path) -> None:
    """The rows of the table of bad inputs; 0 has none."""
    with pytest.raises(InvalidModel, match=f"tensor c: .*{message}"):
        importer.load(save(tmp_path, **keys))


def sparse(location: str) -> onnx.SparseTensorProto:
    made = helper.make_sparse_tensor(numpy_helper.from_array(C, "s"), numpy_helper.from_array(np.arange(3), "i"), [3])
    external(made.values, location=location)
    return made


def _with_sparse(proto: onnx.ModelProto) -> None:
    proto.graph.sparse_initializer.append(sparse("../secret"))


def _with_attribute(proto: onnx.ModelProto) -> None:
    node = helper.make_node("Constant", [], ["s"], value=numpy_helper.from_array(C, "s"))
    external(node.attribute[0].t, location="../secret")
    proto.graph.node.insert(0, node)


def _with_sparse_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["s"], sparse_value=sparse("../secret")))


def _in_a_branch(proto: onnx.ModelProto) -> None:
    tensor = numpy_helper.from_array(C, "s")
    external(tensor, location="../secret")
    body = helper.make_graph([], "b", [], [onnx.ValueInfoProto(name="s")], [tensor])
    proto.graph.node.insert(0, helper.make_node("If", ["c"], ["s"], then_branch=body, else_branch=body))


def _in_a_function(proto: onnx.ModelProto) -> None:
    node = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(C, "s"))
    external(node.attribute[0].t, location="../secret")
    opsets = [helper.make_opsetid("", 21)]
    proto.functions.append(helper.make_function("mine", "F", [], ["y"], [node], opsets))


@pytest.mark.parametrize(
    "change", [_with_sparse, _with_attribute, _with_sparse_attribute, _in_a_branch, _in_a_function]
)
def test_every_tensor_of_the_model_is_checked(change: Callable[[onnx.ModelProto], None], tmp_path: Path) -> None:
    """Row 28."""
    proto = model([helper.make_node("Add", ["x", "s"], ["y"])], {"x": X}, ["y"], {"c": np.array(True)})
    change(proto)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(UntrustedData, match=r"tensor s: its external data is at '\.\./secret'"):
        importer.load(tmp_path / "m.onnx")


def test_an_unknown_key_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Row 29."""
    path = save(tmp_path, location="data", offset=4, __class__="x\n")
    with caplog.at_level(logging.WARNING, "tilewright"):
        np.testing.assert_array_equal(result(path), X + C)
    assert caplog.messages == ["tensor c: its external data has the unknown key __class__, which is ignored"]


@pytest.mark.parametrize("code", [onnx.TensorProto.STRING, 99, 0])
def test_element_types_that_can_not_be_external(code: int, tmp_path: Path) -> None:
    path = save(tmp_path, location="data")
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].data_type = code
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(InvalidModel, match="tensor c: tensors of element type"):
        importer.load(path)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (onnx.TensorProto.INT4, [[-1, -8, 1], [7, 2, -3]]),
        (onnx.TensorProto.UINT4, [[15, 8, 1], [7, 2, 13]]),
        (onnx.TensorProto.INT2, [[-1, -1, 0, -2], [1, 0, -1, 1], [-2, 0, 1, -1]]),
        (onnx.TensorProto.FLOAT4E2M1, [[-6, 0, 0.5], [6, 1, -3]]),
    ],
)
def test_elements_that_share_bytes(code: int, expected: list[list[float]], tmp_path: Path) -> None:
    path = save(tmp_path, location="data", length=3)
    (tmp_path / "data").write_bytes(bytes([0x8F, 0x71, 0xD2]))
    proto = onnx.load(path, load_external_data=False)
    tensor = proto.graph.initializer[0]
    tensor.data_type, tensor.dims[:] = code, np.shape(expected)
    proto.graph.node[0].CopyFrom(helper.make_node("Cast", ["c"], ["y0"], to=onnx.TensorProto.FLOAT))
    path.write_bytes(proto.SerializeToString())
    np.testing.assert_array_equal(result(path), expected)


# Which files a model reads, without reading it


def test_locations_of_every_kind_of_tensor(tmp_path: Path) -> None:
    """Constants, attributes and those of branches; each file once."""
    proto = single_node("Add", {"x": X}, {"c": C, "d": C, "inside": C})
    branch = single_node("Neg", {"b": X}, {"of_branch": C}).graph
    inner = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(C, "value"))
    proto.graph.node.extend([inner, helper.make_node("If", ["x"], ["z"], then_branch=branch, else_branch=branch)])
    tensors = [tensor for tensor in all_tensors(proto) if tensor.name not in ("", "inside")]
    for tensor in tensors:
        external(tensor, location=f"{tensor.name}.bin")
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    assert locations(path) == ["c.bin", "d.bin", "value.bin", "of_branch.bin"]


def test_weights_are_no_locations(tmp_path: Path) -> None:
    """Neither is a file parsed for what its weights happen to be, nor missed for the weights before it."""
    words = np.frombuffer(b"location" * 3, np.float32)
    path = tmp_path / "m.onnx"
    path.write_bytes(single_node("Add", {"x": np.ones((2, 6), np.float32)}, {"c": words}).SerializeToString())
    assert locations(path) == []
    proto = single_node("Add", {"x": X}, {"a": np.zeros(1 << 16, np.float32), "c": C, "z": np.zeros(5, np.float32)})
    external(proto.graph.initializer[1], location="data")
    path.write_bytes(proto.SerializeToString())
    assert locations(path) == ["data"]


@pytest.mark.parametrize(
    "content", [b"\x3a", b"\x3a\xff", b"\x3a\x05abc", b"\x0b", b"\xff" * 11, b"\x3a\x02\x2a\x05ab"]
)
def test_a_file_that_is_no_model_has_no_known_locations(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="byte"):
        locations(path)

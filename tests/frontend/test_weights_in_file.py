"""Weights that are read from a model's file one by one: against protobuf, also on damaged files."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontend.models import model
from tests.frontend.test_external_data import external
from tilewright.base.arrays import Array, has_same_bits
from tilewright.base.errors import InvalidModel, TilewrightError
from tilewright.frontend.onnx.read import external_data, importer, protos, weights_in_file
from tilewright.frontend.onnx.read.weights_in_file import LEAST, opened_apart

RANDOM = np.random.default_rng(0)
SHAPE = (17, 131)
TYPES: Mapping[str, type[np.generic] | np.dtype[np.generic]] = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8": np.dtype(ml_dtypes.float8_e4m3fn),
    "i64": np.int64,
    "u8": np.uint8,
    "bool": np.bool_,
    "i4": np.dtype(ml_dtypes.int4),
    "u4": np.dtype(ml_dtypes.uint4),
}


def weights() -> dict[str, Array]:
    """One of each type, with more bytes than are parsed, and a small one of each."""
    wide = {name: (RANDOM.integers(0, 2, (40, 300)) * 3).astype(dtype) for name, dtype in TYPES.items()}
    return {**wide, **{f"{name}.small": array[:3, :2].copy() for name, array in wide.items()}}


def file_with(constants: Mapping[str, Array], folder: Path) -> tuple[onnx.ModelProto, Path]:
    nodes = [helper.make_node("Identity", [name], [f"{name}.out"]) for name in constants]
    proto = model(nodes, {"x": np.zeros(1, np.float32)}, [f"{name}.out" for name in constants], {})
    proto.graph.initializer.extend([numpy_helper.from_array(array, name) for name, array in constants.items()])
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return proto, path


def constants_of(source: Path | onnx.ModelProto) -> dict[str, Array]:
    return {value.name: array for value, array in importer.load(source).constants.items()}


def test_they_are_those_that_protobuf_reads(tmp_path: Path) -> None:
    given = weights()
    proto, path = file_with(given, tmp_path)
    found, wanted = constants_of(path), constants_of(proto)
    assert [*found] == [*wanted]
    assert all(has_same_bits(found[name], wanted[name]) for name in wanted)
    np.testing.assert_array_equal(found["f32"], given["f32"])
    np.testing.assert_array_equal(found["i4"], given["i4"].astype(np.int8))


def test_the_message_has_none_of_their_bytes_and_arrays_lie_where_code_wants_them(tmp_path: Path) -> None:
    _, path = file_with({"large": np.ones(LEAST, np.float32), "small": np.ones(LEAST // 4 - 1, np.float32)}, tmp_path)
    with opened_apart(path) as (proto, _):
        assert [len(tensor.raw_data) for tensor in proto.graph.initializer] == [0, LEAST - 4]
    found = constants_of(path)["large"]
    assert found.ctypes.data % 64 == 0
    assert not found.flags.writeable


def test_the_file_is_closed_and_nothing_is_kept(tmp_path: Path) -> None:
    _, path = file_with({"large": np.ones(LEAST, np.float32)}, tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    with opened_apart(path) as (proto, outside):
        first, again = (outside.read(proto.graph.initializer[0], "it") for _ in range(2))
        assert first is again
    with pytest.raises(OSError, match="descriptor"):
        outside.read(proto.graph.initializer[0], "it")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_is_cut_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = file_with({"large": np.ones(LEAST, np.float32)}, tmp_path)
    real = external_data.read_at

    def cut(descriptor: int, offset: int, target: memoryview) -> int:
        os.truncate(path, 100)
        return real(descriptor, offset, target)

    monkeypatch.setattr(external_data, "read_at", cut)
    with pytest.raises(InvalidModel, match=r"constant large: m\.onnx was cut while it was read"):
        importer.load(path)


def test_external_data_beside_the_file(tmp_path: Path) -> None:
    proto, path = file_with({"large": np.ones(LEAST, np.float32), "out": np.zeros(2, np.float32)}, tmp_path)
    external(proto.graph.initializer[1], location="data")
    path.write_bytes(proto.SerializeToString())
    (tmp_path / "data").write_bytes(np.arange(2, dtype=np.float32).tobytes())
    np.testing.assert_array_equal(constants_of(path)["out"], np.arange(2))


def test_a_model_can_not_name_its_own_file_by_chance(tmp_path: Path) -> None:
    """The name of the file's own bytes is another one each time."""
    _, path = file_with({"large": np.ones(LEAST, np.float32)}, tmp_path)
    names = set[str]()
    for _ in range(2):
        with opened_apart(path) as (proto, _):
            names.add(proto.graph.initializer[0].external_data[0].value)
    assert len(names) == 2


DAMAGES: Mapping[str, Callable[[onnx.TensorProto], object]] = {
    "too few bytes": lambda tensor: tensor.dims.append(2),
    "too many bytes": lambda tensor: setattr(tensor, "raw_data", tensor.raw_data + bytes(4)),
    "a negative extent": lambda tensor: tensor.dims.append(-1),
    "no type": lambda tensor: setattr(tensor, "data_type", 0),
    "text": lambda tensor: setattr(tensor, "data_type", onnx.TensorProto.STRING),
    "external, and inside": lambda tensor: setattr(tensor, "data_location", onnx.TensorProto.EXTERNAL),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_wrong_is_said_as_of_a_message(damage: str, tmp_path: Path) -> None:
    proto, path = file_with({"large": np.ones((LEAST, 1), np.float32)}, tmp_path)
    DAMAGES[damage](proto.graph.initializer[0])
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(TilewrightError) as wanted:
        importer.load(proto, outside=external_data.ExternalData(tmp_path))
    with pytest.raises(type(wanted.value)) as found:
        importer.load(path)
    assert str(found.value) == str(wanted.value)


def outcome(path: Path, *, by_protobuf: bool) -> dict[str, Array] | type[TilewrightError]:
    """The constants, or the kind of the error: of the file, or of its bytes as protobuf reads them."""
    try:
        return constants_of(protos.parse_model(path.read_bytes()) if by_protobuf else path)
    except TilewrightError as error:
        return type(error)


def test_damaged_files_are_read_as_protobuf_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes changed, taken out, put in and repeated, anywhere in files with weights that are read apart."""
    monkeypatch.setattr(weights_in_file, "LEAST", 8)
    constants = {"a": np.arange(6, dtype=np.float32), "b": np.arange(4, dtype=np.int64), "c": np.ones(40, np.uint8)}
    _, path = file_with(constants, tmp_path)
    whole, read = path.read_bytes(), 0
    for _ in range(300):
        at, to = sorted(RANDOM.integers(0, len(whole), 2))
        some = RANDOM.bytes(int(RANDOM.integers(0, 3)))
        kinds = (whole[:at] + some + whole[at + len(some) :], whole[:at] + whole[at + 1 :], whole[:at] + whole)
        content = (*kinds, whole[:to] + whole[at:])[int(RANDOM.integers(4))]
        path.write_bytes(content)
        found, wanted = outcome(path, by_protobuf=False), outcome(path, by_protobuf=True)
        if isinstance(wanted, dict):
            read += 1
            assert isinstance(found, dict), found
            assert [*found] == [*wanted]
            assert all(has_same_bits(found[name], wanted[name]) for name in wanted)
        else:
            assert found is wanted, content
    assert read > 20

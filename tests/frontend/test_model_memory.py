"""Models that ask for much memory with few bytes: what they ask for is counted before there is any of it."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from tests.frontend.models import model, single_node
from tests.frontend.test_external_data import external
from tilewright.base.errors import InvalidModel, ResourceLimit, TilewrightError
from tilewright.base.settings import Settings
from tilewright.frontend.onnx.read import external_data, importer
from tilewright.passes.normalize import fold_constants

X = np.ones((2, 3), np.float32)
MIB = 1 << 20
LARGE = 100 * MIB
"""Bytes of files that are no models, of which hardly any are read."""


def sums(count: int, elements: int) -> onnx.ModelProto:
    """A model that adds the constants c0, c1 ... to its input."""
    nodes = [helper.make_node("Add", [f"v{i}" if i else "v", f"c{i}"], [f"v{i + 1}"]) for i in range(count)]
    constants = {f"c{i}": np.zeros(1, np.float32) for i in range(count)}
    proto = model(nodes, {"v": np.zeros(elements, np.float32)}, [f"v{count}"], constants)
    for tensor in proto.graph.initializer:
        del tensor.dims[:]
        tensor.dims.append(elements)
    return proto


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def sparse_file(path: Path, size: int) -> None:
    path.touch()
    os.truncate(path, size)


def test_bytes_that_many_tensors_name_are_read_once(tmp_path: Path) -> None:
    """100 tensors of 16 MiB in one sparse file take 16 MiB."""
    proto = sums(100, 4 * MIB)
    for tensor in proto.graph.initializer:
        external(tensor, location="data")
    sparse_file(tmp_path / "data", 16 * MIB)
    graph = importer.load(saved(proto, tmp_path), most_bytes=17 * MIB)
    first, *others = graph.constants.values()
    assert all(np.shares_memory(first, other) for other in others)
    assert len(others) == 99


def test_ranges_that_differ_are_counted_before_one_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = sums(100, 4 * MIB)
    for position, tensor in enumerate(proto.graph.initializer):
        external(tensor, location="data", offset=position)
    sparse_file(tmp_path / "data", 17 * MIB)
    path = saved(proto, tmp_path)
    monkeypatch.setattr(external_data, "read_at", lambda *_: pytest.fail("it was read"))
    with pytest.raises(ResourceLimit, match=r"tensor c4 takes 16777216 bytes after 67108864 .* the limit is 83886079"):
        importer.load(path, most_bytes=80 * MIB - 1)


def test_constants_lie_where_native_code_wants_them(tmp_path: Path) -> None:
    proto = sums(3, 5)
    for position, tensor in enumerate(proto.graph.initializer):
        external(tensor, location="data", offset=4 * position)
    (tmp_path / "data").write_bytes(np.arange(9, dtype=np.float32).tobytes())
    constants = list(importer.load(saved(proto, tmp_path)).constants.values())
    for position, constant in enumerate(constants):
        np.testing.assert_array_equal(constant, np.arange(position, position + 5, dtype=np.float32))
        assert constant.ctypes.data % 64 == 0
        assert not constant.flags.writeable


def test_a_file_that_is_cut_between_counting_and_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = sums(1, 5)
    external(proto.graph.initializer[0], location="data")
    sparse_file(tmp_path / "data", 20)
    real = external_data.read_at

    def cut(descriptor: int, offset: int, target: memoryview) -> int:
        os.truncate(tmp_path / "data", 7)
        return real(descriptor, offset, target)

    monkeypatch.setattr(external_data, "read_at", cut)
    with pytest.raises(InvalidModel, match="constant c0: data was cut while it was read"):
        importer.load(saved(proto, tmp_path))


def sparse(dims: list[int]) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.zeros(1, np.int64), "i"), dims)


def sparse_initializer(proto: onnx.ModelProto) -> None:
    proto.graph.sparse_initializer.append(sparse([1 << 33]))


def sparse_attribute(proto: onnx.ModelProto) -> None:
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["s"], sparse_value=sparse([1 << 33])))


def sparse_in_a_branch(proto: onnx.ModelProto) -> None:
    body = helper.make_graph([], "b", [], [onnx.ValueInfoProto(name="s")])
    body.sparse_initializer.append(sparse([1 << 33]))
    proto.graph.node.insert(0, helper.make_node("If", ["t"], ["s"], then_branch=body, else_branch=body))


def sparse_in_a_function(proto: onnx.ModelProto) -> None:
    node = helper.make_node("Constant", [], ["y"], sparse_value=sparse([1 << 33]))
    proto.functions.append(helper.make_function("mine", "F", [], ["y"], [node], [helper.make_opsetid("", 21)]))
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    proto.graph.node.insert(0, helper.make_node("F", [], ["s"], domain="mine"))


@pytest.mark.parametrize("add", [sparse_initializer, sparse_attribute, sparse_in_a_branch, sparse_in_a_function])
def test_sparse_constants_are_counted_with_their_zeros(add: Callable[[onnx.ModelProto], None]) -> None:
    proto = model([helper.make_node("Slice", ["s", "a", "b"], ["y"])], {"a": np.array([0])}, ["y"])
    proto.graph.initializer.extend([numpy_helper.from_array(np.array([1]), "b")])
    proto.graph.initializer.extend([numpy_helper.from_array(np.array(True), "t")])
    add(proto)
    with pytest.raises(ResourceLimit, match=r"which is sparse, with all of its zeros takes 34359738368 bytes"):
        importer.load(proto, most_bytes=1 << 30)


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = single_node("Add", {"x": X}, {"c": X})
    settings = Settings(cache_dir=None, model_bytes=23)
    with pytest.raises(ResourceLimit, match=r"constant c takes 24 bytes, .* is 23: .* raise TILEWRIGHT_MODEL_BYTES"):
        tilewright.compile(proto, settings=settings)
    assert tilewright.compile(proto, settings=Settings(cache_dir=None, model_bytes=24)).outputs


def grown(count: int) -> onnx.ModelProto:
    """Each of ``count`` values is 1 MiB that follows from two numbers, and is needed by a run."""
    nodes, last = list[onnx.NodeProto](), "x"
    for i in range(count):
        nodes.append(helper.make_node("Expand", [f"e{i}", "shape"], [f"w{i}"]))
        nodes.append(helper.make_node("Add", [last, f"w{i}"], [f"y{i}"]))
        last = f"y{i}"
    constants = {f"e{i}": np.full(1, i, np.float32) for i in range(count)}
    return model(nodes, {"x": np.zeros(1, np.float32)}, [last], {**constants, "shape": np.array([MIB // 4])})


def test_folding_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be too much stays in the graph; which it is follows from the model."""
    monkeypatch.setattr(sys.modules[fold_constants.__module__], "MOST_FOLDED", 5 * MIB)
    graph = fold_constants(importer.load(grown(8)))
    assert [node.op.name for node in graph.nodes].count("Expand") == 3
    assert sum(array.nbytes for array in graph.constants.values()) < 5 * MIB + 1000


def test_what_folding_needs_on_the_way_only_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[fold_constants.__module__], "MOST_FOLDED", 5 * MIB)
    names = [f"w{i}" for i in range(30)]
    nodes = [helper.make_node("Expand", ["e", "shape"], ["w0"])]
    nodes += [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    nodes.append(helper.make_node("Add", ["x", names[-1]], ["y"]))
    constants = {"e": np.ones(1, np.float32), "shape": np.array([MIB // 4])}
    graph = fold_constants(importer.load(model(nodes, {"x": np.zeros(1, np.float32)}, ["y"], constants)))
    assert [node.op.name for node in graph.nodes] == ["Add"]
    assert sum(array.nbytes for array in graph.constants.values()) < 2 * MIB


CHILD = """
import resource, sys
from tilewright.api import compile
from tilewright.base.errors import ResourceLimit
from tilewright.base.settings import Settings
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (100 << 20), resource.RLIM_INFINITY))
try:
    compile(sys.argv[1], settings=Settings(cache_dir=None))
except ResourceLimit as error:
    print("refused:", error)
"""


def in_little_memory(path: Path) -> str:
    """What a process that may have 100 MiB more says of the model. Fails if it dies."""
    done = subprocess.run([sys.executable, "-c", CHILD, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


def test_external_data_with_little_memory(tmp_path: Path) -> None:
    proto = sums(1, 256 * MIB)
    external(proto.graph.initializer[0], location="data")
    sparse_file(tmp_path / "data", 1024 * MIB)
    assert "refused: tensor c0 takes 1073741824 bytes, and the limit is" in in_little_memory(saved(proto, tmp_path))


def test_a_model_file_with_little_memory(tmp_path: Path) -> None:
    """What protobuf has to hold is counted before it does."""
    proto = single_node("Add", {"x": np.zeros(1, np.float32)}, {"c": np.zeros(1, np.float32)})
    proto.doc_string = 56 * MIB * "x"
    path = saved(proto, tmp_path)
    assert f"refused: reading {path} takes" in in_little_memory(path)


@pytest.mark.slow
def test_weights_in_the_file_are_in_memory_once(tmp_path: Path) -> None:
    """56 MiB of weights are read with 100 MiB of memory."""
    proto = single_node("Add", {"x": np.zeros(1, np.float32)}, {"c": np.zeros(14 * MIB, np.float32)})
    assert in_little_memory(saved(proto, tmp_path)) == ""


# What is no model is seen before it is hashed


def begins(path: Path, content: bytes, size: int = LARGE) -> None:
    """A file of so many bytes: ``content``, and then zeros."""
    path.write_bytes(content)
    os.truncate(path, size)


def number(value: int) -> bytes:
    """As Protocol Buffers write it."""
    high, low = value >> 7, value & 127
    return bytes([low | 128]) + number(high) if high else bytes([low])


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
    "3 GiB": lambda path: sparse_file(path, 3 << 30),
    "zeros": lambda path: sparse_file(path, LARGE),
    "a graph before zeros": lambda path: begins(path, b"\x3a\x02\x0a\x00"),
    "a graph that ends beyond the file": lambda path: begins(path, b"\x08\x07\x3a" + number(2 * LARGE)),
    "no graph": lambda path: begins(path, b"\x12" + number(LARGE), LARGE + 1 + len(number(LARGE))),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_is_no_model_is_refused_before_it_is_hashed(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    UNREADABLE[kind](path)
    before, read = len(os.listdir("/proc/self/fd")), bytes_read()
    with pytest.raises(TilewrightError, match=r"m\.onnx"):
        tilewright.compile(path, settings=Settings(cache_dir=tmp_path / "cache", key_dir=tmp_path / "keys"))
    assert len(os.listdir("/proc/self/fd")) == before
    assert bytes_read() - read < 4 * MIB


def bytes_read() -> int:
    """What this process has asked the system to read so far."""
    line = Path("/proc/self/io").read_text().splitlines()[0]
    return int(line.removeprefix("rchar:"))

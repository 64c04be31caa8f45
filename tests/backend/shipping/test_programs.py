"""Programs without Python and libc give the results of the model: bit by bit here, and closely on other processors."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.backend.shipping.emulator import emulate
from tests.backend.shipping.networks import lenet, sample, transformer_block
from tests.frontend.models import model as make_model
from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.shipping.freestanding_text import FUNCTIONS
from tilewright.backend.shipping.program_text import MODEL, READING, USAGE, WRITING
from tilewright.base.arrays import Array
from tilewright.base.errors import Unsupported
from tilewright.runtime.abi import ErrorCode
from tilewright.runtime.loader import load_image
from tilewright.target.target import Target

BASELINE = Target.of(Target.host().arch)


def emitted(model: onnx.ModelProto, folder: Path, target: str = "host") -> Path:
    (path,) = tilewright.compile(model, target=target).emit(folder / "program")
    return path


def outputs(data: bytes, like: tuple[Array, ...]) -> list[Array]:
    """The arrays in ``data``, which has nothing else."""
    assert len(data) == sum(array.nbytes for array in like)
    ends = np.cumsum([array.nbytes for array in like])
    pieces = (np.frombuffer(data[end - a.nbytes : end], a.dtype) for a, end in zip(like, ends, strict=True))
    return [piece.reshape(a.shape) for piece, a in zip(pieces, like, strict=True)]


def test_a_program_gives_the_bits_of_the_model(tmp_path: Path) -> None:
    x = sample((1, 1, 28, 28))
    expected = tilewright.compile(lenet(), threads=1)(x)
    path = emitted(lenet(), tmp_path)
    both = subprocess.run([path], input=x.tobytes() + x.tobytes(), capture_output=True, check=True, timeout=60)
    for given, wanted in zip(outputs(both.stdout, (*expected, *expected)), (*expected, *expected), strict=True):
        np.testing.assert_array_equal(given, wanted)
    x.tofile(tmp_path / "x.bin")
    once = subprocess.run([path, tmp_path / "x.bin"], capture_output=True, check=True, timeout=60)
    assert once.stdout == both.stdout[: len(both.stdout) // 2]


def test_a_program_says_what_it_takes_and_what_is_wrong(tmp_path: Path) -> None:
    path = emitted(lenet(), tmp_path)
    listed = subprocess.run([path, "--interface"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert listed == "input float32 1x1x28x28 3136 x\noutput float32 1x10 40 y\noutput float32 1x32 128 rest\n"
    for arguments, given, code, text in (
        ((), b"", READING, "ends early"),
        ((), b"12345", READING, "ends early"),
        ((str(tmp_path / "missing"),), b"", READING, "can't be read"),
        (("a", "b"), b"", USAGE, "1 files, or standard input"),
    ):
        found = subprocess.run([path, *arguments], input=given, capture_output=True, check=False, timeout=60)
        assert (found.returncode, found.stdout) == (code, b"")
        assert text in found.stderr.decode()


def test_outputs_that_can_not_be_written_are_an_exit_code(tmp_path: Path) -> None:
    path, x = emitted(lenet(), tmp_path), sample((1, 1, 28, 28))
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run([path], input=x.tobytes(), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60)
    assert (found.returncode, found.stderr) == (WRITING, b"an output can't be written\n")


def test_an_index_out_of_range_is_an_exit_code(tmp_path: Path) -> None:
    table = {"table": np.arange(8, dtype=np.float32).reshape(4, 2)}
    node = helper.make_node("Gather", ["table", "i"], ["y"])
    path = emitted(make_model([node], {"i": np.zeros(3, np.int64)}, ["y"], table), tmp_path)
    for indices, code, rows in (([0, 3, -1], 0, [0, 1, 6, 7, 6, 7]), ([0, 9, 1], MODEL + ErrorCode.INDEX_FROM_END, [])):
        given = np.array(indices, np.int64).tobytes()
        found = subprocess.run([path], input=given, capture_output=True, check=False, timeout=60)
        assert (found.returncode, np.frombuffer(found.stdout, np.float32).tolist()) == (code, rows)


def test_functions_of_the_c_library_are_refused_where_there_is_none(tmp_path: Path) -> None:
    floats = np.ones(3, np.float32)
    network = make_model([helper.make_node("Mod", ["a", "b"], ["y"], fmod=1)], {"a": floats, "b": floats}, ["y"])
    for target, form in (("host", "program"), ("wasm32", "wasm")):
        with pytest.raises(Unsupported, match="fmodf of the C library"):
            tilewright.compile(network, target=target).emit(tmp_path / "mod", form)
    _, header = tilewright.compile(network).emit(tmp_path / "mod.o", "object")
    assert "It calls fmodf of the C library." in header.read_text()


@pytest.mark.parametrize("target", ["aarch64", "riscv64"])
def test_programs_for_other_processors(target: str, tmp_path: Path) -> None:
    x = sample((1, 1, 28, 28))
    expected = tilewright.compile(lenet())(x)
    found = emulate(emitted(lenet(), tmp_path, target).read_bytes(), x.tobytes())
    assert (found.code, found.errors) == (0, b"")
    for given, wanted in zip(outputs(found.out, expected), expected, strict=True):
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5)


# The emulator knows neither RISC-V's vectors nor its instructions for bits.
@pytest.mark.slow
@pytest.mark.parametrize("target", ["aarch64,cortex-a72", "aarch64,cortex-a76", "riscv64,sifive-u74,-zba,-zbb"])
@pytest.mark.parametrize("network", [lenet, transformer_block])
def test_networks_on_other_processors(network, target: str, tmp_path: Path) -> None:
    model = tilewright.compile(network())
    x = sample(model.inputs[0].static_shape)
    expected = model.run(None, {"x": x})
    found = emulate(emitted(network(), tmp_path, target).read_bytes(), x.tobytes())
    assert (found.code, found.errors) == (0, b"")
    for given, wanted in zip(outputs(found.out, tuple(expected)), expected, strict=True):
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86_64", "x86_64,x86-64-v2", "host"])
def test_a_program_of_a_transformer(target: str, tmp_path: Path) -> None:
    if Target.host().arch is not Target.parse(target).arch:
        pytest.skip("it is for another processor")
    model = tilewright.compile(transformer_block(), target=target, threads=1)
    x = sample(model.inputs[0].static_shape)
    path = emitted(transformer_block(), tmp_path, target)
    found = subprocess.run([path], input=x.tobytes(), capture_output=True, check=True, timeout=60)
    np.testing.assert_array_equal(outputs(found.stdout, (model(x),))[0], model(x))


EDGES = [0.0, -0.0, 0.5, -0.5, 0.49999997, 1.5, 2.5, -2.5, 2.0**22 + 0.5, 2.0**23 + 1, 2.0**52 + 1, np.inf, -np.inf]
ORACLES = {
    "rint": np.rint,
    "nearbyint": np.rint,
    "roundeven": np.rint,
    "trunc": np.trunc,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": lambda x: np.copysign(np.modf(np.abs(x))[1] + (np.modf(np.abs(x))[0] >= 0.5), x),
}


@pytest.mark.parametrize("name", ORACLES)
def test_rounding_without_a_library(name: str) -> None:
    for suffix, kind, dtype in (("", ctypes.c_double, np.float64), ("f", ctypes.c_float, np.float32)):
        image = load_image([compile_object(FUNCTIONS[name + suffix], BASELINE)])
        function = ctypes.CFUNCTYPE(kind, kind)(image.symbol(name + suffix))
        numbers = np.array([*EDGES, *np.random.default_rng(3).normal(0, 3, 200)], dtype)
        found = np.array([function(x) for x in numbers], dtype)
        wanted = ORACLES[name](numbers)
        np.testing.assert_array_equal(found.view(f"u{found.itemsize}"), wanted.view(f"u{found.itemsize}"))
        assert np.isnan(function(np.nan))


def test_memory_without_a_library() -> None:
    image = load_image([compile_object(FUNCTIONS[name], BASELINE) for name in ("memcpy", "memmove", "memset")])
    move = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    for name in ("memcpy", "memmove"):
        for source, to in ((0, 40), (0, 3), (3, 0)):
            block = np.arange(64, dtype=np.uint8)
            wanted = block.copy()
            wanted[to : to + 20] = block[source : source + 20].copy()
            if name == "memmove" or abs(source - to) >= 20:
                address = block.ctypes.data
                assert move(image.symbol(name))(address + to, address + source, 20) == address + to
                np.testing.assert_array_equal(block, wanted)
    fill = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    block = np.zeros(8, np.uint8)
    fill(image.symbol("memset"))(block.ctypes.data, 0x107, 5)
    assert list(block) == [7] * 5 + [0] * 3

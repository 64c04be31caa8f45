"""Objects for C: by our own loader, by the C compiler where there is one, and two of them in one program."""

import ast
import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tilewright
from tests.backend.shipping.networks import lenet, opened, sample, transformer_block
from tests.frontend.models import model as make_model
from tilewright.base.arrays import Array
from tilewright.base.errors import BadInput, Unsupported
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.loader import load_image
from tilewright.runtime.objectfile import Binding, Place

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="there is no gcc")


def macros(header: Path) -> dict[str, str]:
    return dict(re.findall(r"^#define (\w+) (.+)$", header.read_text(), re.MULTILINE))


def called(address: int, sizes: dict[str, str], prefix: str, x: Array) -> tuple[int, list[Array]]:
    """``PREFIX_run`` at an address: its result, and the outputs as floats."""
    count = int(sizes[f"{prefix}_OUTPUTS"])
    results = [np.zeros(int(sizes[f"{prefix}_OUTPUT_{i}_BYTES"]) // 4, np.float32) for i in range(count)]
    room, alignment = int(sizes[f"{prefix}_SCRATCH_BYTES"]), int(sizes[f"{prefix}_SCRATCH_ALIGNMENT"])
    block = np.full(room + alignment, 0xA5, np.uint8)
    scratch = -(-block.ctypes.data // alignment) * alignment
    inputs = (ctypes.c_void_p * 1)(x.ctypes.data)
    outputs = (ctypes.c_void_p * count)(*(result.ctypes.data for result in results))
    run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(address)
    return run(ctypes.addressof(inputs), ctypes.addressof(outputs), scratch), results


def test_the_object_by_our_own_loader(tmp_path: Path) -> None:
    model, x = tilewright.compile(lenet(), threads=1), sample((1, 1, 28, 28))
    path, header = model.emit(tmp_path / "net.o", "object")
    image = load_image([path.read_bytes()])
    code, results = called(image.symbol("net_run"), macros(header), "NET", x)
    assert code == 0
    for given, wanted in zip(results, model(x), strict=True):
        np.testing.assert_array_equal(given, wanted.ravel())


def test_names_in_a_header_are_literals_of_c(tmp_path: Path) -> None:
    """Python reads octal numbers as C does; C would read ``??/`` as a backslash."""
    name = 'a"b\\c??/1\u00fc 2'
    network = make_model([helper.make_node("Relu", [name], ["y"])], {name: np.ones(3, np.float32)}, ["y"])
    (header,) = tilewright.compile(network).emit(tmp_path / "net.h", "header")
    literal = macros(header)["NET_INPUT_0_NAME"]
    assert ast.literal_eval(f"b{literal}").decode() == name
    assert "?" not in literal
    assert literal.isascii()


def test_only_one_name_is_global(tmp_path: Path) -> None:
    path, header = tilewright.compile(lenet()).emit(tmp_path / "3 nets!.o", "object")
    symbols = parse_elf(path.read_bytes()).symbols
    shared = {s.name for s in symbols if s.binding is not Binding.LOCAL and s.place is not Place.UNDEFINED}
    assert shared == {"model_3_nets__run", "model_3_nets__run_parallel"}
    assert "int model_3_nets__run(" in header.read_text()
    missing = {s.name for s in symbols if s.place is Place.UNDEFINED and s.name}
    called = re.search(r"It calls (.*) of the C library", header.read_text())
    assert missing == (set(called[1].split(", ")) if called else set())
    (alone,) = tilewright.compile(lenet()).emit(tmp_path / "other.h", "header", name="model_3_nets_")
    assert alone.read_text() == header.read_text()


MAIN = """
#include "one.h"
#include "two.h"
#include <stdio.h>
static float x[784], y[ONE_OUTPUT_0_BYTES / 4], rest[32], z[TWO_INPUT_0_BYTES / 4], w[TWO_OUTPUT_0_BYTES / 4];
static _Alignas(ONE_SCRATCH_ALIGNMENT) char first[ONE_SCRATCH_BYTES];
static _Alignas(TWO_SCRATCH_ALIGNMENT) char second[TWO_SCRATCH_BYTES];

int main(void) {
  const int shape[ONE_INPUT_0_RANK] = ONE_INPUT_0_SHAPE;
  const void *in1[ONE_INPUTS] = {x}, *in2[TWO_INPUTS] = {z};
  void *out1[ONE_OUTPUTS] = {y, rest}, *out2[TWO_OUTPUTS] = {w};
  if (shape[2] != 28 || fread(x, 1, ONE_INPUT_0_BYTES, stdin) != ONE_INPUT_0_BYTES) return 90;
  if (fread(z, 1, TWO_INPUT_0_BYTES, stdin) != TWO_INPUT_0_BYTES) return 91;
  int code = one_run(in1, out1, first);
  code |= two_run(in2, out2, second);
  fwrite(y, 1, sizeof y, stdout);
  fwrite(w, 1, sizeof w, stdout);
  return code;
}
"""


@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize("flags", [("-no-pie",), ("-pie",), ("-shared", "-fPIC")])
def test_two_models_in_a_program_in_c(flags: tuple[str, ...], tmp_path: Path) -> None:
    one, two = tilewright.compile(lenet(), threads=1), tilewright.compile(transformer_block(), threads=1)
    x, z = sample((1, 1, 28, 28)), sample((1, 12, 16))
    first, _ = one.emit(tmp_path / "one.o", "object")
    second, _ = two.emit(tmp_path / "two.o", "object")
    (tmp_path / "main.c").write_text(MAIN)
    strict = ("-Wall", "-Wextra", "-Werror", "-O1", "-Wl,--fatal-warnings")
    command = [str(GCC), *strict, *flags, str(tmp_path / "main.c"), str(first), str(second), "-lm", "-o"]
    subprocess.run([*command, str(tmp_path / "main")], check=True, timeout=120)
    if "-shared" in flags:
        library = ctypes.CDLL(str(tmp_path / "main"))
        address = ctypes.cast(library.one_run, ctypes.c_void_p).value or 0
        code, results = called(address, macros(tmp_path / "one.h"), "ONE", x)
        assert code == 0
        np.testing.assert_array_equal(results[0], one(x)[0].ravel())
        return
    found = subprocess.run([tmp_path / "main"], input=x.tobytes() + z.tobytes(), capture_output=True, timeout=60)
    assert found.returncode == 0
    assert found.stdout == one(x)[0].tobytes() + two(z).tobytes()


@needs_gcc
def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "emit.md"
    code, _ = re.findall(r"^```c\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "main.c").write_text(code)
    path, _ = tilewright.compile(transformer_block()).emit(tmp_path / "net.o", "object")
    command = [str(GCC), "-Wall", "-Werror", str(tmp_path / "main.c"), str(path), "-lm", "-o", str(tmp_path / "main")]
    subprocess.run(command, check=True, timeout=60)
    subprocess.run([tmp_path / "main"], check=True, timeout=60)


def test_what_can_not_ship(tmp_path: Path) -> None:
    model = tilewright.compile(lenet())
    with pytest.raises(BadInput, match=r"emit=wasm is not for .*; there: program, object, header"):
        model.emit(tmp_path / "net.wasm", "wasm")
    with pytest.raises(BadInput, match="form='library': choose one of program"):
        model.emit(tmp_path / "net", "library")
    for name in ("a-b", "3d", "", "tw"):
        with pytest.raises(BadInput, match="no prefix of names in C"):
            model.emit(tmp_path / "net.o", "object", name=name)
    with pytest.raises(BadInput, match="another file of it has this suffix"):
        model.emit(tmp_path / "net.h", "object")
    each = tilewright.compile(opened(lenet(), {0: "n"}), dynamic="specialize")
    with pytest.raises(Unsupported, match="give the sizes by shapes="):
        each.emit(tmp_path / "net")
    assert not list(tmp_path.iterdir())

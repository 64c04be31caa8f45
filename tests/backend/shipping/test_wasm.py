"""WebAssembly modules give the model's results in an engine, and through the JavaScript loader."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.backend.shipping.networks import lenet, sample, transformer_block
from tilewright.backend.shipping.wasm_object import Reader, padded, signed, unsigned
from tilewright.base.arrays import Array

NODE = shutil.which("node")


def described(module: bytes) -> dict[str, list[dict[str, object]]]:
    """The custom section ``tilewright``, by a search of our own."""
    at = module.rindex(b"tilewright{")
    return json.loads(module[at + len("tilewright") :])


def ran(module: bytes, x: Array, runs: int = 2) -> list[Array]:
    """The outputs, of the last of several runs."""
    wasmtime = pytest.importorskip("wasmtime")
    store = wasmtime.Store()
    exports = wasmtime.Instance(store, wasmtime.Module(store.engine, module), []).exports(store)
    facts, memory = described(module), exports["memory"]
    (given,) = facts["inputs"]
    for _ in range(runs):
        memory.write(store, x.tobytes(), given["at"])
        assert exports["run"](store, facts["context"]) == 0
    return [
        np.frombuffer(memory.read(store, one["at"], one["at"] + one["bytes"]), one["dtype"]).reshape(one["shape"])
        for one in facts["outputs"]
    ]


def test_a_module_in_an_engine(tmp_path: Path) -> None:
    x = sample((1, 1, 28, 28))
    path, loader = tilewright.compile(lenet(), target="wasm32").emit(tmp_path / "net.wasm", "wasm")
    assert loader == tmp_path / "net.js"
    for given, wanted in zip(ran(path.read_bytes(), x), tilewright.compile(lenet())(x), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["wasm32", "wasm32,-simd128"])
@pytest.mark.parametrize("network", [lenet, transformer_block])
def test_networks_in_an_engine(network, target: str, tmp_path: Path) -> None:
    model = tilewright.compile(network())
    x = sample(model.inputs[0].static_shape)
    path, _ = tilewright.compile(network(), target=target).emit(tmp_path / "net.wasm", "wasm")
    for given, wanted in zip(ran(path.read_bytes(), x), model.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5)


PAGE = """
import { readFileSync } from "node:fs";
import { load } from "./net.mjs";
const model = await load(readFileSync("net.wasm"));
const bytes = new Uint8Array(readFileSync("x.bin"));
const { y } = model.run({ x: new Float32Array(bytes.buffer) });
console.log(JSON.stringify(Array.from(y)));
try {
  model.run({ x: new Float32Array(3) });
} catch (error) {
  console.log(error.message);
}
"""


@pytest.mark.skipif(NODE is None, reason="there is no Node")
def test_the_loader_in_node(tmp_path: Path) -> None:
    x = sample((1, 1, 28, 28))
    tilewright.compile(lenet(), target="wasm32").emit(tmp_path / "net.wasm", "wasm")
    (tmp_path / "net.js").rename(tmp_path / "net.mjs")
    (tmp_path / "page.mjs").write_text(PAGE)
    x.tofile(tmp_path / "x.bin")
    command = [str(NODE), "page.mjs"]
    lines = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout
    numbers, refusal = lines.splitlines()
    np.testing.assert_allclose(json.loads(numbers), tilewright.compile(lenet())(x)[0][0], rtol=0, atol=1e-5)
    assert refusal == "input x: give a Float32Array of 784 elements (1 x 1 x 28 x 28)"


@pytest.mark.parametrize("value", [0, 63, 64, 127, 128, 8191, 8192, 1 << 20, (1 << 31) - 1])
def test_numbers_are_read_back(value: int) -> None:
    assert Reader(unsigned(value)).unsigned() == value
    assert Reader(signed(value)).signed() == value
    assert Reader(signed(-value)).signed() == -value
    assert len(padded(value)) == 5
    assert Reader(padded(value)).unsigned() == Reader(padded(value)).signed() == value

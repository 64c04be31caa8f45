"""WebAssembly modules give the model's results in an engine, and through the JavaScript loader."""

import json
import shutil
import subprocess
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import tilewright
from tests.backend.shipping.engine import ran
from tests.backend.shipping.networks import halved, lenet, opened, sample, transformer_block
from tests.service.browser import CHROMIUM, browser
from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.shipping.wasm_numbers import Reader, padded, signed, unsigned
from tilewright.backend.shipping.wasm_object import read_object
from tilewright.base.errors import BadInput
from tilewright.model import CompiledModel
from tilewright.target.target import Target

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node")
THREADED = Target.parse("wasm32,+atomics,cores=4,region_cycles=1")
THREADED_64 = Target.parse("wasm64,+atomics,cores=4,region_cycles=1")
OPEN = {0: "batch", 1: "length"}


def test_how_data_is_aligned_is_read() -> None:
    """Engines take any address, so that results do not tell."""
    text = '@some = constant [3 x i8] c"abc", align 64\n@other = constant [2 x i8] c"de", align 2\n'
    found = read_object(compile_object(text, Target.parse("wasm32")))
    assert [(segment.data, segment.alignment) for segment in found.segments] == [(b"abc", 64), (b"de", 2)]


def test_a_module_in_an_engine(tmp_path: Path) -> None:
    x = sample((1, 1, 28, 28))
    path, loader = tilewright.compile(lenet(), target="wasm32").emit(tmp_path / "net.wasm", "wasm")
    assert loader == tmp_path / "net.js"
    for given, wanted in zip(ran(path.read_bytes(), [x], runs=2), tilewright.compile(lenet())(x), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["wasm32", "wasm32,-simd128", "wasm64"])
@pytest.mark.parametrize("network", [lenet, transformer_block])
def test_networks_in_an_engine(network, target: str, tmp_path: Path) -> None:
    model = tilewright.compile(network())
    x = sample(model.inputs[0].static_shape)
    path, _ = tilewright.compile(network(), target=target).emit(tmp_path / "net.wasm", "wasm")
    for given, wanted in zip(ran(path.read_bytes(), [x], runs=2), model.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-5)


@cache
def block(target: Target | str = "host") -> CompiledModel:
    """A block of a transformer with open dimensions."""
    return tilewright.compile(opened(transformer_block(), OPEN), target=target)


@pytest.mark.slow
def test_a_module_for_any_sizes(tmp_path: Path) -> None:
    path, _ = block("wasm32").emit(tmp_path / "net.wasm", "wasm")
    for shape in ((1, 12, 16), (3, 5, 16), (16, 100, 16)):
        (found,) = ran(path.read_bytes(), [sample(shape)], shape[:2])
        np.testing.assert_allclose(found, block()(sample(shape)), rtol=0, atol=1e-5)


def test_extents_that_follow_from_others(tmp_path: Path) -> None:
    rows, _ = tilewright.compile(halved(), target="wasm32").emit(tmp_path / "rows.wasm", "wasm")
    x = sample((7, 3))
    (found,) = ran(rows.read_bytes(), [x], (7,))
    np.testing.assert_array_equal(found, x[0:6:2] + x[1::2])


def test_a_module_without_instructions_for_memory(tmp_path: Path) -> None:
    x = sample((1, 1, 28, 28))
    path, _ = tilewright.compile(lenet(), target="wasm32,-bulk-memory").emit(tmp_path / "net.wasm", "wasm")
    np.testing.assert_allclose(ran(path.read_bytes(), [x])[0], tilewright.compile(lenet())(x)[0], rtol=0, atol=1e-5)


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


def in_node(folder: Path, script: str) -> list[str]:
    """The lines that a script prints, beside ``net.wasm`` and its loader."""
    if not (folder / "net.mjs").exists():
        (folder / "net.js").rename(folder / "net.mjs")
    (folder / "page.mjs").write_text(script)
    command = [str(NODE), "page.mjs"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_node
def test_the_loader_in_node(tmp_path: Path) -> None:
    x = sample((1, 1, 28, 28))
    tilewright.compile(lenet(), target="wasm32").emit(tmp_path / "net.wasm", "wasm")
    x.tofile(tmp_path / "x.bin")
    numbers, refusal = in_node(tmp_path, PAGE)
    np.testing.assert_allclose(json.loads(numbers), tilewright.compile(lenet())(x)[0][0], rtol=0, atol=1e-5)
    assert refusal == "input x: give a Float32Array of 784 elements (1 x 1 x 28 x 28)"


THREADS = """
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { load } from "./net.mjs";
const bytes = new Uint8Array(readFileSync("x.bin"));
const x = new Float32Array(bytes.buffer);
for (const threads of [1, 2, 3, 8]) {
  const model = await load(readFileSync("net.wasm"), { threads });
  const calls = [1, 2, 3, 4].map(() => model.run({ x }, { batch: 3, length: 9 }));
  for (const { y } of await Promise.all(calls)) console.log(createHash("sha256").update(y).digest("hex"));
  await model.run({ x: new Float32Array(3) }, { batch: 3, length: 9 }).catch((error) => console.log(error.message));
  await model.run({ x }, { batch: 3 }).catch((error) => console.log(error.message));
  const again = await model.run({ x }, { batch: 3, length: 9 });
  console.log(JSON.stringify(Array.from(again.y)));
  model.close();
}
"""


@needs_node
def test_bits_are_equal_on_any_number_of_threads(tmp_path: Path) -> None:
    symbols = (symbol for one in block(THREADED).contents().objects for symbol in read_object(one).symbols)
    assert any(symbol.name == "tw_parallel_for" and symbol.index is None for symbol in symbols)
    block(THREADED).emit(tmp_path / "net.wasm", "wasm")
    x = sample((3, 9, 16))
    x.tofile(tmp_path / "x.bin")
    lines = in_node(tmp_path, THREADS)
    hashes = {line for line in lines if len(line) == 64}
    assert len(hashes) == 1
    assert len(lines) == 4 * 7
    assert lines[4:6] == [
        "input x: give a Float32Array of 432 elements (3 x 9 x 16)",
        "size length: give a whole number from 0 on",
    ]
    numbers = {line for line in lines if line.startswith("[")}
    assert len(numbers) == 1
    found = np.array(json.loads(numbers.pop())).reshape(3, 9, 16)
    np.testing.assert_allclose(found, block()(x), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize("target", ["wasm32", "wasm64"])
def test_a_page_in_a_browser(target: str, tmp_path: Path) -> None:
    (path,) = block(target).emit(tmp_path / "net.html", "page")
    x = sample((2, 5, 16))
    x.tofile(tmp_path / "x.bin")
    with browser(tmp_path / "user", "") as page:
        page.open(path.as_uri())
        page.until("document.getElementById('state')?.textContent === 'ready'")
        page.evaluate("document.querySelectorAll('#sizes input').forEach((one, i) => { one.value = [2, 5][i]; })")
        root = page.call("DOM.getDocument")["root"]["nodeId"]
        field = page.call("DOM.querySelector", nodeId=root, selector="#inputs input")["nodeId"]
        page.call("DOM.setFileInputFiles", nodeId=field, files=[str(tmp_path / "x.bin")])
        page.evaluate("document.querySelector('button').click()")
        page.until("document.getElementById('state').textContent.startsWith('done')")
        shown = str(page.evaluate("document.querySelector('#outputs pre').textContent"))
        assert page.evaluate("document.querySelector('#outputs td:nth-child(3)').textContent") == "2 x 5 x 16"
        page.evaluate("document.querySelectorAll('#sizes input')[1].value = 6")
        page.evaluate("document.querySelector('button').click()")
        page.until("document.getElementById('state').textContent.startsWith('input x: give a Float32Array')")
        assert not page.errors
    np.testing.assert_allclose(np.array(shown.split(), float), block()(x).ravel()[:16], rtol=0, atol=1e-5)


WORKERS = """
<!doctype html>
<script type="module">
import { load } from "./net.js";
const bytes = await (await fetch("x.bin")).arrayBuffer();
const found = [];
for (const threads of [1, 2, 3, 8]) {
  const model = await load("net.wasm", { threads });
  const { y } = await model.run({ x: new Float32Array(bytes) }, { batch: 3, length: 9 });
  found.push(Array.from(new Uint32Array(y.buffer)));
  model.close();
}
globalThis.found = found;
</script>
"""


class Isolated(SimpleHTTPRequestHandler):
    """Files, with the headers by which a page may share memory with its workers."""

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize("target", [THREADED, THREADED_64])
def test_workers_of_a_browser(target: Target, tmp_path: Path) -> None:
    block(target).emit(tmp_path / "net.wasm", "wasm")
    x = sample((3, 9, 16))
    x.tofile(tmp_path / "x.bin")
    (tmp_path / "page.html").write_text(WORKERS)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Isolated, directory=str(tmp_path))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with browser(tmp_path / "user", "") as page:
            page.open(f"http://127.0.0.1:{server.server_address[1]}/page.html")
            page.until("globalThis.found !== undefined")
            found = json.loads(str(page.evaluate("JSON.stringify(globalThis.found)")))
        server.shutdown()
    assert len(found) == 4
    assert all(bits == found[0] for bits in found)
    y = np.array(found[0], np.uint32).view(np.float32).reshape(x.shape)
    np.testing.assert_allclose(y, block()(x), rtol=0, atol=1e-5)


def test_what_a_page_refuses(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="leave atomics out"):
        tilewright.compile(lenet(), target="wasm32,+atomics").emit(tmp_path / "net.html", "page")
    with pytest.raises(BadInput, match="emit=page is not for"):
        tilewright.compile(lenet()).emit(tmp_path / "net.html", "page")


@pytest.mark.parametrize("value", [0, 63, 64, 127, 128, 8191, 8192, 1 << 20, (1 << 31) - 1])
def test_numbers_are_read_back(value: int) -> None:
    assert Reader(unsigned(value)).unsigned() == value
    assert Reader(signed(value)).signed() == value
    assert Reader(signed(-value)).signed() == -value
    assert len(padded(value)) == 5
    assert Reader(padded(value)).unsigned() == Reader(padded(value)).signed() == value

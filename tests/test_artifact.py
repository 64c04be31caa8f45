"""Models saved and loaded, as a user does it: same results, same bytes, and no compiler needed."""

import mmap
import os
import platform
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontend.models import model as onnx_model
from tilewright.api import CompiledModel
from tilewright.api import compile as compile_model
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadInput, CorruptArtifact, UnsupportedTarget
from tilewright.base.settings import Settings
from tilewright.runtime.artifact import generate, shared_bytes
from tilewright.runtime.loading import load
from tilewright.runtime.memory import address_of

SOURCE = Path(__file__).parent.parent / "src"
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(4, 48)).astype(np.float32)
WEIGHTS = {
    "w": RANDOM.normal(0, 48**-0.5, (48, 64)).astype(np.float32),
    "b": RANDOM.normal(size=(64,)).astype(np.float32),
    "v": RANDOM.normal(0, 64**-0.5, (64, 16)).astype(np.float32),
}


def layers(rows: str = "") -> onnx.ModelProto:
    """softmax(relu(x w + b) v) and its largest value; ``rows``: a name for their number, if it is left open."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Add", ["xw", "b"], ["z"]),
        helper.make_node("Relu", ["z"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["l"]),
        helper.make_node("Softmax", ["l"], ["p"], axis=-1),
        helper.make_node("ReduceMax", ["p"], ["top"], keepdims=0),
    ]
    made = onnx_model(nodes, {"x": X}, ["p", "top"], WEIGHTS)
    if rows:
        made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = rows
    return made


def expected(x: Array) -> Array:
    wide = x.astype(np.float64)
    logits = np.maximum(wide @ WEIGHTS["w"] + WEIGHTS["b"], 0) @ WEIGHTS["v"]
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    return compile_model(layers(), threads=2)


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    return Settings(key_dir=tmp_path / "keys")


@pytest.fixture
def path(compiled: CompiledModel, own: Settings, tmp_path: Path) -> Path:
    compiled.save(tmp_path / "m.tw", settings=own)
    return tmp_path / "m.tw"


def test_a_loaded_model_is_the_compiled_one(compiled: CompiledModel, own: Settings, path: Path) -> None:
    loaded = load(path, settings=own)
    assert (loaded.inputs, loaded.outputs) == (compiled.inputs, compiled.outputs)
    for one, other in zip(loaded.run(None, {"x": X}), compiled.run(None, {"x": X}), strict=True):
        np.testing.assert_array_equal(one, other)
    results = loaded(X)
    assert isinstance(results, tuple)
    np.testing.assert_allclose(results[0], expected(X), rtol=1e-5)
    (top,) = loaded.run(["top"], {"x": X})
    np.testing.assert_allclose(top, expected(X).max(), rtol=1e-5)
    with pytest.raises(BadFeed, match="there is no output q"):
        loaded.run(["q"], {"x": X})
    with pytest.raises(BadFeed, match="takes 1 inputs"):
        loaded(X, X)


def test_weights_are_used_where_they_are_mapped(own: Settings, path: Path) -> None:
    executable = load(path, mmap=True, settings=own)._executable
    mapped = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
    spans = [tuple(int(end, 16) for end in line[0].split("-")) for line in mapped]
    whole = [array for array in executable.constants if array.nbytes % 64 == 0]
    assert whole
    for array in whole:
        assert not array.flags.writeable
        assert any(start <= address_of(array) < end for start, end in spans)


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="a system without huge pages")
def test_a_mapped_file_asks_for_huge_pages(own: Settings, path: Path) -> None:
    loaded = load(path, mmap=True, settings=own)
    maps = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    (flags,) = [re.findall(r"VmFlags:.*", one)[0].split() for one in maps if one.splitlines()[:1] and str(path) in one]
    assert "hg" in flags
    del loaded


@pytest.mark.parametrize("mmap", [False, True])
def test_the_file_may_be_replaced_or_removed_while_its_model_runs(
    compiled: CompiledModel, own: Settings, path: Path, mmap: bool
) -> None:
    loaded = load(path, mmap=mmap, settings=own)
    compile_model(layers(), threads=1).save(path, settings=own)
    np.testing.assert_array_equal(loaded.run(None, {"x": X})[0], compiled.run(None, {"x": X})[0])
    path.unlink()
    np.testing.assert_array_equal(loaded.run(None, {"x": X})[0], compiled.run(None, {"x": X})[0])


OVERWRITE = """
import os, sys
import numpy as np
import tilewright
from tilewright.base.errors import CorruptArtifact

path, change, mmap = sys.argv[1:]
model = tilewright.load(path, mmap=mmap == "mmap")
x = np.ones((4, 48), np.float32)
before = model.run(None, {"x": x})
size = os.stat(path).st_size
with open(path, "r+b") as file:
    match change:
        case "shorter":
            file.truncate(100)
        case "empty":
            file.truncate(0)
        case "longer":
            file.truncate(size + 4096)
        case "other":
            file.write(b"\\xff" * size)
try:
    after = model.run(None, {"x": x})
    assert all(np.array_equal(a, b) for a, b in zip(before, after))
    print("the same")
except CorruptArtifact as error:
    print(error)
"""


@pytest.mark.parametrize("mmap", ["", "mmap"])
@pytest.mark.parametrize("change", ["shorter", "empty", "longer", "other"])
def test_a_file_that_is_written_into_while_its_model_is_in_use(
    path: Path, own: Settings, change: str, mmap: str
) -> None:
    """In place, as ``cp`` does. Nobody dies; what was read stays, and what is mapped is not used."""
    told = _python(OVERWRITE, str(path), change, mmap, TILEWRIGHT_KEY_DIR=str(own.key_dir))
    if mmap:
        assert f"somebody wrote into the artifact {path} while its model was in use: load it again" in told
    else:
        assert told == "the same\n"


def test_run_time_extents(own: Settings, tmp_path: Path) -> None:
    model = compile_model(layers("n"), shapes={"x": ("n", 48)}, bounds={"n": 64}, threads=1)
    model.save(tmp_path / "m.tw", settings=own)
    loaded = load(tmp_path / "m.tw", settings=own)
    assert loaded.inputs[0].shape == ("n", 48)
    for rows in (1, 3, 7):
        x = RANDOM.normal(size=(rows, 48)).astype(np.float32)
        np.testing.assert_allclose(loaded.run(["p"], {"x": x})[0], expected(x), rtol=1e-5)


def test_saving_leaves_nothing_beside(path: Path, tmp_path: Path) -> None:
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["keys", "m.tw"]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_where_it_can_not_be_saved(compiled: CompiledModel, own: Settings, tmp_path: Path) -> None:
    (tmp_path / "folder.tw").mkdir()
    for place in (tmp_path / "none" / "m.tw", tmp_path / "folder.tw"):
        with pytest.raises(BadInput, match=rf"{place} can't be written"):
            compiled.save(place, settings=own)
    with pytest.raises(BadInput, match="set TILEWRIGHT_KEY_DIR"):
        compiled.save(tmp_path / "m.tw", settings=Settings(key_dir=None))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder.tw"]
    compiled.save(tmp_path / "m.tw", signed=False, settings=Settings(key_dir=None))


def test_a_model_is_saved_with_a_key(compiled: CompiledModel, own: Settings, tmp_path: Path) -> None:
    public = generate(tmp_path / "k.pem")
    compiled.save(tmp_path / "m.tw", key=tmp_path / "k.pem", settings=own)
    assert load(tmp_path / "m.tw", settings=own).signer == "this user"
    loaded = load(tmp_path / "m.tw", trust=str(public), settings=Settings(key_dir=None))
    assert loaded.signer == str(public)
    np.testing.assert_array_equal(loaded.run(None, {"x": X})[0], compiled.run(None, {"x": X})[0])
    with pytest.raises(BadInput, match="it is an input"):
        compiled.save(tmp_path / "k.pem", key=tmp_path / "k.pem", settings=own)


def test_a_model_is_not_saved_over_its_source(own: Settings, tmp_path: Path) -> None:
    onnx.save(layers(), tmp_path / "m.onnx")
    before = (tmp_path / "m.onnx").read_bytes()
    os.link(tmp_path / "m.onnx", tmp_path / "m.tw")
    with pytest.raises(BadInput, match="it is an input"):
        compile_model(tmp_path / "m.onnx").save(tmp_path / "m.tw", settings=own)
    assert (tmp_path / "m.onnx").read_bytes() == before


COMPILE = """
import sys, tilewright
rows = {"shapes": {"x": ("n", 48)}, "bounds": {"n": 64}} if sys.argv[3:] else {}
tilewright.compile(sys.argv[1], target="x86_64,x86-64-v2", **rows).save(sys.argv[2])
"""


@pytest.mark.parametrize("rows", [(), ("n",)])
def test_the_same_bytes_from_every_process(tmp_path: Path, rows: tuple[str, ...]) -> None:
    onnx.save(layers(*rows), tmp_path / "m.onnx")
    made: list[bytes] = []
    for seed in ("0", "77"):
        file = tmp_path / f"{seed}.tw"
        variables = {
            "PYTHONHASHSEED": seed,
            "TILEWRIGHT_CACHE_DIR": "off",
            "TILEWRIGHT_KEY_DIR": str(tmp_path / "keys"),
        }
        _python(COMPILE, str(tmp_path / "m.onnx"), str(file), *rows, **variables)
        made.append(file.read_bytes())
    assert made[0] == made[1]


def test_users_differ_in_the_signature_only(compiled: CompiledModel, tmp_path: Path) -> None:
    for user in ("ada", "eve"):
        compiled.save(tmp_path / f"{user}.tw", settings=Settings(key_dir=tmp_path / user))
    compiled.save(tmp_path / "unsigned.tw", signed=False)
    ada, eve, unsigned = ((tmp_path / f"{name}.tw").read_bytes() for name in ("ada", "eve", "unsigned"))
    signature = ada.index(b"hmac-sha256 ")
    header = ada.rindex(b"PK\3\4", 0, signature)
    assert len(ada) == len(eve)
    assert ada[:header] == eve[:header] == unsigned[:header]
    assert unsigned[header : header + 4] == b"PK\1\2"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names what x86-64 lacks")
@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("aarch64,neoverse-n1", "it is code for aarch64, and this machine is x86_64"),
        ("x86_64,haswell,+avx10.2", "it needs .*, which this processor has not"),
    ],
)
def test_a_model_for_another_machine_is_saved_and_refuses_to_run(
    own: Settings, tmp_path: Path, target: str, reason: str
) -> None:
    model = compile_model(layers(), target=target)
    with pytest.raises(UnsupportedTarget, match=f"{reason}; save it and load it there"):
        model(X)
    model.save(tmp_path / "m.tw", settings=own)
    with pytest.raises(CorruptArtifact, match=f"{reason}; compile the model for this machine"):
        load(tmp_path / "m.tw", settings=own)


RUN = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("llvmlite", "onnx", "rich", "google", "safetensors"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Refuse())
import numpy as np
import tilewright

model = tilewright.load(sys.argv[1])
np.save(sys.argv[3], model.run(["p"], {"x": np.load(sys.argv[2])})[0])
loaded = {name.split(".")[1] for name in sys.modules if name.startswith("tilewright.")}
assert loaded == {"base", "runtime"}, loaded
"""


def _python(program: str, *arguments: str, **variables: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(SOURCE), **variables}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=True, timeout=120, env=environ, stdout=subprocess.PIPE, text=True).stdout


def test_loading_needs_no_compiler(path: Path, own: Settings, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    _python(RUN, str(path), str(tmp_path / "x.npy"), str(tmp_path / "p.npy"), TILEWRIGHT_KEY_DIR=str(own.key_dir))
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), expected(X), rtol=1e-5)


@pytest.mark.slow
def test_an_environment_with_numpy_only(path: Path, own: Settings, tmp_path: Path) -> None:
    """The wheel without its dependencies, NumPy and ml-dtypes, in an environment of its own."""
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    subprocess.run([*pip, "--no-deps", str(SOURCE.parent)], check=True, timeout=300)
    subprocess.run([*pip, "numpy", "ml-dtypes"], check=True, timeout=300)
    np.save(tmp_path / "x.npy", X)
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    arguments = [str(path), str(tmp_path / "x.npy"), str(tmp_path / "p.npy")]
    subprocess.run(
        [python, "-c", RUN, *arguments],
        check=True,
        timeout=60,
        cwd=tmp_path,
        env={**environ, "TILEWRIGHT_KEY_DIR": str(own.key_dir)},
    )
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), expected(X), rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_four_threads_call_one_model(path: Path, own: Settings, threads: int) -> None:
    loaded = load(path, threads=threads, settings=own)
    inputs = [RANDOM.normal(size=X.shape).astype(np.float32) for _ in range(4)]
    right = [loaded.run(["p"], {"x": x})[0].tobytes() for x in inputs]
    wrong: list[int] = []

    def call(first: int) -> None:
        for turn in range(1000):
            which = (first + turn) % 4
            if loaded.run(None, {"x": inputs[which]})[0].tobytes() != right[which]:
                wrong.append(which)

    callers = [threading.Thread(target=call, args=(first,)) for first in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
    for x, result in zip(inputs, right, strict=True):
        np.testing.assert_allclose(np.frombuffer(result, np.float32).reshape(4, 16), expected(x), rtol=1e-5)


def test_no_threads_are_refused(path: Path, own: Settings) -> None:
    with pytest.raises(BadInput, match="threads=0: "):
        compile_model(layers(), threads=0)
    with pytest.raises(BadInput, match="threads=0: "):
        load(path, threads=0, settings=own)


@pytest.mark.parametrize(
    ("told", "is_mapped"),
    [
        ("FilePmdMapped:    10240 kB", True),
        ("FilePmdMapped:     6144 kB", True),
        ("FilePmdMapped:     4096 kB", False),
        ("FilePmdMapped:        0 kB", False),
        ("", True),
    ],
)
def test_a_file_of_the_cache_is_mapped_unless_it_lies_in_small_pages(
    told: str, is_mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system tells it: in which pages it keeps a file depends on how file systems are mounted."""
    few, many = tmp_path / "few", tmp_path / "many"
    few.write_bytes(b"few")
    many.write_bytes(bytes(range(256)) * (9 << 12))
    assert isinstance(shared_bytes(few).obj, mmap.mmap)
    place, other = f"0-{1 << 64:x} r--s 00000000 00:1a 77   {many}", "fffffffffffff000-ffffffffffffffff ---p"
    text = f"{other}\nFilePmdMapped:        1 kB\n{place}\nRss:        9216 kB\n{told}\n"
    monkeypatch.setattr(Path, "read_text", lambda path, **_: text)
    assert isinstance(shared_bytes(many).obj, mmap.mmap) == is_mapped


def test_what_the_system_tells_of_pages_is_read(tmp_path: Path) -> None:
    """Whatever that is."""
    many, content = tmp_path / "many", bytes(range(256)) * 16
    with many.open("wb", buffering=0) as file:
        for _ in range(9 << 8):  # most file systems keep pieces of a page in pages
            file.write(content)
    data = shared_bytes(many)
    if not isinstance(data.obj, mmap.mmap):
        many.write_bytes(b"")
    assert data.readonly
    assert bytes(data) == content * (9 << 8)

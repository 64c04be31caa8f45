"""What users of other runtimes do with a model: results in their own arrays, bound arrays, futures, bytes, pickles."""

import asyncio
import copy
import gc
import io
import multiprocessing
import pickle
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
import tilewright.te as te
from tests.base.test_forks import in_child
from tests.test_artifact import X, expected, layers
from tilewright.api import CompiledModel
from tilewright.base.arrays import Array
from tilewright.base.errors import (
    BadFeed,
    BadInput,
    CorruptArtifact,
    IndexOutOfRange,
    InvalidModel,
    Timeout,
    UnsupportedModel,
    UntrustedData,
)
from tilewright.base.settings import Settings
from tilewright.runtime.callers import Callers
from tilewright.runtime.runnable import RunnableModel

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on: "is multi-threaded"

P, TOP = np.empty((4, 16), np.float32), np.empty((), np.float32)


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    """Two outputs, p [rows, 16] and top [], of any number of rows of x."""
    return tilewright.compile(layers("rows"), threads=2)


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    return Settings(key_dir=tmp_path / "keys")


@pytest.fixture
def saved(model: CompiledModel, own: Settings, tmp_path: Path) -> Path:
    model.save(tmp_path / "m.tw", settings=own)
    return tmp_path / "m.tw"


def inputs(rows: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, 48)).astype(np.float32)


def right(p: Array, x: Array) -> bool:
    return np.allclose(p, expected(x), rtol=1e-4, atol=1e-6)


# Results in given arrays


@pytest.mark.parametrize("rows", [1, 4, 37])
def test_results_are_in_the_given_arrays(model: CompiledModel, rows: int) -> None:
    x, p, top = inputs(rows), np.zeros((rows, 16), np.float32), np.zeros((), np.float32)
    for out in ({"p": p, "top": top}, (p, top), [p, top]):
        p[...] = top[...] = np.nan
        results = model.run(None, {"x": x}, out=out)
        assert results[0] is p
        assert results[1] is top
        assert right(p, x)
        np.testing.assert_array_equal(top, p.max())
    (only,) = model.run(["top"], {"x": x}, out=[top])
    assert only is top
    first, second = model.run(None, {"x": x}, out={"top": top})
    assert second is top
    assert right(first, x)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ({"p": np.empty((3, 16), np.float32)}, r"output p: .*allocate it as np.empty\(\(4, 16\), 'float32'\)"),
        ({"p": np.empty((4, 16))}, r"was given float64\[4, 16\]"),
        (
            {"p": np.empty((4, 32), np.float32)[:, ::2]},
            "p: .* is not C-contiguous and aligned, so results would be copied",
        ),
        ({"p": np.empty((16, 4), np.float32).T}, "not C-contiguous"),
        ({"p": np.empty(257, np.uint8)[1:].view(np.float32).reshape(4, 16)}, "not C-contiguous"),
        ({"p": np.broadcast_to(np.float32(0), (4, 16))}, "read-only"),
        ({"p": [[0.0] * 16] * 4}, "no NumPy array"),
        ({"q": P}, "the model has no output 'q'"),
        ((P,), "out has 1 arrays, and the outputs are 2: p, top"),
        (P, "give a mapping by name, or a sequence"),
        (7, "out=7: give a mapping by name"),
        ({"p": X.reshape(-1)[:64].reshape(4, 16)}, "p: .* shares memory with input x"),
        ({"p": P, "top": P.reshape(-1)[63:].reshape(())}, "top: .* shares memory with output p"),
    ],
)
def test_arrays_that_do_not_fit(model: CompiledModel, out: object, message: str) -> None:
    for call in (lambda: model.run(None, {"x": X}, out=out), lambda: model.bind({"x": X}, out)):  # type: ignore[arg-type]
        with pytest.raises(BadFeed, match=message):
            call()


def test_an_output_named_twice(model: CompiledModel) -> None:
    with pytest.raises(BadFeed, match="named twice"):
        model.run(["top", "top"], {"x": X}, out=[TOP, TOP.copy()])
    with pytest.raises(BadFeed, match="no output q"):
        model.run(["q"], {"x": X}, out=[TOP])


def test_memory_next_to_an_input_may_be_given(model: CompiledModel) -> None:
    whole = np.zeros(4 * 48 + 4 * 16, np.float32)
    x, p = whole[: 4 * 48].reshape(4, 48), whole[4 * 48 :].reshape(4, 16)
    x[...] = X
    model.run(["p"], {"x": x}, out=[p])
    assert right(p, X)


# Bound arrays


@pytest.mark.parametrize("rows", [1, 9])
def test_bound_arrays_are_read_and_written_in_each_run(model: CompiledModel, rows: int) -> None:
    x, p = inputs(rows), np.empty((rows, 16), np.float32)
    bound = model.bind({"x": x}, {"p": p})
    assert bound.outputs["p"] is p
    assert np.shares_memory(bound.inputs["x"], x)
    for seed in range(5):
        x[...] = inputs(rows, seed)
        results = bound()
        assert results[0] is p
        assert results[1] is bound.outputs["top"]
        assert right(p, x)
        np.testing.assert_array_equal(results[1], p.max())


def test_a_bound_run_allocates_nothing(model: CompiledModel) -> None:
    bound = model.bind({"x": X.copy()})
    for _ in range(20):
        bound()
    tracemalloc.start()
    try:
        bound()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            bound()
        assert tracemalloc.get_traced_memory()[0] - before < 1000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[0.0] * 48], "has no memory to bind"),
        (np.zeros((4, 48)), r"float64\[4, 48\]; convert it"),
        (np.zeros((4, 96), np.float32)[:, ::2], "it is not C-contiguous and aligned, so it would be copied"),
        (np.zeros((4, 47), np.float32), "give an array of that shape"),
    ],
)
def test_inputs_that_cannot_be_bound(model: CompiledModel, value: object, message: str) -> None:
    with pytest.raises(BadFeed, match=message):
        model.bind({"x": value})
    with pytest.raises(BadFeed, match="no input 'y'"):
        model.bind({"y": X})
    with pytest.raises(BadFeed, match="input 'x' is missing"):
        model.bind({})


def test_bound_arrays_of_several_threads(model: CompiledModel) -> None:
    bounds = [model.bind({"x": inputs(8, seed)}) for seed in range(4)]
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(50):
            if not right(bounds[number]()[0], inputs(8, number)):
                wrong.append(number)

    together([lambda number=number: call(number) for number in range(4)])
    assert not wrong


def test_one_binding_runs_once_at_a_time(model: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, executable, refused = model.bind({"x": X}), model.executable, list[BadInput]()
    enter = executable._entry.releasing  # type: ignore[attr-defined]

    def while_it_runs(context: int) -> int:
        with pytest.raises(BadInput, match="in use by another run") as error:
            bound()
        refused.append(error.value)
        return enter(context)

    with monkeypatch.context() as patched:
        patched.setattr(executable._entry, "call", while_it_runs)  # type: ignore[attr-defined]
        bound()
    assert len(refused) == 1
    assert right(bound()[0], X)


def test_a_bound_run_stops_and_fails_as_others() -> None:
    ours = tilewright.compile(gathering(), threads=1)
    at = np.array([0, 2])
    bound = ours.bind({"i": at})
    np.testing.assert_array_equal(bound()[0], [0, 2])
    at[1] = 5
    with pytest.raises(IndexOutOfRange, match="index 5"):
        bound()
    at[1] = 1
    with pytest.raises(Timeout):
        bound(timeout=0)
    np.testing.assert_array_equal(bound()[0], [0, 1])
    with pytest.raises(BadInput, match="timeout="):
        bound(timeout=-1)
    np.testing.assert_array_equal(bound()[0], [0, 1])


def test_a_bound_model_keeps_its_code(model: CompiledModel) -> None:
    other = tilewright.compile(layers(), threads=1)
    gone, bound = weakref.ref(other), other.bind({"x": X})
    del other
    gc.collect()
    assert gone() is None
    assert right(bound()[0], X)


def test_a_forked_child_runs_what_its_parent_bound(model: CompiledModel) -> None:
    bound = model.bind({"x": X})
    bound()
    assert in_child(lambda: right(bound()[0], X) or 1 / 0) == 0  # type: ignore[arg-type]


def test_models_of_each_size_are_bound_by_their_inputs() -> None:
    ours = tilewright.compile(layers("rows"), dynamic="specialize", threads=1)
    bound = {rows: ours.bind({"x": inputs(rows)}) for rows in (1, 3)}
    for rows, each in bound.items():
        assert right(each()[0], inputs(rows))


def test_a_model_of_another_back_end_is_bound() -> None:
    ours, x = tilewright.compile(small(), backend="reference"), np.array([-1.0, 2.0], np.float32)
    bound = ours.bind({"x": x}, {"y": (y := np.empty(2, np.float32))})
    bound()
    np.testing.assert_array_equal(y, [0, 2])
    x[:] = 3, -3
    assert bound()[0] is y
    np.testing.assert_array_equal(y, [3, 0])


def test_a_model_for_another_machine_is_not_bound() -> None:
    with pytest.raises(tilewright.UnsupportedTarget, match="can't run here"):
        tilewright.compile(small(), target="aarch64,neoverse-n1").bind({"x": np.zeros(2, np.float32)})


# Futures


def test_runs_in_flight(model: CompiledModel) -> None:
    xs = [inputs(rows + 1, rows) for rows in range(12)]
    futures = [model.run_async(["p"], {"x": x}) for x in xs]
    assert all(right(future.result()[0], x) for future, x in zip(futures, xs, strict=True))
    failed = model.run_async(None, {"y": X})
    with pytest.raises(BadFeed, match="no input 'y'"):
        failed.result()

    async def serve() -> list[Array]:
        return await asyncio.wrap_future(model.run_async(None, {"x": X}, out=(P, TOP)))

    assert asyncio.run(serve())[0] is P
    assert right(P, X)


def test_runs_that_are_stopped_or_do_not_begin(model: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Timeout):
        model.run_async(None, {"x": X}, timeout=0).result()
    monkeypatch.setattr(model, "_callers", Callers(1))
    begun, let_go = threading.Event(), threading.Event()
    enter = model.executable._entry.releasing  # type: ignore[attr-defined]

    def slow(context: int) -> int:
        begun.set()
        assert let_go.wait(30)
        return enter(context)

    with monkeypatch.context() as patched:
        patched.setattr(model.executable._entry, "call", slow)  # type: ignore[attr-defined]
        runs = [model.run_async(["p"], {"x": X}) for _ in range(2)]
        assert begun.wait(30)
        assert [run.cancel() for run in runs] == [False, True]
        let_go.set()
        assert right(runs[0].result()[0], X)


def test_a_forked_child_has_threads_of_its_own_for_runs(model: CompiledModel) -> None:
    model.run_async(None, {"x": X}).result()
    assert in_child(lambda: right(model.run_async(None, {"x": X}).result(60)[0], X) or 1 / 0) == 0  # type: ignore[arg-type]


# Models as bytes


class NoBytes:
    def read(self) -> str:
        return "text"


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, io.BytesIO])
def test_models_in_memory(wrap: Callable[[bytes], object], model: CompiledModel, own: Settings, saved: Path) -> None:
    content = layers("rows").SerializeToString()
    made = tilewright.compile(wrap(content), threads=2)
    assert made.executable.manifest == model.executable.manifest
    assert right(made(X)[0], X)
    loaded = tilewright.load(wrap(saved.read_bytes()), settings=own)  # type: ignore[arg-type]
    assert right(loaded(X)[0], X)
    assert loaded.signer == "this user"


def test_open_files(saved: Path, own: Settings, tmp_path: Path) -> None:
    onnx.save(layers("rows"), tmp_path / "m.onnx")
    with (tmp_path / "m.onnx").open("rb") as file:
        assert right(tilewright.compile(file)(X)[0], X)
    with saved.open("rb") as file:
        assert right(tilewright.load(file, settings=own)(X)[0], X)
    with (tmp_path / "m.onnx").open() as file, pytest.raises(BadInput, match="can't be read from"):
        tilewright.compile(file)
    with pytest.raises(BadInput, match=r"gives no bytes; open it by open\(path, 'rb'\)"):
        tilewright.compile(NoBytes())
    with pytest.raises(BadInput, match="closed file"):
        tilewright.compile(file)


@pytest.mark.parametrize("junk", [b"", b"PK\3\4" + bytes(100_000), bytes(100_000), b"<html>"])
def test_bytes_that_are_no_model(junk: bytes, own: Settings) -> None:
    with pytest.raises(InvalidModel, match="the model in memory") as error:
        tilewright.compile(junk)
    assert len(str(error.value)) < 500
    with pytest.raises(CorruptArtifact, match="the artifact in memory") as error:
        tilewright.load(junk, trust=True, settings=own)
    assert len(str(error.value)) < 500


def test_bytes_are_trusted_as_files_are(saved: Path, tmp_path: Path, own: Settings) -> None:
    content = saved.read_bytes()
    with pytest.raises(UntrustedData, match="not known to be this user's"):
        tilewright.load(content, settings=Settings(key_dir=tmp_path / "others"))
    with pytest.raises(BadInput, match="mmap=True maps a file"):
        tilewright.load(content, mmap=True, settings=own)
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    with pytest.raises(CorruptArtifact):
        tilewright.load(changed, settings=own)


def test_a_model_in_memory_is_reproduced_and_compared(tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path / "cache", key_dir=tmp_path / "keys")
    content = layers().SerializeToString()
    first, second = (tilewright.compile(content, settings=settings) for _ in range(2))
    assert (first.is_cached, second.is_cached) == (False, True)
    assert first.compare(X, per_layer=False).first is None
    with pytest.raises(UnsupportedModel, match="Bernoulli"):
        tilewright.compile(single("Bernoulli").SerializeToString())


# Copies and pickles


def run_elsewhere(model: RunnableModel, x: Array) -> Array:
    return model.run(["p"], {"x": x})[0]


def test_a_model_is_its_own_copy(model: CompiledModel) -> None:
    assert copy.copy(model) is model
    assert copy.deepcopy({"model": model})["model"] is model


@pytest.mark.parametrize("mmap", [False, True])
def test_a_loaded_model_is_pickled_by_its_path(
    saved: Path, own: Settings, mmap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved.parent)
    loaded = tilewright.load(saved.name, mmap=mmap, threads=1, settings=own)
    pickled = pickle.dumps(loaded)
    assert len(pickled) < 1000
    monkeypatch.chdir("/")
    again = pickle.loads(pickled)
    assert right(again(X)[0], X)
    assert type(again) is type(loaded)
    assert again.signer == "this user"
    assert again.executable.threads == 1
    assert pickle.dumps(again) == pickled


def test_the_file_of_a_pickle_must_be_there_unchanged(saved: Path, own: Settings) -> None:
    pickled = pickle.dumps(tilewright.load(saved, settings=own))
    tilewright.compile(layers(), threads=1).save(saved, settings=own)
    with pytest.raises(CorruptArtifact, match="it is another artifact than the one that is wanted"):
        pickle.loads(pickled)
    saved.unlink()
    with pytest.raises(BadInput, match="can't be opened"):
        pickle.loads(pickled)


def test_other_models_are_pickled_by_their_bytes(model: CompiledModel, saved: Path, own: Settings) -> None:
    in_memory = tilewright.load(saved.read_bytes(), settings=own)
    saved.unlink()
    for each in (model, in_memory):
        again = pickle.loads(pickle.dumps(each))
        assert type(again) is RunnableModel
        assert right(again(X)[0], X)
        assert right(pickle.loads(pickle.dumps(again))(X)[0], X)


def test_a_kernel_is_pickled() -> None:
    a = te.placeholder((8,), name="A")
    kernel = te.build(te.create_schedule(te.compute((8,), lambda i: a[i] + a[i], name="B")))
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kernel))(x), x + x)


def test_models_that_cannot_be_pickled() -> None:
    ours = tilewright.compile(layers("rows"), dynamic="specialize", threads=1)
    with pytest.raises(BadInput, match=r"no version is there yet: .* model.version\(rows=...\)"):
        pickle.dumps(ours)
    with pytest.raises(tilewright.Unsupported, match="nothing that can be pickled"):
        pickle.dumps(tilewright.compile(small(), backend="reference"))


def test_a_spawned_process_gets_a_model(model: CompiledModel, saved: Path, own: Settings) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for each in (model, tilewright.load(saved, settings=own)):
            assert right(pool.apply(run_elsewhere, (each, X)), X)


def together(calls: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def single(operator: str) -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["": 21]> one (float[2] x) => (float[2] y) {{ y = {operator}(x) }}'
    return onnx.parser.parse_model(text)


def small() -> onnx.ModelProto:
    return single("Relu")


def gathering() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (int64[2] i) => (float[2] y) '
        "<float[3] table = {0, 1, 2}> { y = Gather(table, i) }"
    )

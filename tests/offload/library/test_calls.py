"""What a library computes in a model is what ONNX Runtime computes; without the library, the error has the remedy."""

import json
import os
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model, run_onnxruntime, single_node
from tilewright.base.errors import BadArtifact, BadInput, CorruptArtifact, Unsupported
from tilewright.cli import main
from tilewright.offload.library import placing
from tilewright.offload.library.model import LibraryModel
from tilewright.offload.library.timing import Stopwatch, Times, step_of
from tilewright.offload.library.units import Unit
from tilewright.runtime.library import onednn, step
from tilewright.runtime.library.onednn import library
from tilewright.runtime.library.primitive import Function, Layout, Window
from tilewright.runtime.manifest import TensorSpec
from tilewright.runtime.runnable import RunnableModel

Floats = NDArray[np.float32]


def installed() -> bool:
    try:
        library()
    except Unsupported:
        return False
    return True


needs_library = pytest.mark.skipif(not installed(), reason="oneDNN is not installed: pip install 'tilewright[onednn]'")


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def always(proto: onnx.ModelProto, threads: int = 1) -> LibraryModel:
    made = tilewright.compile(proto, library="onednn,always", threads=threads)
    assert isinstance(made, LibraryModel)
    return made


def check(proto: onnx.ModelProto, feeds: Mapping[str, Floats], calls: int = 1, threads: int = 1) -> LibraryModel:
    """That the library computes so many units of a model, and what ONNX Runtime does."""
    made = always(proto, threads)
    assert len(made.calls) == calls, made.kept
    for found, want in zip(made.run(None, feeds), run_onnxruntime(proto, feeds), strict=True):
        assert np.allclose(found, want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max()))
    return made


def convolution(
    shape: Sequence[int], weights: Sequence[int], *, bias: bool = True, **attributes: object
) -> tuple[onnx.ModelProto, dict[str, Floats]]:
    feeds, constants = {"x": normal(*shape)}, {"w": normal(*weights, seed=1)}
    if bias:
        constants["b"] = normal(weights[0], seed=2)
    return single_node("Conv", feeds, constants, **attributes), feeds


# What it computes ----------------------------------------------------------------------------------------------------


@needs_library
@pytest.mark.parametrize(
    ("shape", "weights", "attributes"),
    [
        ((1, 8, 9, 10), (12, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 5, 9, 10), (7, 5, 3, 2), {"pads": [0, 1, 2, 1], "strides": [2, 3]}),
        ((1, 6, 11, 11), (6, 3, 3, 3), {"group": 2, "dilations": [2, 3]}),
        ((1, 16, 9, 9), (16, 1, 5, 5), {"group": 16, "pads": [2, 2, 2, 2]}),
        ((1, 64, 14, 14), (32, 64, 1, 1), {"bias": False}),
        ((3, 4, 20), (6, 4, 5), {"strides": [2], "pads": [2, 1]}),
        ((1, 3, 5, 6, 7), (4, 3, 2, 3, 3), {"pads": [1, 0, 1, 0, 1, 0]}),
    ],
)
def test_convolutions(shape: Sequence[int], weights: Sequence[int], attributes: Mapping[str, object]) -> None:
    proto, feeds = convolution(shape, weights, **attributes)
    check(proto, feeds)


@needs_library
@pytest.mark.parametrize("layout", list(Layout))
def test_all_layouts_compute_the_same(layout: Layout) -> None:
    """Whichever is measured to be fastest."""
    window = Window((2, 1), (1, 1), (1, 0), (0, 1))
    source, weights, bias = normal(2, 20, 9, 8), normal(24, 20, 3, 3, seed=1), normal(24, seed=2)
    function = Function(window, low=0.0, layout=layout)
    shape = function.result(source.shape, weights.shape)
    assert shape is not None
    call = step.StepExecutable(function, manifest_of(source.shape, shape, weights, bias), [weights, bias], 1)
    proto = single_node(
        "Conv", {"x": source}, {"w": weights, "b": bias}, strides=[2, 1], pads=[1, 0, 0, 1], dilations=[1, 1]
    )
    (want,) = run_onnxruntime(proto, {"x": source})
    for _ in range(2):
        assert np.allclose(call.run({"x": source})[0], np.maximum(want, 0), rtol=1e-4, atol=1e-4)


@needs_library
@pytest.mark.parametrize(
    ("attributes", "offset"),
    [({"transB": 1}, (5,)), ({"transB": 0}, (1, 5)), ({"transB": 1}, (1,)), ({"transB": 1}, None)],
)
def test_products_of_matrices(attributes: Mapping[str, object], offset: tuple[int, ...] | None) -> None:
    feeds = {"x": normal(4, 6)}
    constants = {"w": normal(*((5, 6) if attributes["transB"] else (6, 5)), seed=1)}
    if offset is not None:
        constants["b"] = normal(*offset, seed=2)
    check(single_node("Gemm", feeds, constants, **attributes), feeds)


@needs_library
def test_a_bias_and_a_limit_belong_to_the_call() -> None:
    feeds = {"x": normal(2, 3, 16)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Add", ["b", "p"], ["a"], name="bias"),
        helper.make_node("Clip", ["a", "low", "high"], ["y"], name="limits"),
    ]
    constants = {"w": normal(16, 8, seed=1), "b": normal(8, seed=2)}
    constants |= {"low": np.float32(-0.5), "high": np.float32(1.5)}
    made = check(model(nodes, feeds, ["y"], constants), feeds)
    (placed,) = made.calls.values()
    assert [node.source for node in placed.unit.nodes] == [
        "node product (MatMul)",
        "node bias (Add)",
        "node limits (Clip)",
    ]
    assert [plan.name for plan in made.stages] == ["library0 (library)"]


@needs_library
def test_what_others_read_is_not_part_of_a_call() -> None:
    feeds = {"x": normal(1, 4, 6, 6)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Mul", ["r", "c"], ["y"], name="times"),
    ]
    made = check(model(nodes, feeds, ["y"], {"w": normal(4, 4, 3, 3, seed=1)}), feeds)
    (placed,) = made.calls.values()
    assert len(placed.unit.nodes) == 1


@needs_library
def test_calls_and_native_parts_alternate() -> None:
    proto, feeds = network()
    made = check(proto, feeds, calls=3, threads=2)
    assert [plan.name.split()[0] for plan in made.stages] == ["library0", "library1", "part2", "library2"]
    one, two = (made.executable.run(feeds, threads=threads)[0] for threads in (1, 2))
    assert np.allclose(one, two, rtol=1e-5, atol=1e-5)


def network() -> tuple[onnx.ModelProto, dict[str, Floats]]:
    feeds = {"x": normal(1, 8, 12, 12)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="c0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="r0"),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="c1", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "x"], ["d"], name="add"),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], name="mean"),
        helper.make_node("Flatten", ["e"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w2"], ["y"], name="last"),
    ]
    constants = {"w0": normal(8, 8, 3, 3, seed=1), "w1": normal(8, 8, 3, 3, seed=2), "w2": normal(8, 5, seed=3)}
    return model(nodes, feeds, ["y"], constants), feeds


@needs_library
def test_what_is_no_unit_stays() -> None:
    feeds = {"x": normal(4, 6), "z": normal(6, 5)}
    nodes = [
        helper.make_node("MatMul", ["x", "z"], ["p"], name="two inputs"),
        helper.make_node("Gemm", ["p", "w"], ["y"], name="scaled", alpha=0.5),
    ]
    made = check(model(nodes, feeds, ["y"], {"w": normal(5, 3, seed=1)}), feeds, calls=0)
    reasons = {kept.place: kept.reason for kept in made.kept}
    assert reasons["node two inputs (MatMul)"] == "its weights are no constants"
    assert "attributes" in reasons["node scaled (Gemm)"]


@needs_library
def test_sizes_that_are_open_get_a_version_each() -> None:
    proto, feeds = convolution((2, 4, 6, 6), (4, 4, 3, 3))
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    made = tilewright.compile(proto, library="onednn,always", threads=1)
    for size in (1, 2):
        x = feeds["x"][:size]
        proto_of_size, _ = convolution((size, 4, 6, 6), (4, 4, 3, 3))
        (want,) = run_onnxruntime(proto_of_size, {"x": x})
        assert np.allclose(made.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)


@needs_library
def test_outputs_may_be_given_and_bound() -> None:
    proto, feeds = convolution((1, 4, 6, 6), (4, 4, 3, 3))
    made = always(proto)
    (want,) = made.run(None, feeds)
    out = np.empty_like(want)
    made.run(None, feeds, out=[out])
    assert np.array_equal(out, want)
    call = step_of(next(iter(made.calls.values())).unit, Layout.CHOSEN, 1)
    bound = call.bind(feeds)
    bound.run(None)
    assert np.array_equal(bound.outputs[0], want)
    assert call.output_shapes(feeds) == [want.shape]


@needs_library
def test_weights_are_packed_once() -> None:
    """Also for runs on other numbers of threads."""
    arrays = [normal(64, 32, 3, 3), normal(64)]
    function = Function(Window((1, 1), (1, 1), (1, 1), (1, 1)), layout=Layout.CHOSEN)
    call = step.StepExecutable(function, manifest_of((1, 32, 20, 20), (1, 64, 20, 20), *arrays), arrays, 1)
    packed = call.primitive(1).packed
    assert packed.array is not call.constants[0]
    x = normal(1, 32, 20, 20)
    one, two = (call.run({"x": x}, threads=threads)[0] for threads in (1, 2))
    assert np.allclose(one, two, rtol=1e-4, atol=1e-4)
    assert call.primitive(2) is not call.primitive(1)
    assert call.primitive(2).packed is packed


@needs_library
def test_many_threads_call_one_model() -> None:
    proto, feeds = network()
    made = always(proto)
    (want,) = made.run(None, feeds)
    inputs = [feeds["x"] * factor for factor in (1, 2, 3, 4)]
    wanted = [made.run(None, {"x": x})[0] for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: made.run(None, {"x": x})[0], inputs * 8))
    assert np.array_equal(wanted[0], want)
    assert all(np.array_equal(found, wanted[at % 4]) for at, found in enumerate(results))


@needs_library
def test_the_number_of_threads_is_that_of_the_run_alone() -> None:
    """Of a library that has OpenMP's threads, too, it stays as it was."""
    found = library()
    with found.limited(3):
        with found.limited(2):
            assert found.threads == 2
        assert found.threads == 3
        proto, feeds = convolution((1, 4, 6, 6), (4, 4, 3, 3))
        always(proto, threads=1).run(None, feeds)
        assert found.threads == 3


@needs_library
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_process_runs_on_one_thread_after_several() -> None:
    """OpenMP's threads do not survive a fork: waiting for them would have no end."""
    proto, feeds = network()
    made = always(proto, threads=2)
    (want,) = made.run(None, feeds)
    child = os.fork()
    if child == 0:
        found = made.run(None, feeds)[0]
        os._exit(0 if np.allclose(found, want, rtol=1e-5, atol=1e-5) else 1)
    assert os.waitpid(child, 0)[1] == 0


# What is worth it ----------------------------------------------------------------------------------------------------


def timed(monkeypatch: pytest.MonkeyPatch, own: float, by_library: float, whole: tuple[float, float]) -> None:
    """Let measurements find these times."""

    def times(self: Stopwatch, unit: Unit) -> Times:
        del self, unit
        return Times(own, by_library, Layout.ROWS)

    monkeypatch.setattr(Stopwatch, "times", times)
    monkeypatch.setattr(placing, "_whole", lambda *_: whole)


@needs_library
def test_what_is_faster_is_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 20.0, 10.0, (50.0, 40.0))
    proto, feeds = network()
    made = tilewright.compile(proto, library="onednn", threads=1)
    assert isinstance(made, LibraryModel)
    assert len(made.calls) == 3
    found = made.explain()
    told = [finding for finding in found.findings if finding.kind == "library"]
    assert [finding.subject for finding in told] == [
        "node c0 (Conv)",
        "node c1 (Conv)",
        "node last (Gemm)",
        "the model",
    ]
    assert told[0].reason == f"onednn {library().version} computes it in 10.0 us, our own kernel in 20.0 us"
    assert told[-1].reason == f"with calls of onednn {library().version} it takes 40.0 us, and 50.0 us without"
    fates = {row.node: row.fate for row in found.nodes}
    called = {place for place, fate in fates.items() if fate == "library"}
    assert called == {"node c0 (Conv)", "node r0 (Relu)", "node c1 (Conv)", "node last (Gemm)"}
    assert fates["node add (Add)"] == "kernel"
    rows = made.profile(feeds["x"], seconds=0.05, roofs=False).kernels
    assert [row.kernel.split(".")[0] for row in rows][:3] == ["library0 (library)", "library1 (library)", "part2"]


@needs_library
def test_what_is_slower_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 10.0, 20.0, (0.0, 0.0))
    proto, feeds = network()
    made = tilewright.compile(proto, library="onednn", threads=1)
    assert isinstance(made, LibraryModel)
    assert not made.calls
    assert made.kept[0].reason == "it takes 10.0 us here, and 20.0 us by the library"
    assert np.array_equal(made.run(None, feeds)[0], tilewright.compile(proto, threads=1).run(None, feeds)[0])


@needs_library
def test_nothing_is_given_away_if_the_model_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, 20.0, 10.0, (50.0, 60.0))
    made = tilewright.compile(network()[0], library="onednn", threads=1)
    assert isinstance(made, LibraryModel)
    assert not made.calls
    assert "but the model 50.0 us without such calls, and 60.0 us with them" in made.kept[0].reason
    assert [finding.kind for finding in made.explain().findings].count("not by library") == 3


@needs_library
def test_times_are_measured() -> None:
    made = tilewright.compile(network()[0], library="onednn", threads=1)
    assert isinstance(made, LibraryModel)
    assert len(made.calls) + len(made.kept) == 3
    for placed in made.calls.values():
        assert placed.times is not None
        assert 0 < placed.times.library < placed.times.own


# Files ---------------------------------------------------------------------------------------------------------------


@needs_library
def test_artifacts_name_the_library_and_run(tmp_path: Path) -> None:
    proto, feeds = network()
    made = always(proto)
    path = tmp_path / "net.tw"
    made.save(path)
    (want,) = made.run(None, feeds)
    loaded = tilewright.load(path, threads=1)
    again: Sequence[RunnableModel] = (loaded, pickle.loads(pickle.dumps(loaded)), pickle.loads(pickle.dumps(made)))
    for each in again:
        assert np.array_equal(each.run(None, feeds)[0], want)
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(whole.open("bodies/0000.tw")) as part:
        target = json.loads(part.read("manifest.json"))["target"]
    assert target == {"name": f"onednn {library().version}", "architecture": "onednn", "features": []}
    with pytest.raises(BadInput, match=r"accelerator=.*leave it out"):
        tilewright.load(path, accelerator="vta")


@needs_library
def test_an_artifact_is_not_loaded_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always(network()[0]).save(tmp_path / "net.tw")
    monkeypatch.setattr(onednn, "_WHEELS", ())
    library.cache_clear()
    with pytest.raises(Unsupported, match=r"oneDNN is not installed: pip install 'tilewright\[onednn\]'"):
        tilewright.load(tmp_path / "net.tw")
    library.cache_clear()


def test_without_the_library_the_error_has_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "_WHEELS", ("no-such-wheel",))
    library.cache_clear()
    with pytest.raises(Unsupported, match=r"oneDNN is not installed: pip install 'tilewright\[onednn\]'"):
        tilewright.compile(network()[0], library="onednn")
    library.cache_clear()


def manifest_of(source: tuple[int, ...], result: tuple[int, ...], *constants: Floats) -> step.Manifest:
    names = ("weights", "bias")
    known = tuple(TensorSpec(name, step.f32, each.shape) for name, each in zip(names, constants, strict=False))
    return step.Manifest((TensorSpec("x", step.f32, source),), (TensorSpec("y", step.f32, result),), known)


PLAIN = Function(Window((2, 1), (1, 1), (1, 0), (0, 1), 2), low=-1.0, high=2.0, layout=Layout.CHOSEN)


@pytest.mark.parametrize("function", [PLAIN, Function(None, transposed=True), Function(None, low=0.0)])
def test_functions_are_read_as_they_are_written(function: Function) -> None:
    assert step.read(step.written(function)) == function


@pytest.mark.parametrize(
    "code",
    [
        b"",
        b"[]",
        b"{}",
        step.written(PLAIN)[:-1],
        step.written(PLAIN).replace(b'"groups": 2', b'"groups": "2"'),
        step.written(PLAIN).replace(b"chosen", b"other"),
        step.written(PLAIN).replace(b'"low": -1.0', b'"low": NaN'),
        step.written(PLAIN) + b" ",
    ],
)
def test_other_code_is_refused(code: bytes) -> None:
    with pytest.raises(CorruptArtifact, match="a step of a library"):
        step.read(code)


@pytest.mark.parametrize(
    ("source", "result", "weights", "bias"),
    [
        ((1, 4, 6, 6), (1, 4, 4, 5), (4, 4, 3, 3), (4,)),
        ((1, 4, 6, 6), (1, 4, 4, 4), (4, 3, 3, 3), (4,)),
        ((1, 4, 6, 6), (1, 4, 4, 4), (4, 4, 3, 3), (5,)),
        ((4, 6, 6), (4, 4, 4), (4, 4, 3, 3), (4,)),
        ((1, 4, 2, 2), (1, 4, 0, 0), (4, 4, 3, 3), (4,)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    source: tuple[int, ...], result: tuple[int, ...], weights: tuple[int, ...], bias: tuple[int, ...]
) -> None:
    """The library reads and writes as much as shapes say: these are checked before it is called."""
    arrays = (normal(*weights), normal(*bias))
    function = Function(Window((1, 1), (1, 1), (0, 0), (0, 0)))
    with pytest.raises(BadArtifact, match="a step of a library makes no"):
        step.StepExecutable(function, manifest_of(source, result, *arrays), arrays, 1)


def test_windows_that_make_nothing_are_refused() -> None:
    window = PLAIN.window
    assert window is not None
    assert window.result((1, 4, 9, 9), (6, 2, 3, 3)) == (1, 6, 4, 8)
    for wrong in (replace(window, groups=0), replace(window, strides=(0, 1)), replace(window, before=(-1, 0))):
        assert wrong.result((1, 4, 9, 9), (6, 2, 3, 3)) is None


# Arguments -----------------------------------------------------------------------------------------------------------


@needs_library
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"library": "mkl"}, "library='mkl': give onednn"),
        ({"library": "onednn,often"}, "library='onednn,often': give onednn"),
        ({"library": "onednn", "math": "strict"}, "library= computes in float32"),
        ({"library": "onednn", "precision": "bf16"}, "library= computes in float32"),
        ({"library": "onednn", "accelerator": "vta"}, "both split the model"),
        ({"library": "onednn", "isolate": True}, "leave isolate= and backend= out"),
        ({"library": "onednn", "target": "aarch64"}, "library= is measured here"),
    ],
)
def test_arguments_that_do_not_go_together(arguments: Mapping[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        tilewright.compile(network()[0], **arguments)


def test_by_default_there_are_no_calls() -> None:
    assert not isinstance(tilewright.compile(network()[0], threads=1), LibraryModel)


@needs_library
def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(network()[0], tmp_path / "net.onnx")
    path, artifact = str(tmp_path / "net.onnx"), str(tmp_path / "net.tw")
    assert main(["explain", path, "--library", "onednn,always", "--threads", "1"]) == 0
    assert f"library: node c0 (Conv): onednn {library().version} computes it" in capsys.readouterr().out
    assert main(["compile", path, "-o", artifact, "--library", "onednn,always", "--quiet"]) == 0
    assert main(["run", artifact]) == 0
    assert main(["run", artifact, "--library", "onednn"]) == 2
    assert "leave --library out" in capsys.readouterr().err

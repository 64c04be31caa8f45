"""What a library computes in a model is what ONNX Runtime computes."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.frontend.models import model, run_onnxruntime, single_node
from tests.offload.library.models import Floats, always, convolution, manifest_of, needs_library, network, normal
from tilewright.offload.library.model import LibraryModel
from tilewright.offload.library.timing import step_of
from tilewright.runtime.library import step
from tilewright.runtime.library.onednn import Arguments, Handle, Library, library
from tilewright.runtime.library.primitive import Function, Layout, Window


def check(proto: onnx.ModelProto, feeds: Mapping[str, Floats], calls: int = 1, threads: int = 1) -> LibraryModel:
    """That the library computes so many units of a model, and what ONNX Runtime does."""
    made = always(proto, threads)
    assert len(made.calls) == calls, made.kept
    for found, want in zip(made.run(None, feeds), run_onnxruntime(proto, feeds), strict=True):
        assert np.allclose(found, want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max()))
    return made


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
def test_calls_run_on_the_threads_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    execute = Library.execute

    def watched(self: Library, primitive: Handle, stream: Handle, arguments: Arguments) -> None:
        seen.append(self.threads)
        execute(self, primitive, stream, arguments)

    monkeypatch.setattr(Library, "execute", watched)
    proto, feeds = network()
    made = always(proto, threads=2)
    for threads in (None, 1):
        seen.clear()
        made.executable.run(feeds, threads=threads)
        assert set(seen) == {threads or 2}


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

"""Models that are compiled for each size of their inputs: which, how many, by many threads, and what is said."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.frontend.models import run_onnxruntime
from tests.test_computed_shapes import CHECKED, integers, model, node, random_feeds
from tilewright.base.errors import BadFeed, BadInput, InvalidModel, UnsupportedModel, UnsupportedOperator
from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.read.rules import Request
from tilewright.graph import Value
from tilewright.specialize import Dynamic, SpecializingModel, Versions


def halves() -> onnx.ModelProto:
    """What is cut in two must have an even number of elements, which no extent tells: no kernel takes all sizes."""
    nodes = [
        node("Reshape", ["x", "two_rows"], ["rows"], name="cut"),
        node("Split", ["rows"], ["a", "b"], axis=0),
        node("Sub", ["a", "b"], ["y"]),
    ]
    return model(nodes, {"x": ["n", "m"]}, ["y"], {"two_rows": integers(2, -1)})


def specialized(proto: onnx.ModelProto, **options: object) -> SpecializingModel:
    made = tilewright.compile(proto, threads=1, settings=CHECKED, **options)  # type: ignore[arg-type]
    assert isinstance(made, SpecializingModel)
    return made


def test_what_cannot_be_symbolic_is_specialized(caplog: pytest.LogCaptureFixture) -> None:
    proto = halves()
    with caplog.at_level(logging.WARNING, "tilewright"):
        ours = specialized(proto)
    assert "a version is compiled for each size of the inputs: node cut (Reshape)" in caplog.text
    assert not ours.versions()
    for n, m in ((2, 3), (4, 1), (0, 2), (2, 3)):
        feeds = random_feeds(proto, {"n": n, "m": m})
        (theirs,) = run_onnxruntime(proto, feeds)
        np.testing.assert_array_equal(ours.run(None, feeds)[0], theirs)
        np.testing.assert_array_equal(ours(feeds["x"]), theirs)
        assert ours.outputs[0].shape == theirs.shape
    assert list(ours.versions()) == [(("n", 4), ("m", 1)), (("n", 0), ("m", 2)), (("n", 2), ("m", 3))]
    with pytest.raises(BadFeed, match=r"does not fit together for n=3, m=1: node cut \(Reshape\)"):
        ours(np.zeros((3, 1), np.float32))
    with pytest.raises(InvalidModel, match=r"can.t become"):
        tilewright.compile(proto, dynamic="symbolic")


def test_asked_for() -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": ["n", 3]}, ["y"], {})
    ours = specialized(proto, dynamic=Dynamic.SPECIALIZE, bounds={"n": 4})
    for get in (lambda: ours.outputs, lambda: ours.compiled, lambda: ours.executable):
        with pytest.raises(BadInput, match="no version is there yet"):
            get()
    assert ours.version(n=2).outputs[0].shape == (2, 3)
    assert [spec.shape for spec in ours.inputs] == [("n", 3)]
    with pytest.raises(BadFeed, match="extent 'n' is 5, but the model was compiled for 0 to 4"):
        ours(np.zeros((5, 3), np.float32))
    with pytest.raises(BadFeed, match="no run-time extent 'm'"):
        ours.version(m=2)
    with pytest.raises(BadFeed, match="the model has no input 'z'"):
        ours.run(None, {"z": np.zeros((2, 3), np.float32)})
    assert type(tilewright.compile(proto, dynamic="symbolic")) is tilewright.CompiledModel
    assert type(tilewright.compile(proto, shapes={"x": (2, 3)}, dynamic="specialize")) is tilewright.CompiledModel
    with pytest.raises(BadInput, match="dynamic='often': choose one of auto, symbolic, specialize"):
        tilewright.compile(proto, dynamic="often")


def test_a_fault_that_is_not_of_sizes_is_told_at_once() -> None:
    """Such a model is imported once, which the operator `Counted` counts."""
    places: list[str] = []

    def counted(request: Request) -> list[Value]:
        places.append(request.place)
        return [request.apply("Identity", request.input(0))]

    nodes = [node("Counted", ["x"], ["a"], domain="own"), node("Unknown", ["a"], ["y"], domain="own", name="u")]
    proto = model(nodes, {"x": ["n"]}, ["y"], {})
    proto.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(UnsupportedOperator, match="node u"):
        tilewright.compile(proto, operators=[OnnxOperator("own", "Counted", counted)])
    assert len(places) == 1


def test_explain_profile_and_compare() -> None:
    proto = halves()
    ours = specialized(proto)
    before = ours.explain()
    assert [(f.kind, f.subject) for f in before.findings] == [("run-time extent", "n"), ("run-time extent", "m")]
    assert "node cut (Reshape)" in before.findings[0].reason
    assert before.findings[0].reason.endswith("(made: none)")
    feeds = random_feeds(proto, {"n": 2, "m": 3})
    assert ours.compare(feeds, per_layer=False).first is None
    assert ours.profile(feeds, seconds=0, roofs=False).kernels
    after = ours.explain()
    assert after.kernels
    assert after.findings[-1].reason.endswith("(made: n=2, m=3)")


def test_saving(tmp_path: Path) -> None:
    ours = specialized(halves())
    with pytest.raises(BadInput, match=r"no version is there yet: .* model.version\(n=..., m=...\)"):
        ours.save(tmp_path / "m.tw")
    ours.version(n=4, m=1).save(tmp_path / "m.tw")
    x = np.arange(4, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(tilewright.load(tmp_path / "m.tw", threads=1)(x)[0], (x[:2] - x[2:])[:, 0])


def test_the_least_recently_used_version_goes() -> None:
    made: list[int] = []

    def make(key: int) -> str:
        made.append(key)
        return str(key)

    versions = Versions(make, 2)
    for key in (1, 2, 1, 3, 1, 2):
        assert versions.get(key) == str(key)
    assert made == [1, 2, 3, 2]
    assert [key for key, _ in versions.all()] == [1, 2]


def test_many_threads_make_each_version_once() -> None:
    made: list[int] = []
    ready = threading.Barrier(8)

    def make(key: int) -> str:
        made.append(key)
        return str(key)

    versions = Versions(make, 4)

    def ask(position: int) -> list[str]:
        ready.wait()
        return [versions.get((position + step) % 4) for step in range(40)]

    with ThreadPoolExecutor(8) as pool:
        for position, found in enumerate(pool.map(ask, range(8))):
            assert found == [str((position + step) % 4) for step in range(40)]
    assert sorted(made) == [0, 1, 2, 3]


def test_a_version_that_cannot_be_made_is_tried_again() -> None:
    attempts: list[int] = []

    def make(key: int) -> int:
        attempts.append(key)
        if len(attempts) == 1:
            raise UnsupportedModel("not now")
        return key

    versions = Versions(make, 1)
    with pytest.raises(UnsupportedModel, match="not now"):
        versions.get(3)
    assert versions.get(3) == 3


def test_threads_run_versions_of_one_model() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["n"]),
        node("Expand", ["c", "n"], ["e"]),
        node("Add", ["x", "e"], ["y"]),
    ]
    constants = {"zero": integers(0), "one": integers(1), "c": np.ones(1, np.float32)}
    ours = specialized(model(nodes, {"x": ["n"]}, ["y"], constants), dynamic="specialize")

    def run(size: int) -> bool:
        x = np.arange(size, dtype=np.float32)
        return all(np.array_equal(ours(x), x + 1) for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, [1, 2, 3, 1, 2, 3, 5, 7]))

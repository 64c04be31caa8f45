"""Small networks of several kinds, compiled once for all sizes, with bounds checks, against ONNX Runtime."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from examples.sentence_similarity.model import build_model
from tests.frontend.models import run_onnxruntime
from tests.frontend.test_minilm import CONFIG, POSITIONS, make_feeds, make_weights
from tests.test_computed_shapes import CHECKED, check, integers, model, node
from tilewright.base.errors import BadFeed
from tilewright.base.settings import Settings
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.insight.explain import explain
from tilewright.model import CompiledModel
from tilewright.target.target import Target


@pytest.fixture(scope="module")
def minilm() -> onnx.ModelProto:
    return build_model(make_weights(), "batch", "sequence", CONFIG)


def test_an_encoder_for_any_batch_and_sequence(minilm: onnx.ModelProto) -> None:
    ours = tilewright.compile(minilm, bounds={"batch": 1}, dynamic="symbolic", threads=1, settings=CHECKED)
    _check_sizes(minilm, ours, [(b, s) for b, s in SIZES if b == 1])
    ours = tilewright.compile(minilm, dynamic="symbolic", threads=1, settings=CHECKED)
    _check_sizes(minilm, ours, SIZES)
    with pytest.raises(BadFeed, match=f"extent 'sequence' is {POSITIONS + 1}, but the model was compiled for 0 to"):
        ours.run(None, make_feeds(1, POSITIONS + 1))


SIZES = [(1, 1), (2, 7), (3, POSITIONS), (5, 2), (1, 16)]


def _check_sizes(minilm: onnx.ModelProto, ours: CompiledModel, sizes: list[tuple[int, int]]) -> None:
    for batch, sequence in sizes:
        feeds = make_feeds(batch, sequence)
        (theirs,) = run_onnxruntime(minilm, feeds)
        np.testing.assert_allclose(ours.run(None, feeds)[0], theirs, rtol=0, atol=1e-5)


def test_the_contractions_of_an_encoder_stay_vectors(minilm: onnx.ModelProto) -> None:
    graph = importer.load(minilm)
    made = compile_graph(graph, Options(Target.parse("x86_64,haswell"), threads=1))
    facts = [fact for fact in explain(made, graph).kernels if {"MatMul", "Softmax"} & set(fact.operators)]
    assert facts
    assert all(fact.vectorized for fact in facts)


def convolutional() -> onnx.ModelProto:
    random = np.random.default_rng(1)

    def values(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p0"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p0", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Add", ["c1", "p0"], ["sum"]),
        node("GlobalAveragePool", ["sum"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w2", "b2"], ["y"], transB=1),
    ]
    shapes = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 8, 3, 3), "w2": (5, 8), "b2": (5,)}
    constants = {name: values(*shape) for name, shape in shapes.items()}
    return model(nodes, {"x": ["b", 3, "h", "w"]}, ["y", "sum"], constants)


@pytest.mark.parametrize("bounds", [{}, pytest.param({"b": 4, "h": 40, "w": 40}, marks=pytest.mark.slow)])
def test_images_of_any_number_and_size(bounds: dict[str, int]) -> None:
    sizes = [(1, 8, 8), (2, 9, 13), (3, 32, 17), (1, 5, 40), (4, 6, 4)]
    ours = check(convolutional(), [{"b": b, "h": h, "w": w} for b, h, w in sizes], bounds)
    assert [spec.shape for spec in ours.outputs] == [("b", 5), ("b", 8, "(h + 1) // 4", "(w + 1) // 4")]


@pytest.mark.parametrize("target", ["x86_64,haswell", "x86_64,sapphirerapids", "aarch64,cortex-a72"])
def test_images_of_any_size_are_one_model_elsewhere(target: str) -> None:
    """What a loop over images would pad has no known size: it is padded before."""
    assert type(tilewright.compile(convolutional(), target=target, threads=1)) is CompiledModel


def test_an_artifact_takes_all_sizes(tmp_path: Path) -> None:
    """Also the size of its workspace is computed from the inputs'."""
    ours = tilewright.compile(convolutional(), threads=1)
    assert ours.executable.manifest.workspace == "workspace"
    ours.save(tmp_path / "m.tw", settings=Settings(key_dir=tmp_path / "key"))
    loaded = tilewright.load(tmp_path / "m.tw", threads=1, settings=Settings(key_dir=tmp_path / "key"))
    for b, h, w in ((1, 8, 8), (3, 64, 48), (2, 9, 13)):
        x = np.random.default_rng(b).standard_normal((b, 3, h, w)).astype(np.float32)
        for ours_, theirs in zip(loaded.run(None, {"x": x}), ours.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(ours_, theirs)


def test_explain_says_who_limits_an_extent(minilm: onnx.ModelProto) -> None:
    findings = tilewright.compile(minilm, bounds={"batch": 4}, threads=1).explain().findings
    told = {finding.subject: finding.reason for finding in findings if finding.kind == "run-time extent"}
    assert "(at most 4); kernels take all sizes" in told["batch"]
    assert f"(at most {POSITIONS}, as the model has a table of that length)" in told["sequence"]


def test_a_recurrence_over_any_number_of_steps() -> None:
    """The state starts as zeros of a shape that is computed, as exporters write it."""
    random = np.random.default_rng(2)
    constants = {
        "w": random.standard_normal((1, 24, 5)).astype(np.float32),
        "r": random.standard_normal((1, 24, 6)).astype(np.float32) * 0.3,
        "one": integers(1),
        "two": integers(2),
        "states": integers(6),
    }
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "one", "two"], ["b"]),
        node("Concat", ["one", "b", "states"], ["start"], axis=0),
        node("ConstantOfShape", ["start"], ["h"]),
        node("LSTM", ["x", "w", "r", "", "", "h", "h"], ["y", "last"], hidden_size=6),
    ]
    proto = model(nodes, {"x": ["n", "b", 5]}, ["y", "last"], constants)
    check(proto, [{"n": n, "b": b} for n, b in ((1, 1), (4, 2), (17, 3), (2, 9))], {})

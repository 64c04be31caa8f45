"""Quantized models: they run in ONNX Runtime and here alike, keep their bound, and leave float what hurts."""

import inspect
from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tilewright
from tests.frontend.models import Array, model, run_onnxruntime
from tests.quantization.models import attention, convolutions, normal, perceptron
from tests.test_wrong_arguments import CALLABLE, WRONG, allowed
from tilewright.base.errors import BadFeed, BadInput
from tilewright.base.quantization import Method, Metric
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.write import exporter
from tilewright.target.target import Target

X = {"convolutions": normal(20, 8, 3, 10, 10), "perceptron": normal(21, 64, 8), "attention": normal(22, 16, 6, 16)}
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "convolutions": convolutions,
    "perceptron": perceptron,
    "attention": attention,
}


@cache
def made(name: str) -> tilewright.QuantizedModel:
    """With all layers quantized, but those that hurt the perceptron."""
    bound = 0.05 if name == "perceptron" else 1.0
    return tilewright.quantize(MODELS[name](), {"x": X[name]}, accuracy=bound, metric="l2", threads=1)


def l2(found: Array, expected: Array) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected))


def optimized(proto: onnx.ModelProto, x: Array) -> Array:
    """By ONNX Runtime with its optimizations: on integers, whose sums are not to saturate on x86 without VNNI."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("name", MODELS)
def test_it_runs_in_onnxruntime_and_here_alike(name: str) -> None:
    """Where the order of a sum decides a rounding, one integer differs by 1: a part of 255 of one value."""
    quantized, x = made(name), X[name][:2]
    proto = exporter.export(quantized.graph)
    onnx.checker.check_model(proto, full_check=True)
    (theirs,) = run_onnxruntime(proto, {"x": x})
    (ours,) = compile_graph(quantized.graph, Options(Target.host(), threads=1)).executable.run({"x": x})
    assert l2(ours, theirs) < 1 / 255
    assert l2(optimized(proto, x), theirs) < 1 / 255


@pytest.mark.parametrize("name", MODELS)
def test_the_report_is_true(name: str) -> None:
    """Its error, by ONNX Runtime on all samples; weights take a quarter where they are most of the model."""
    quantized, report = made(name), made(name).report
    proto, batch = exporter.export(quantized.graph), 2 if name == "attention" else len(X[name])
    runs = [(MODELS[name](), []), (proto, [])]
    for model_, outputs in runs:
        for start in range(0, len(X[name]), batch):
            outputs += run_onnxruntime(model_, {"x": X[name][start : start + batch]})
    (_, exact), (_, found) = runs
    assert l2(np.concatenate(found), np.concatenate(exact)) == pytest.approx(report.l2, rel=0.05)
    assert report.l2 <= report.bound
    assert report.samples == len(X[name])
    assert report.bytes_after < report.bytes_before


def test_a_layer_that_hurts_stays_float() -> None:
    first, hurt = made("perceptron").report.layers
    assert (first.layer, first.quantized) == ("node first (MatMul)", True)
    assert (hurt.layer, hurt.quantized) == ("node hurt (MatMul)", False)
    assert hurt.l2 is not None
    assert first.l2 is not None
    assert hurt.l2 > 10 * first.l2
    assert made("perceptron").report.all_l2 > 0.05
    assert "one of the 1 with the largest errors" in hurt.reason


def test_what_is_quantized() -> None:
    """All convolutions and what is between them; in attention, products of activations too, and no softmax."""
    proto = exporter.export(made("convolutions").graph)
    integers = {node.input[0] for node in proto.graph.node if node.op_type == "QuantizeLinear"}
    assert integers == {"x", "r0", "r1", "r2", "pool", "r3", "mean3", "flat"}
    readers = {node.op_type: node.input[0] for node in proto.graph.node}
    assert readers["Add"] == "r0.dequantized"
    assert readers["MaxPool"] == "r2.dequantized"
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    assert constants["r2.scale"] == constants["pool.scale"]
    assert constants["w1.quantized"].dtype == np.int8
    assert constants["w1.scale"].shape == (8,)
    assert constants["b4.quantized"].dtype == np.int32
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [layer.quantized for layer in made("attention").report.layers] == [True] * 6
    assert "scores" not in {
        n.input[0] for n in exporter.export(made("attention").graph).graph.node if "Qu" in n.op_type
    }


def test_symmetric_activations_and_powers_of_two() -> None:
    quantized = tilewright.quantize(
        perceptron(),
        {"x": X["perceptron"]},
        accuracy=1.0,
        activations="i8",
        power_of_two=True,
        method="minmax",
        threads=1,
    )
    constants = {value.name: array for value, array in quantized.graph.constants.items()}
    scales = np.concatenate([array.reshape(-1) for name, array in constants.items() if "scale" in name])
    mantissas, _ = np.frexp(scales)
    assert (mantissas == 0.5).all()
    assert constants["x.zero"].dtype == np.int8
    assert quantized.report.method is Method.MINMAX
    assert quantized.report.metric is Metric.TOP1


def test_if_nothing_may_change_nothing_is_quantized() -> None:
    quantized = tilewright.quantize(perceptron(), {"x": X["perceptron"]}, accuracy=0.0, metric="l2", threads=1)
    assert quantized.report.quantized == 0
    assert quantized.report.l2 == 0
    assert not any("Quantize" in node.op.name for node in quantized.graph.nodes)


# --- what can't be quantized --------------------------------------------------------------------------------------


def test_models_that_cannot_be_quantized() -> None:
    x = normal(0, 2, 4)
    with pytest.raises(BadInput, match=r"no convolution or product of matrices .* none"):
        tilewright.quantize(model([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, ["y"]), {"x": x})
    wide = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x.astype(float)}, ["y"], {"w": np.ones((4, 2))})
    with pytest.raises(BadInput, match="its type is f64, not f32"):
        tilewright.quantize(wide, {"x": x.astype(float)})
    with pytest.raises(BadInput, match="quantized already"):
        tilewright.quantize(exporter.export(made("perceptron").graph), {"x": X["perceptron"]})
    with pytest.raises(BadInput, match="top1 needs one output"):
        tilewright.quantize(attention(), {"x": X["attention"]}, metric="top1", threads=1)


def test_a_model_that_computes_nan() -> None:
    proto = model(
        [helper.make_node("Log", ["x"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])],
        {"x": np.ones((2, 4), np.float32)},
        ["y"],
        {"w": normal(1, 4, 2)},
    )
    with pytest.raises(BadFeed, match=r"computes NaN or infinity .*value h"):
        tilewright.quantize(proto, {"x": -np.ones((2, 4), np.float32)}, threads=1)


@pytest.mark.parametrize("argument", [*inspect.signature(tilewright.quantize).parameters])
def test_wrong_arguments(argument: str) -> None:
    """A model without a layer is refused last, so each argument is looked at."""
    x = normal(0, 2, 4)
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, ["y"])
    right: dict[str, object] = {"model": proto, "data": {"x": x}}
    for name, wrong in WRONG.items():
        if argument != "listener" or name not in CALLABLE:
            given = {**right, argument: wrong()}
            allowed(lambda given=given: tilewright.quantize(**given), f"{argument} is {name}")

"""What is in memory while a model is compiled: no weights that nobody reads any more, without garbage collection."""

import gc
import sys
import weakref
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.frontend.models import model
from tilewright import compilation
from tilewright.base.arrays import Array
from tilewright.base.settings import Settings
from tilewright.graph import Node, Value, evaluate_node
from tilewright.kernels.packing import Empty
from tilewright.passes.stored_constants import Stored, stored_arrays

RANDOM = np.random.default_rng(0)
LARGE = 1 << 16
"""Bytes up to which constants are kept (``graph.remade``)."""


def f(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32) / 10


def convolutions() -> onnx.ModelProto:
    """Filters that become others: those of a normalization, and Winograd's."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "scale", "bias", "mean", "variance"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Conv", ["c", "w1"], ["y"]),
    ]
    norm = {"scale": f(64), "bias": f(64), "mean": f(64), "variance": np.ones(64, np.float32)}
    return model(nodes, {"x": f(1, 64, 14, 14)}, ["y"], {"w0": f(64, 64, 3, 3), "w1": f(300, 64, 1, 1), **norm})


def products() -> onnx.ModelProto:
    """A matrix that is transposed first, one that is read as it is, and a table."""
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["a"]),
        helper.make_node("Gemm", ["a", "w0"], ["b"], transB=1),
        helper.make_node("MatMul", ["b", "w1"], ["y"]),
    ]
    constants = {"table": f(1000, 128), "w0": f(256, 128), "w1": f(256, 128)}
    return model(nodes, {"x": np.arange(4)}, ["y"], constants)


def recurrence() -> onnx.ModelProto:
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=128)]
    return model(nodes, {"x": f(3, 1, 128)}, ["y"], {"w": f(1, 512, 128), "r": f(1, 512, 128)})


MODELS = {"convolutions": convolutions, "products": products, "recurrence": recurrence}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_weights_go_when_they_are_packed(
    name: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of the model as it was read, and of the graphs in between."""
    path = tmp_path / "m.onnx"
    path.write_bytes(MODELS[name]().SerializeToString())
    sources: list[weakref.ref[Array]] = []
    left: list[tuple[tuple[int, ...], ...]] = []

    def watched(stored: Mapping[Value, Stored], arrays: dict[Value, Array], empty: Empty) -> list[Array]:
        sources.extend(weakref.ref(array) for array in arrays.values() if array.nbytes > LARGE)
        results = stored_arrays(stored, arrays, empty)
        alive = [array for ref in sources if (array := ref()) is not None]
        left.append(tuple(array.shape for array in alive if not any(array is each for each in results)))
        return results

    monkeypatch.setattr(compilation, "stored_arrays", watched)
    gc.collect()
    gc.disable()
    try:
        tilewright.compile(path, precision=precision, settings=Settings(cache_dir=None))
    finally:
        gc.enable()
    assert sources
    assert left == [()]


def test_numbers_are_made_again_for_who_asks(tmp_path: Path) -> None:
    proto = products()
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    made = tilewright.compile(path, settings=Settings(cache_dir=None))
    kept = tilewright.compile(proto, settings=Settings(cache_dir=None))
    for constants, others in (
        (made.compiled.graph.constants, kept.compiled.graph.constants),
        (made.compiled.choices.graph.constants, kept.compiled.choices.graph.constants),
    ):
        assert [*constants] == [*others]
        for value in constants:
            np.testing.assert_array_equal(constants[value], others[value])


def quantized() -> onnx.ModelProto:
    """A convolution of bytes, as quantizers write it."""
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "scale"], ["v"]),
        helper.make_node("Conv", ["a", "v"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["b", "scale", "zero"], ["y"]),
    ]
    weight = RANDOM.integers(-127, 128, (64, 64, 3, 3), np.int8)
    constants = {"scale": np.float32(0.1), "zero": np.uint8(128), "w": weight}
    return model(nodes, {"x": RANDOM.integers(0, 256, (1, 64, 14, 14), np.uint8)}, ["y"], constants)


def test_weights_of_integer_convolutions_are_never_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be four times as large, in all convolutions at once."""
    path = tmp_path / "m.onnx"
    path.write_bytes(quantized().SerializeToString())
    folded: list[str] = []

    def watched(node: Node, constants: Mapping[Value, Array]) -> list[Array]:
        folded.append(node.op.name)
        return evaluate_node(node, constants)

    monkeypatch.setattr(sys.modules["tilewright.passes.normalize"], "evaluate_node", watched)
    tilewright.compile(path, settings=Settings(model_cache_bytes=0))
    assert "DequantizeLinear" not in folded

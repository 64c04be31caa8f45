"""Products of many short matrices with one matrix: as one product of all rows, with what follows in its kernel."""

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model, run_onnxruntime
from tilewright.target.target import Target

AVX2 = "x86_64,znver3,l1=32K,l2=512K,l3=32M"
random = np.random.default_rng(5)


def f(*shape: int) -> NDArray[np.float32]:
    return random.standard_normal(shape).astype(np.float32)


def layers(shape: tuple[int, ...], width: int = 40) -> tuple[onnx.ModelProto, dict[str, NDArray[np.float32]]]:
    """Two products with a bias, an activation, a residual and a normalization; the first sum is an output, too."""
    size = shape[-1]
    constants = {"w": f(size, width), "b": f(width), "v": f(width, size), "scale": f(size), "shift": f(size)}
    constants |= {"half": np.array(0.5, np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Add", ["b", "xw"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["active"]),
        helper.make_node("MatMul", ["active", "v"], ["back"]),
        helper.make_node("Mul", ["back", "half"], ["less"]),
        helper.make_node("Add", ["less", "x"], ["added"]),
        helper.make_node("LayerNormalization", ["added", "scale", "shift"], ["normal"]),
        helper.make_node("Reshape", ["added", "to"], ["rows"]),
        helper.make_node("Softmax", ["sum"], ["shares"]),
    ]
    inputs = {"x": f(*shape)}
    return model(nodes, inputs, ["sum", "normal", "rows", "shares"], {**constants, "to": np.array([-1, size])}), inputs


@pytest.mark.share(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", [Target.host(), Target.host().restricted("avx2")], ids=["host", "avx2"])
@pytest.mark.parametrize("shape", [(8, 3, 8, 24), (5, 7, 33), (4, 49, 16), (6, 1, 20), (2, 3, 1, 5, 9), (1, 9, 16)])
def test_results_are_those_of_onnx_runtime(shape: tuple[int, ...], target: Target, threads: int) -> None:
    proto, inputs = layers(shape)
    found = tilewright.compile(proto, target=target, threads=threads).run(None, inputs)
    for ours, wanted in zip(found, run_onnxruntime(proto, inputs), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_narrow_values_stay_narrow(precision: str) -> None:
    proto, inputs = layers((8, 3, 8, 24))
    compiled = tilewright.compile(proto, threads=1, precision=precision)
    found, (wanted, *_) = compiled.run(None, inputs)[0], run_onnxruntime(proto, inputs)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0.05 * float(np.abs(np.asarray(wanted)).max()))
    assert any(f"p0: {precision}[192, 40]" in str(kernel.program) for kernel in compiled.compiled.kernels)


def test_each_value_is_compared_with_that_of_the_model() -> None:
    proto, inputs = layers((8, 3, 8, 24))
    found = tilewright.compile(proto, threads=1).compare(inputs, per_layer=True)
    assert found.agrees
    assert {"sum", "added"} <= {row.value for row in found.values}


def products(proto: onnx.ModelProto) -> list[tuple[str, ...]]:
    """The extents of the result of each product, in its kernel."""
    kernels = tilewright.compile(proto, target=AVX2, threads=1).compiled.kernels
    found = [kernel.program for kernel in kernels if "matmul" in kernel.program.name]
    return [tuple(map(str, program.params[-1].shape)) for program in found]


def single(shape: tuple[int, ...], matrix: tuple[int, ...]) -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Add", ["xw", "b"], ["y"])]
    return model(nodes, {"x": f(*shape)}, ["y"], {"w": f(*matrix), "b": f(matrix[-1])})


@pytest.mark.parametrize(
    ("shape", "matrix", "result"),
    [
        ((24, 8, 48), (48, 96), ("192", "96")),
        ((8, 3, 8, 48), (48, 96), ("192", "96")),
        ((24, 8, 48), (24, 48, 96), ("24", "8", "96")),  # a matrix for each
        ((24, 1, 48), (48, 96), ("24", "1", "96")),  # one row of each: they are rows of tiles already
        ((2, 512, 48), (48, 96), ("2", "512", "96")),
    ],
)
def test_short_matrices_are_rows_of_one(
    shape: tuple[int, ...], matrix: tuple[int, ...], result: tuple[str, ...]
) -> None:
    """And the bias is added in the kernel of the product."""
    assert products(single(shape, matrix)) == [result]


@pytest.mark.parametrize(
    ("operand", "rows"), [((96,), True), ((1, 1, 96), True), ((24, 8, 96), True), ((8, 96), False), ((24, 1, 1), False)]
)
def test_what_follows_stays_in_the_kernel(operand: tuple[int, ...], rows: bool) -> None:
    """An operand of another shape than all rows, or one, would be added in a kernel of its own."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Relu", ["xw"], ["active"]),
        helper.make_node("Add", ["active", "b"], ["y"]),
    ]
    inputs = {"x": f(24, 8, 48)}
    proto = model(nodes, inputs, ["y"], {"w": f(48, 96), "b": f(*operand)})
    compiled = tilewright.compile(proto, target=AVX2, threads=1)
    assert len(compiled.compiled.kernels) == 1
    assert products(proto) == [("192", "96") if rows else ("24", "8", "96")]
    (found,), (wanted,) = tilewright.compile(proto).run(None, inputs), run_onnxruntime(proto, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_open_extents_stay_as_they_are() -> None:
    proto = single((24, 8, 48), (48, 96))
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    data = f(5, 8, 48)
    (found,), (wanted,) = tilewright.compile(proto).run(None, {"x": data}), run_onnxruntime(proto, {"x": data})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)

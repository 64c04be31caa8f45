"""Recurrent layers in bfloat16: products of rounded operands by dot-product instructions; states stay float32."""

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import tilewright
from tests.closeness import assert_near
from tests.frontend.models import OPSET, run_onnxruntime, single_node
from tilewright.base.dtypes import bf16, f32
from tilewright.base.numerics import Precision
from tilewright.compilation import Compiled, Options, prepare
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read.importer import load
from tilewright.passes.precision import narrow
from tilewright.target.target import Target

Array = NDArray[np.float32]
BEST, OLD = Target.parse("x86_64,znver4"), Target.parse("x86_64,znver3")
HAS_PRODUCTS = pytest.mark.skipif(not Target.host().has("avx512bf16"), reason="recurrences stay float32")
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ULP = 2.0**-8


def rounded(x: NDArray[np.floating]) -> Array:
    return x.astype(bf16.numpy).astype(np.float32)


def weights(op: str, width: int, hidden: int, directions: int = 1) -> dict[str, Array]:
    """The weights of a layer; numbers of bfloat16, so that a float32 peer computes with the same ones."""
    random, rows = np.random.default_rng(1), GATES[op] * hidden
    w, r = (random.normal(0, size**-0.5, (directions, rows, size)) for size in (width, hidden))
    return {"W": rounded(w), "R": rounded(r)}


def data(steps: int, batch: int, width: int) -> Array:
    return rounded(np.random.default_rng(2).standard_normal((steps, batch, width)))


def compiled(model: onnx.ModelProto, target: Target, precision: Precision = Precision.BF16) -> Compiled:
    return compile_graph(load(model), Options(target, threads=1, precision=precision))


def recurrence(found: Compiled) -> str:
    """The scheduled recurrence; every model here has one direction."""
    (kernel,) = (kernel for kernel in found.kernels if " ordered" in str(kernel.naive))
    return str(kernel.program)


def lstm_of_rounded_products(x: Array, w: Array, r: Array) -> Array:
    """All outputs of an LSTM without a bias, in float64 except for the operands of the products."""
    h, c = (np.zeros((x.shape[1], r.shape[1])) for _ in range(2))
    every: list[NDArray[np.float64]] = []
    for step in x.astype(np.float64):
        gates = step @ w.T.astype(np.float64) + rounded(h).astype(np.float64) @ r.T.astype(np.float64)
        i, o, f, new = np.split(gates, 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(new) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        every.append(h)
    return np.stack(every).astype(np.float32)


@HAS_PRODUCTS
@pytest.mark.parametrize(("batch", "hidden"), [(1, 20), (3, 64)])
def test_only_operands_of_products_are_rounded(batch: int, hidden: int) -> None:
    constants, x = weights("LSTM", 16, hidden), data(12, batch, 16)
    model = single_node("LSTM", {"X": x}, constants, hidden_size=hidden)
    found = tilewright.compile(model, precision="bf16")(x)
    assert isinstance(found, np.ndarray)
    expected = lstm_of_rounded_products(x, constants["W"][0], constants["R"][0])
    assert_near(found[:, 0], expected, 2e-5)
    (exact,) = run_onnxruntime(model, {"X": x})
    assert not np.allclose(found, exact.astype(np.float32), atol=1e-4), "nothing was rounded"


@pytest.mark.parametrize(
    ("op", "hidden", "attributes"),
    [
        ("GRU", 24, {"linear_before_reset": 0}),
        ("GRU", 32, {"linear_before_reset": 1, "direction": "reverse"}),
        ("LSTM", 40, {"direction": "bidirectional"}),
        ("RNN", 17, {}),
        ("RNN", 50, {}),
    ],
)
def test_against_onnxruntime(op: str, hidden: int, attributes: dict[str, object]) -> None:
    """With lengths of sequences; 17 terms of a sum are no pairs."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    feeds = {"X": data(6, 3, 10), "lengths": np.array([6, 1, 4], np.int32)}
    order = ["X", "W", "R", "", "lengths"]
    constants = weights(op, 10, hidden, directions)
    model = single_node(op, feeds, constants, order, 2, OPSET, hidden_size=hidden, **attributes)
    expected = run_onnxruntime(model, feeds)
    for result, wanted in zip(tilewright.compile(model, precision="bf16").run(None, feeds), expected, strict=True):
        assert_near(result, wanted, 2 * ULP)


@pytest.mark.parametrize(("op", "hidden", "products"), [("GRU", 40, 2), ("LSTM", 150, 1), ("RNN", 64, 1)])
def test_each_step_uses_the_instruction(op: str, hidden: int, products: int) -> None:
    model = single_node(op, {"X": data(4, 2, 16)}, weights(op, 16, hidden), hidden_size=hidden)
    assert recurrence(compiled(model, BEST)).count("intrinsic vdpbf16ps_add(") == products


def test_a_step_has_accumulators_in_several_registers() -> None:
    """Each instruction waits for the one before on the same register; the weights come from the last cache."""
    model = single_node("LSTM", {"X": data(4, 1, 16)}, weights("LSTM", 16, 150), hidden_size=150)
    assert "alloc product: f32[1, 1, 4, 16] in local" in recurrence(compiled(model, BEST))


@pytest.mark.parametrize(("target", "precision"), [(OLD, Precision.BF16), (BEST, Precision.FP32)])
def test_other_recurrences_stay_in_float32(target: Target, precision: Precision) -> None:
    model = single_node("RNN", {"X": data(4, 2, 16)}, weights("RNN", 16, 32), hidden_size=32)
    assert "bf16" not in recurrence(compiled(model, target, precision))


def test_what_is_narrow() -> None:
    """The weights of the products, all of them; the data of a recurrence and its results stay wide."""
    graph = prepare(load(single_node("GRU", {"X": data(4, 2, 16)}, weights("GRU", 16, 32), hidden_size=32)))
    found = narrow(graph, Precision.BF16, BEST)
    (layer,) = (node for node in graph.nodes if node.op.name == "GRU")
    assert found.weights[layer.outputs[0].name] == {
        v.name for v in layer.inputs if v is not None and v in graph.constants
    }
    assert not {value.name for value in (*layer.inputs, *layer.outputs) if value is not None} & found.values
    assert all(value.dtype == f32 for value in layer.outputs)


@HAS_PRODUCTS
def test_long_sums_of_states_are_not_rounded() -> None:
    """A cell that adds 2^-6 at each of 2,000 steps: in bfloat16, it would stay at 4."""
    hidden, steps = 16, 2000
    constants = {"W": np.zeros((1, 4 * hidden, 2), np.float32), "R": np.zeros((1, 4 * hidden, hidden), np.float32)}
    bias = np.zeros((1, 8 * hidden), np.float32)
    bias[0, : 4 * hidden] = np.repeat([1.0, 1.0, 1.0, 2.0**-6], hidden)
    x = np.zeros((steps, 1, 2), np.float32)
    activations = ["Affine", "Affine", "Affine"]
    order = ["X", "W", "R", "B"]
    options = {"activations": activations, "activation_alpha": [1.0] * 3, "activation_beta": [0.0] * 3}
    model = single_node("LSTM", {"X": x}, {**constants, "B": bias}, order, 3, OPSET, hidden_size=hidden, **options)
    cells = tilewright.compile(model, precision="bf16").run(None, {"X": x})[2]
    assert_near(cells, np.full((1, 1, hidden), steps * 2.0**-6, np.float32), 1e-6)


def test_an_open_number_of_steps_and_batch() -> None:
    x, constants = data(5, 3, 16), weights("LSTM", 16, 40)
    model = single_node("LSTM", {"X": x}, constants, hidden_size=40)
    for position, name in enumerate(("steps", "batch")):
        model.graph.input[0].type.tensor_type.shape.dim[position].dim_param = name
    (expected,) = run_onnxruntime(model, {"X": x})
    found = tilewright.compile(model, precision="bf16", dynamic="symbolic").run(None, {"X": x})[0]
    assert_near(found, expected, 2 * ULP)

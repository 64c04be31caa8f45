"""LSTM, GRU and RNN with drawn shapes and attributes, against ONNX Runtime; their schedules; refusals."""

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import tilewright
from tests.closeness import assert_near
from tests.frontend.models import run_onnxruntime, single_node
from tests.profiles import examples
from tilewright.base.errors import BadProgram, InvalidModel
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph
from tilewright.ops.operator import require
from tilewright.ops.recurrent_activations import FORMS
from tilewright.tensor.build import placeholder

Array = NDArray[np.generic]

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
INPUTS = {"LSTM": ("X", "W", "R", "B", "lengths", "h", "c", "P")}
PLAIN = ("X", "W", "R", "B", "lengths", "h")
UNBOUNDED = frozenset({"Affine", "Elu", "LeakyRelu", "Relu", "Softplus", "ThresholdedRelu"})


@dataclass(frozen=True)
class Layer:
    """A layer: its inputs with time first, and its attributes."""

    op: str
    inputs: dict[str, Array]
    attributes: dict[str, object]
    constants: frozenset[str]

    def model(self, batch_first: bool) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """The model and its feeds, in one of the two layouts."""
        inputs = dict(self.inputs)
        if batch_first:
            inputs.update({name: np.ascontiguousarray(inputs[name].swapaxes(0, 1)) for name in "Xhc" if name in inputs})
        order = [name if name in inputs else "" for name in INPUTS.get(self.op, PLAIN)]
        while not order[-1]:
            order.pop()
        feeds = {name: array for name, array in inputs.items() if name not in self.constants}
        constants = {name: inputs[name] for name in self.constants if name in inputs}
        layout = {"layout": 1} if batch_first else {}
        outputs = 3 if self.op == "LSTM" else 2
        return single_node(self.op, feeds, constants, order, outputs, **self.attributes, **layout), feeds


def batch_second(results: list[Array]) -> list[Array]:
    """Outputs of the layout with the batch first, in the other one."""
    return [results[0].transpose(1, 2, 0, 3), *(last.swapaxes(0, 1) for last in results[1:])]


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    op = draw(st.sampled_from(sorted(GATES)))
    steps, batch, width = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    hidden = draw(st.sampled_from([1, 3, 4, 17]))
    direction = draw(st.sampled_from(sorted(DIRECTIONS)))
    directions, gates = DIRECTIONS[direction], GATES[op]
    random = np.random.default_rng(draw(st.integers(0, 99)))
    shapes = {
        "X": (steps, batch, width),
        "W": (directions, gates * hidden, width),
        "R": (directions, gates * hidden, hidden),
        "B": (directions, 2 * gates * hidden),
        "h": (directions, batch, hidden),
        "c": (directions, batch, hidden),
        "P": (directions, 3 * hidden),
    }
    names = [n for n in INPUTS.get(op, PLAIN) if n in "XWR" or draw(st.booleans())]
    inputs: dict[str, Array] = {
        name: random.uniform(-1, 1, shapes[name]).astype(np.float32) for name in names if name != "lengths"
    }
    if "lengths" in names:
        inputs["lengths"] = random.integers(1, steps + 1, batch).astype(np.int32)
    attributes: dict[str, object] = {"direction": direction, "hidden_size": hidden, **draw(options(op, directions))}
    constants = frozenset("WRBP") if draw(st.booleans()) else frozenset[str]()
    return Layer(op, inputs, attributes, constants)


@st.composite
def options(draw: st.DrawFn, op: str, directions: int) -> dict[str, object]:
    """Attributes besides the direction; parameters of activations are given for all that have them, or for none.

    Gates without a bound are clipped: as they multiply the state, which they follow from, numbers of digits double with
    each step, and a few steps overflow. Otherwise a step makes values at most some 50 times as large.
    """
    found: dict[str, object] = {}
    multiplies = False
    if draw(st.booleans()):
        names = draw(st.lists(st.sampled_from(sorted(FORMS)), min_size=ACTIVATIONS[op], max_size=ACTIVATIONS[op]))
        found["activations"] = names * directions
        multiplies = op != "RNN" and names[0] in UNBOUNDED
        numbers = st.sampled_from([0.25, 0.5, 0.75, 1.25])
        for option, kept in (("activation_alpha", "alpha"), ("activation_beta", "beta")):
            own = [name for name in names if getattr(FORMS[name], kept) is not None]
            if own:
                found[option] = [draw(numbers) for _ in own] * directions
    if draw(st.booleans()) or multiplies:
        found["clip"] = draw(st.sampled_from([0.2, 1.0, 9.0]))
    if op == "LSTM":
        found["input_forget"] = draw(st.integers(0, 1))
    if op == "GRU":
        found["linear_before_reset"] = draw(st.integers(0, 1))
    return found


@given(layers(), st.booleans())
@examples(8, by_night=60)
def test_against_onnxruntime(layer: Layer, batch_first: bool) -> None:
    proto, feeds = layer.model(batch_first=False)
    expected = run_onnxruntime(proto, feeds)
    if batch_first:
        proto, feeds = layer.model(batch_first=True)
    for results in (
        tilewright.compile(proto).run(None, feeds),
        evaluate_graph(importer.load(proto), feeds),
    ):
        for result, wanted in zip(batch_second(results) if batch_first else results, expected, strict=True):
            assert_near(result, wanted, 2e-5)


def test_weights_are_packed_and_the_product_is_a_tile_in_registers() -> None:
    """As long as the steps of an LSTM are, its products run as those of other layers."""
    inputs = {"X": np.zeros((4, 3, 32), np.float32)}
    weights = {name: np.ones((1, 256, width), np.float32) for name, width in (("W", 32), ("R", 64))}
    model = tilewright.compile(single_node("LSTM", inputs, weights, hidden_size=64), target="x86_64,znver4")
    (recurrence,) = (k for k in model.compiled.kernels if "lstm" in k.program.name)
    text = str(recurrence.program)
    assert "alloc product: f32[1, 3, 64] in local" in text
    assert "in vectorized(64)" in text
    assert "f32[4, 64, 64]" in text.partition("->")[0], "the recurrent weights, in panels"


def test_run_time_steps_and_lengths() -> None:
    """The number of steps and the batch are known at run time only; lengths out of range are cut without checks."""
    random = np.random.default_rng(2)
    x = random.uniform(-1, 1, (5, 3, 4)).astype(np.float32)
    weights = {"W": random.uniform(-1, 1, (1, 12, 4)), "R": random.uniform(-1, 1, (1, 12, 3))}
    constants: dict[str, Array] = {name: array.astype(np.float32) for name, array in weights.items()}
    lengths = np.array([5, 2, 3], np.int32)
    order = ["X", "W", "R", "", "lengths"]
    proto = single_node("LSTM", {"X": x, "lengths": lengths}, constants, order, 3, hidden_size=3)
    expected = run_onnxruntime(proto, {"X": x, "lengths": lengths})
    shapes = {"X": ("steps", "batch", 4), "lengths": ("batch",)}
    free = single_node("LSTM", {"X": x, "lengths": lengths}, constants, order, 3, hidden_size=3)
    for info in free.graph.input:
        for position, dim in enumerate(info.type.tensor_type.shape.dim):
            name = shapes[info.name][position]
            if isinstance(name, str):
                dim.dim_param = name
    model = tilewright.compile(free, bounds={"steps": 8, "batch": 4}, checks="off")
    for result, wanted in zip(model.run(None, {"X": x, "lengths": lengths}), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    wild = np.array([2**30, 2, -7], np.int32)
    every, _, _ = model.run(None, {"X": x, "lengths": wild})
    np.testing.assert_allclose(every[:, :, :2], expected[0][:, :, :2], rtol=1e-5, atol=1e-6)
    assert not every[:, :, 2].any()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"direction": "sideways"}, "direction sideways is none of"),
        ({"direction": "bidirectional"}, r"should have the shape \[2, 3 \* hidden, hidden\]"),
        ({"hidden_size": 3}, "hidden_size is 3, but"),
        ({"activations": ["Tanh"]}, "1 activations are given, not 2"),
        ({"activations": ["Tanh", "Gelu"]}, "there is no activation Gelu"),
        ({"clip": -1.0}, "it must be at least 0"),
    ],
)
def test_refusals(attributes: dict[str, object], message: str) -> None:
    shapes = {"X": (2, 1, 4), "W": (1, 6, 4), "R": (1, 6, 2)}
    inputs: dict[str, Array] = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(InvalidModel, match=message):
        importer.load(single_node("GRU", inputs, **attributes))


def test_weights_of_another_shape_are_refused() -> None:
    shapes = {"X": (2, 1, 4), "W": (1, 8, 3), "R": (1, 8, 2)}
    inputs: dict[str, Array] = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(InvalidModel, match="4 columns against 3 rows"):
        importer.load(single_node("LSTM", inputs))


def test_another_number_of_activations_is_refused() -> None:
    x, weights = placeholder((2, 1, 6), name="x"), placeholder((4, 2), name="gates")
    hidden = placeholder((2, 2), name="hidden")
    with pytest.raises(BadProgram, match=r"GRU: 2 activations are needed, not \['Tanh'\]"):
        require("GRU").apply([x, weights, hidden], {"activations": ("Tanh",), "alphas": (0.0,), "betas": (0.0,)})

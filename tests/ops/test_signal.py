"""Fourier transforms, windows, mel filters, reversed sequences, determinants: against NumPy and ONNX's reference."""

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tests.frontend.models import single_node
from tests.ops.nodes import NodeCase, check, run_reference
from tilewright.base.errors import InvalidModel, UnsupportedModel
from tilewright.frontend.onnx.read import importer

Array = NDArray[np.generic]
random = np.random.default_rng(8)


def f(*shape: int) -> NDArray[np.float32]:
    return random.uniform(-1, 1, shape).astype(np.float32)


def one(value: float, dtype: type = np.int64) -> Array:
    return np.array(value, dtype)


def dft(x: Array, axis: int | None = None, length: int | None = None, **attributes: object) -> NodeCase:
    constants = [None if length is None else one(length), None if axis is None else one(axis)]
    while constants and constants[-1] is None:
        constants.pop()
    return NodeCase("DFT", [x], attributes, constants, opset=20, oracle=run_reference)


CASES = [
    dft(f(2, 10, 1)),
    dft(f(2, 10, 2), 1),
    dft(f(3, 7, 4, 1), 1, onesided=1),
    dft(f(3, 7, 4, 2), -3),
    dft(f(2, 9, 2), inverse=1),
    dft(f(2, 6, 1), length=4),
    dft(f(2, 6, 2), length=9),
    dft(f(2, 6, 1), length=9, onesided=1),
    dft(f(2, 6, 2), inverse=1, onesided=1),
    dft(f(2, 5, 2), length=9, inverse=1, onesided=1),
    dft(f(2, 400, 1), onesided=1),
    NodeCase("DFT", [f(2, 8, 3, 1)], {"axis": 2}, opset=17, oracle=run_reference),
    NodeCase("DFT", [f(2, 8, 1)], {"inverse": 1}, opset=17, oracle=run_reference),
]


CASES += [
    NodeCase("ReverseSequence", [f(4, 3, 2), np.array([1, 4, 2])]),
    NodeCase("ReverseSequence", [f(3, 4), np.array([0, 4, 2])], {"batch_axis": 0, "time_axis": 1}),
    *(
        NodeCase("Det", [f(*shape)], tolerance=1e-5)
        for shape in ((1, 1), (2, 2), (3, 5, 5), (2, 2, 7, 7), (0, 3, 3), (40, 4, 4))
    ),
    NodeCase("Det", [np.array([[0, 2, 1], [1, 0, 3], [4, 1, 0]], np.float32)]),
    NodeCase("Det", [np.ones((3, 3), np.float64)], oracle=run_reference),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_an_oracle(case: NodeCase) -> None:
    check(case)


@pytest.mark.parametrize(("onesided", "parts", "windowed"), [(1, 1, True), (0, 2, True), (1, 1, False)])
def test_stft(onesided: int, parts: int, windowed: bool) -> None:
    """Frame by frame, by NumPy's transform."""
    signal, window, step = f(2, 50, parts), f(16), 5
    inputs: dict[str, Array] = {"signal": signal}
    constants: dict[str, Array] = {"step": one(step), "length": one(16)}
    if windowed:
        inputs["window"] = window
    order = ["signal", "step", "window" if windowed else "", "length"]
    proto = single_node("STFT", inputs, constants, order, onesided=onesided)
    (result,) = tilewright.compile(proto).run(None, inputs)
    numbers = signal[..., 0] + (1j * signal[..., 1] if parts == 2 else 0)
    frames = np.stack([numbers[:, start : start + 16] for start in range(0, 35, step)], axis=1)
    spectrum = np.fft.fft(frames * window if windowed else frames)[..., : 9 if onesided else 16]
    np.testing.assert_allclose(result, np.stack([spectrum.real, spectrum.imag], -1), rtol=1e-5, atol=1e-5)
    if parts == 1:  # a sum of all samples, and one of alternating signs: real, without rounding
        assert not result[..., [0, 8], 1].any()


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("attributes", [{}, {"periodic": 0}, {"output_datatype": 11}])
def test_windows(op: str, attributes: dict[str, object]) -> None:
    proto = single_node(op, {}, {"size": one(11)}, **attributes)
    reference = single_node(op, {}, {"size": one(11)}, **{"periodic": 1, "output_datatype": 1, **attributes})
    np.testing.assert_allclose(
        tilewright.compile(proto).run(None, {})[0], run_reference(reference, {})[0], rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize(("bins", "length", "rate"), [(8, 16, 8192), (20, 64, 8000), (3, 400, 16000), (40, 32, 8000)])
def test_mel_weights(bins: int, length: int, rate: int) -> None:
    numbers = {"bins": one(bins), "length": one(length), "rate": one(rate)}
    constants = {**numbers, "low": one(0.0, np.float32), "high": one(rate / 2, np.float32)}
    proto = single_node("MelWeightMatrix", {}, constants)
    np.testing.assert_allclose(
        tilewright.compile(proto).run(None, {})[0], run_reference(proto, {})[0], rtol=1e-6, atol=1e-7
    )


def test_mel_weights_of_numbers_that_are_data() -> None:
    """One model for all counts, rates and edges."""
    sizes = {"bins": one(8), "length": one(16), "rate": one(8192)}
    edges = {"low": one(0.0, np.float32), "high": one(4096.0, np.float32)}
    proto = single_node("MelWeightMatrix", {**sizes, **edges})
    model = tilewright.compile(proto)
    for bins, length, rate, low in ((8, 16, 8192, 0.0), (3, 400, 16000, 60.0), (40, 32, 8000, 0.0)):
        edges = {"low": one(low, np.float32), "high": one(rate / 2, np.float32)}
        feeds = {"bins": one(bins), "length": one(length), "rate": one(rate), **edges}
        (found,) = model.run(None, feeds)
        np.testing.assert_allclose(found, run_reference(proto, feeds)[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("case", "error", "message"),
    [
        (dft(f(2, 6, 1), 2), InvalidModel, "axis 2 is out of range"),
        (dft(f(2, 6, 3)), InvalidModel, "1 or 2 parts"),
        (dft(f(2, 6, 1), length=0), InvalidModel, "the length be positive: 0"),
        (dft(f(1, 9000, 1)), UnsupportedModel, "it needs a constant of 162000000 elements"),
        (NodeCase("STFT", [f(2, 5, 1)], {}, [one(2), None, one(9)], opset=20), InvalidModel, "frames of 9 every 2"),
        (NodeCase("STFT", [f(2, 5, 1), one(2)], {}, [], opset=20), UnsupportedModel, "must be a constant"),
        (NodeCase("Det", [f(2, 3)]), InvalidModel, "square matrices"),
        (NodeCase("ReverseSequence", [f(2, 3), np.array([1, 2])]), InvalidModel, "with a length each"),
        (NodeCase("NonMaxSuppression", [f(4, 4), f(1, 1, 4)]), InvalidModel, "need three dimensions each"),
        (NodeCase("HannWindow", [], {}, [one(-1)]), InvalidModel, "the size -1 is negative"),
    ],
    ids=str,
)
def test_refusals(case: NodeCase, error: type[Exception], message: str) -> None:
    feeds = {f"x{p}": array for p, array in enumerate(case.inputs) if array is not None}
    constants = {f"c{p}": array for p, array in enumerate(case.constants) if array is not None}
    order = [*feeds, *("" if array is None else f"c{p}" for p, array in enumerate(case.constants))]
    with pytest.raises(error, match=message):
        importer.load(single_node(case.op, feeds, constants, order, 1, case.opset, **case.attributes))

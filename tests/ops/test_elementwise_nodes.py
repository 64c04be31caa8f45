"""Elementwise operators by the evaluator and as native code, against ONNX Runtime, or ONNX's reference evaluator."""

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tests.frontend.models import single_node
from tests.ops.nodes import Array, NodeCase, check, run_reference

random = np.random.default_rng(5)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 7.5, -7.5, 90, -90, 3e38, -3e38, np.inf, -np.inf, np.nan, 1e-30])


def f(*shape: int, dtype: type = np.float32) -> NDArray[np.generic]:
    return random.uniform(-4, 4, shape).astype(dtype)


def special(dtype: type = np.float32) -> NDArray[np.generic]:
    with np.errstate(over="ignore"):
        return SPECIAL.astype(dtype)


def ints(dtype: type, *values: int) -> NDArray[np.generic]:
    return np.array(values, dtype)


ACTIVATIONS: list[tuple[str, dict[str, object], int]] = [
    ("Celu", {}, 12),
    ("Celu", {"alpha": 2.5}, 12),
    ("Elu", {"alpha": 0.5}, 21),
    ("Elu", {}, 7),
    ("Gelu", {}, 20),
    ("Gelu", {"approximate": "tanh"}, 20),
    ("HardSigmoid", {}, 21),
    ("HardSigmoid", {"alpha": 0.5, "beta": 0.25}, 7),
    ("HardSwish", {}, 21),
    ("LeakyRelu", {}, 21),
    ("LeakyRelu", {"alpha": 0.3}, 7),
    ("Mish", {}, 21),
    ("Selu", {}, 21),
    ("Selu", {"alpha": 2.0, "gamma": 3.0}, 7),
    ("Shrink", {"lambd": 1.5, "bias": 1.0}, 21),
    ("Shrink", {}, 9),
    ("Softplus", {}, 21),
    ("Softsign", {}, 21),
    ("ThresholdedRelu", {"alpha": 2.0}, 21),
    ("ThresholdedRelu", {}, 21),
]


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(("op", "attributes", "opset"), ACTIVATIONS)
def test_activation(op: str, attributes: dict[str, object], opset: int, dtype: type) -> None:
    tolerance = {np.float32: 3e-6, np.float64: 1e-6, np.float16: 3e-3}[dtype]
    if op == "HardSwish" and dtype is np.float64:
        tolerance = 1e-6
    check(NodeCase(op, [f(3, 70, dtype=dtype)], attributes, opset=opset, tolerance=tolerance, oracle=run_reference))


@pytest.mark.parametrize(
    ("op", "limits"),
    [
        ("Celu", (np.inf, -1.0)),
        ("Elu", (np.inf, -1.0)),
        ("Gelu", (np.inf, np.nan)),
        ("HardSigmoid", (1.0, 0.0)),
        ("HardSwish", (np.inf, np.nan)),
        ("LeakyRelu", (np.inf, -np.inf)),
        ("Mish", (np.inf, np.nan)),
        ("Selu", (np.inf, -1.758099340847376849940226)),
        ("Shrink", (np.inf, -np.inf)),
        ("Sign", (1.0, -1.0)),
        ("Softplus", (np.inf, 0.0)),
        ("Softsign", (np.nan, np.nan)),
    ],
)
def test_infinity_and_nan(op: str, limits: tuple[float, float]) -> None:
    """What the formulas give for infinity, minus infinity and NaN; large numbers overflow nowhere on the way."""
    x = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 0.0, -0.0], np.float32)
    model = tilewright.compile(single_node(op, {"x": x}, opset=21))
    (result,) = model.run(None, {"x": x})
    np.testing.assert_allclose(result[:2], np.array(limits, np.float32), rtol=1e-6)
    assert np.isnan(result[2]) == (op not in {"Shrink"})
    assert not np.isnan(result[3:]).any()


def test_thresholds_take_nan_for_not_beyond() -> None:
    check(NodeCase("ThresholdedRelu", [special()]))
    check(NodeCase("Shrink", [special()]))


SHIFTS = [0, 1, 7, 8, 31, 64, 200]
CASES = [
    NodeCase("Swish", [f(3, 5)], {"alpha": 1.5}, opset=24, oracle=run_reference),
    NodeCase("SwiGLU", [f(3, 5), f(3, 5)], {"alpha": 0.5}, opset=28, oracle=run_reference),
    NodeCase("Xor", [f(3, 4, 5, 6) > 0, f(1, 4, 1, 6) > 0]),
    NodeCase("PRelu", [f(2, 3, 4), f(3, 1)]),
    NodeCase("PRelu", [f(2, 3, 4), f(4)], opset=7),
    NodeCase("PRelu", [ints(np.int32, -3, 2, 0), ints(np.int32, 5)], opset=16, oracle=run_reference),
    NodeCase("Shrink", [ints(np.int8, -128, 127, 0, -3, 3)], {"lambd": 2.0, "bias": 1.0}),
    *(NodeCase("Sign", [special(dtype)[:-2]]) for dtype in (np.float32, np.float64)),
    *(NodeCase("Sign", [ints(dtype, 0, 1, 77)]) for dtype in (np.uint8, np.int8, np.int64, np.uint64)),
    *(
        NodeCase("IsInf", [special()], {"detect_negative": negative, "detect_positive": positive})
        for negative in (0, 1)
        for positive in (0, 1)
    ),
    *(
        NodeCase(
            "BitShift", [a, ints(a.dtype.type, 0, 1, 7, 8, 31, 64, 200)], {"direction": side}, oracle=run_reference
        )
        for a in (ints(np.uint8, *[165] * 7), ints(np.uint32, *[2**31 + 5] * 7), ints(np.uint64, *[2**63 + 5] * 7))
        for side in ("LEFT", "RIGHT")
    ),
    *(
        NodeCase(op, [ints(np.int16, -3, 77, 1), ints(np.int16, 12, -9, 3)], opset=18)
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
    ),
    NodeCase("BitwiseNot", [ints(np.uint16, 0, 1, 77)], opset=18),
    NodeCase("Mean", [f(2, 3), f(3), f(1)]),
    NodeCase("Mean", [f(2, 3), f(3)], opset=8),
    NodeCase("Mean", [f(4)]),
    NodeCase("CastLike", [f(4), ints(np.int32, 1)]),
    NodeCase("CastLike", [ints(np.int32, 1, 0, -7), np.array([True])]),
    NodeCase("Clip", [f(9)], {"min": -1.0, "max": 0.5}, opset=7),
    NodeCase("Clip", [f(9)], {"max": 0.5}, opset=7),
    NodeCase("Clip", [f(9), np.array(1, np.float32), np.array(-1, np.float32)], opset=12),
    *(NodeCase(op, [special(), special()[::-1]]) for op in ("Max", "Min", "Equal", "Less", "Greater")),
    *(NodeCase(op, [special(np.float16), special(np.float16)[::-1]]) for op in ("Max", "Min")),
    NodeCase("Max", [special(np.float64), np.array([np.nan]), f(16, dtype=np.float64)]),
]


@pytest.mark.share(3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_elementwise(case: NodeCase) -> None:
    check(case)


INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def _corners(dtype: type) -> list[int]:
    info = np.iinfo(dtype)
    return [v for v in (0, 1, 2, 3, -1, -2, 10, 255, 256, 65537, info.max, info.min) if info.min <= v <= info.max]


def _power(base: int, exponent: int, dtype: type) -> int:
    """``base ** exponent`` wrapped around; of a negative exponent, the truncated quotient, and 0 for 1 / 0."""
    modulus = 1 << np.iinfo(dtype).bits
    inverse = base ** -(exponent & 1) if base in (1, -1) else 0
    value = int(pow(base, exponent, modulus) if exponent >= 0 else inverse) % modulus
    return value - modulus if value > np.iinfo(dtype).max else value


@pytest.mark.share(6)
@pytest.mark.parametrize("exponent_type", INTEGERS)
@pytest.mark.parametrize("base_type", INTEGERS)
def test_integer_powers_of_all_pairs_of_dtypes(base_type: type, exponent_type: type) -> None:
    pairs = [(a, b) for a in _corners(base_type) for b in _corners(exponent_type)]
    base = np.array([a for a, _ in pairs], base_type)
    exponent = np.array([b for _, b in pairs], exponent_type)
    expected = np.array([_power(a, b, base_type) for a, b in pairs], base_type)

    def oracle(*_: object) -> list[Array]:
        return [expected]

    check(NodeCase("Pow", [base, exponent], oracle=oracle))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, 8, 9, -1, 2.0, 3.0, 0.5])
def test_constant_powers(exponent: float) -> None:
    """Small ones become products."""
    constant = np.array(exponent, np.float32 if isinstance(exponent, float) else np.int64)
    if isinstance(exponent, int) and exponent >= 0:
        check(NodeCase("Pow", [ints(np.int32, -3, 2, 0, 77, 1000)], constants=[constant], oracle=run_reference))
    check(NodeCase("Pow", [abs(f(3, 5))], constants=[constant], tolerance=2e-6))


POWERS = [
    NodeCase("Pow", [ints(np.int32, 2, 3, 9), np.array([0.5, 2, -1], np.float32)], oracle=run_reference),
    NodeCase("Pow", [np.array([-1, -1, 2], np.float32), ints(np.int64, 2**24 + 1, 2**24 + 2, -3)]),
    NodeCase("Pow", [np.array([1.5, -2], np.float32), np.array([2.5, 3], np.float64)], oracle=run_reference),
]


@pytest.mark.parametrize("case", POWERS, ids=str)
def test_powers_of_mixed_dtypes(case: NodeCase) -> None:
    check(case)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_remainders_of_floats(dtype: type) -> None:
    x, y = (a.astype(dtype).ravel() for a in np.meshgrid([5.3, -5.3, 1e4, 0.0, -0.0, np.inf], [3, -3, 0.7, np.inf]))
    check(NodeCase("Mod", [x, y], {"fmod": 1}, tolerance=0, oracle=run_reference))
    check(NodeCase("Mod", [x, y], {"fmod": 0}, opset=28, tolerance=0, oracle=run_reference))


def test_remainders_by_zero_and_overflow_are_defined() -> None:
    a, b = ints(np.int32, 5, -5, -(2**31), 0), ints(np.int32, 0, 0, -1, 0)
    for op, attributes in (("Mod", {}), ("Mod", {"fmod": 1}), ("Div", {})):
        model = tilewright.compile(single_node(op, {"a": a, "b": b}, **attributes))
        (result,) = model.run(None, {"a": a, "b": b})
        np.testing.assert_array_equal(result, [0, 0, -(2**31) if op == "Div" else 0, 0])

"""Every operator through the importer and the te evaluator, against ONNX Runtime."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.frontend.models import run_onnxruntime, single_node
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph, verify

Array = NDArray[np.generic]
random = np.random.default_rng(11)


def f(*shape: int, low: float = -2.0, high: float = 2.0, dtype: type = np.float32) -> Array:
    return random.uniform(low, high, shape).astype(dtype)


def i(*shape: int, low: int = -9, high: int = 9, dtype: type = np.int64) -> Array:
    return random.integers(low, high, shape).astype(dtype)


def b(*shape: int) -> Array:
    return random.integers(0, 2, shape).astype(bool)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


@dataclass
class Case:
    op: str
    inputs: list[Array]
    constants: list[Array | None] = field(default_factory=list)
    attributes: dict[str, object] = field(default_factory=dict)
    outputs: int = 1
    tolerance: float = 2e-6
    opset: int = 21

    def __str__(self) -> str:
        shapes = "-".join(f"{a.dtype}{'x'.join(map(str, a.shape))}" for a in self.inputs)
        options = "-".join(f"{k}{v}" for k, v in self.attributes.items())
        return f"{self.op}-{shapes}-{options}"


UNARY = """
    Abs Asinh Atan Ceil Cos Cosh Erf Exp Floor Identity IsNaN Neg Relu Round Sigmoid Sin Sinh Tan Tanh
"""
CASES = [
    *(Case(op, [f(3, 4)]) for op in UNARY.split()),
    *(Case(op, [f(3, 4, low=-0.9, high=0.9)]) for op in ("Acos", "Asin", "Atanh")),
    *(Case(op, [f(3, 4, low=1.1, high=9.0)]) for op in ("Acosh", "Log", "Sqrt", "Reciprocal")),
    *(Case(op, [i(3, 4)]) for op in ("Abs", "Neg")),
    Case("Relu", [i(3, 4, dtype=np.int32)]),
    Case("Not", [b(5)]),
    *(Case(op, [f(3, 1, 4), f(2, 1)]) for op in ("Add", "Sub", "Mul", "Div", "Less", "Greater", "LessOrEqual")),
    *(Case(op, [i(40), i(40, low=1)]) for op in ("Add", "Sub", "Mul", "GreaterOrEqual", "Equal")),
    Case("Div", [i(60), i(60, low=1)]),
    Case("Div", [i(60), -i(60, low=1)]),
    Case("Div", [i(60, dtype=np.int32, low=-100), i(1, low=3, high=4, dtype=np.int32)]),
    Case("Mod", [i(60), np.where((d := i(60)) == 0, 3, d)]),
    Case("Mod", [i(60), np.where(d == 0, 3, d)], attributes={"fmod": 1}),
    Case("Mod", [f(60), f(60)], attributes={"fmod": 1}),
    Case("Pow", [f(3, 4, low=0.1), f(4)]),
    Case("Pow", [f(3, 4), ints(2)]),
    Case("Pow", [i(3, 4), ints(3)]),
    Case("Pow", [i(3, 4, low=0), np.array(0.5, np.float32)]),
    Case("Pow", [f(3, 4, low=0.1), np.array([2], np.int32)]),
    *(Case(op, [b(3, 1), b(4)]) for op in ("And", "Or", "Xor", "Equal")),
    *(Case(op, [f(3, 4), f(4), f(3, 1)]) for op in ("Max", "Min", "Sum")),
    *(Case(op, [f(3, 4)]) for op in ("Max", "Min", "Sum")),
    *(Case(op, [i(3, 4), i(4)]) for op in ("Max", "Min")),
    Case("Max", [np.array([np.nan, 1, -np.inf], np.float32), np.array([0, np.nan, 3], np.float32)]),
    Case("Relu", [np.array([np.nan, -0.0, np.inf, -np.inf], np.float32)]),
    Case("Clip", [f(3, 4)], [np.array(-0.5, np.float32), np.array(0.5, np.float32)]),
    Case("Clip", [f(3, 4)], [None, np.array(0.5, np.float32)]),
    Case("Clip", [f(3, 4)], [np.array(0.5, np.float32)]),
    Case("Clip", [i(3, 4)], [np.array(-2), np.array(3)]),
    Case("Clip", [f(3, 4)]),
    Case("Where", [b(3, 1), f(4), f(2, 1, 1)]),
    Case("Cast", [f(20, low=-9, high=9)], attributes={"to": 7}),
    Case("Cast", [f(20)], attributes={"to": 10}),
    Case("Cast", [f(20)], attributes={"to": 9}),
    Case("Cast", [i(20)], attributes={"to": 1}),
    Case("Cast", [b(20)], attributes={"to": 1}),
    Case("Cast", [i(20, low=-1000, high=1000)], attributes={"to": 3}),
    # Contractions
    *(
        Case("MatMul", [f(*a), f(*c)], tolerance=1e-5)
        for a, c in (
            ((3, 4), (4, 5)),
            ((2, 3, 4), (4, 5)),
            ((2, 1, 3, 4), (5, 4, 6)),
            ((4,), (4, 5)),
            ((3, 4), (4,)),
            ((4,), (4,)),
            ((2, 3, 4), (4,)),
            ((1, 4), (7, 4, 1)),
        )
    ),
    Case("MatMul", [f(3, 4, dtype=np.float64), f(4, 5, dtype=np.float64)]),
    Case("MatMul", [i(3, 4, dtype=np.int32), i(4, 5, dtype=np.int32)]),
    Case("Gemm", [f(3, 4), f(4, 5), f(5)], attributes={"alpha": 0.5, "beta": 2.0}, tolerance=1e-5),
    Case("Gemm", [f(4, 3), f(5, 4), f(3, 1)], attributes={"transA": 1, "transB": 1}, tolerance=1e-5),
    Case("Gemm", [f(4, 3), f(3, 5)], tolerance=1e-5),
    # Reductions
    *(
        Case(op, [f(3, 4, 5, low=0.5)], [ints(*axes)], {"keepdims": keep}, tolerance=1e-5)
        for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ReduceL2", "ReduceSumSquare")
        for axes, keep in (((1,), 0), ((0, -1), 1))
    ),
    Case("ReduceSum", [f(3, 4)], tolerance=1e-5),
    Case("ReduceSum", [f(3, 4)], [ints()], {"noop_with_empty_axes": 1}),
    Case("ReduceSum", [f(3, 4)], [ints()], tolerance=1e-5),
    Case("ReduceMean", [f(3, 4)], attributes={"axes": [1]}, opset=13),
    Case("ReduceMean", [i(30, 7, dtype=np.int32)], [ints(1)]),
    Case("ReduceSum", [i(3, 4)], [ints(0)]),
    Case("ReduceMax", [i(3, 4)], [ints(0)]),
    *(Case("Softmax", [f(3, 4, 5, high=30)], attributes={"axis": axis}) for axis in (-1, 0, 1)),
    Case("LayerNormalization", [f(3, 4, 5, high=9)], [f(5), f(5)], {"epsilon": 1e-3}, tolerance=1e-5),
    Case("LayerNormalization", [f(3, 4, 5)], [f(4, 5)], {"axis": 1}, outputs=3, tolerance=1e-5),
    # Movement
    Case("Reshape", [f(3, 4, 5)], [ints(4, -1)]),
    Case("Reshape", [f(3, 4, 5)], [ints(0, 2, 2, -1)]),
    Case("Reshape", [f(1, 12, 1)], [ints(3, 1, 4)]),
    Case("Reshape", [f(0, 3)], [ints(3, 0)], {"allowzero": 1}),
    Case("Reshape", [f(1)], [ints()]),
    Case("Flatten", [f(2, 3, 4)], attributes={"axis": 2}),
    Case("Flatten", [f(2, 3, 4)], attributes={"axis": 0}),
    Case("Unsqueeze", [f(3, 4)], [ints(0, -1)]),
    Case("Squeeze", [f(1, 3, 1, 4)], [ints(0, -2)]),
    Case("Squeeze", [f(1, 3, 1, 4)]),
    Case("Transpose", [f(2, 3, 4)], attributes={"perm": [2, 0, 1]}),
    Case("Transpose", [f(2, 3, 4)]),
    Case("Gather", [f(5, 4), i(2, 3, low=-5, high=5)]),
    Case("Gather", [f(5, 4), i(2, low=-4, high=4, dtype=np.int32)], attributes={"axis": -1}),
    Case("Gather", [f(5, 4), np.array(3)], attributes={"axis": 0}),
    Case("Concat", [f(2, 3), f(2, 1), f(2, 4)], attributes={"axis": -1}),
    Case("Concat", [f(2, 3)], attributes={"axis": 0}),
    Case("Concat", [f(2, 0), f(2, 3)], attributes={"axis": 1}),
    Case("Expand", [f(3, 1)], [ints(2, 1, 4)]),
    Case("Expand", [f(3, 1)], [ints(1)]),
    *(
        Case("Slice", [f(6, 7)], [ints(*values) for values in bounds])
        for bounds in (
            ((1, 2), (4, 2**62)),
            ((-3,), (-1,), (1,)),
            ((5,), (-(2**62),), (0,), (-2,)),
            ((-1,), (0,), (1,), (-1,)),
            ((3,), (2,), (0,)),
            ((0, 1), (9, 5), (1, 0), (3, 1)),
        )
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operator(case: Case) -> None:
    inputs = {f"x{position}": array for position, array in enumerate(case.inputs)}
    constants = {f"c{position}": array for position, array in enumerate(case.constants) if array is not None}
    order = [*inputs, *("" if array is None else f"c{p}" for p, array in enumerate(case.constants))]
    proto = single_node(case.op, inputs, constants, order, case.outputs, case.opset, **case.attributes)
    graph = importer.load(proto)
    verify(graph)
    results = evaluate_graph(graph, inputs)
    for result, expected in zip(results, run_onnxruntime(proto, inputs), strict=True):
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        tolerance = case.tolerance if expected.dtype.kind == "f" else 0
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "Softmax", "MatMul", "LayerNormalization"])
def test_half_precision_accumulates_in_single(op: str) -> None:
    """A sum of 4096 elements of about one; added up in f16 it would stop growing at 2048."""
    x = random.uniform(0.9, 1.1, (2, 4096)).astype(np.float16)
    wide = x.astype(np.float64)
    centered = wide - wide.mean(1, keepdims=True)
    expected = {
        "ReduceSum": wide.sum(1, keepdims=True),
        "ReduceMean": wide.mean(1, keepdims=True),
        "Softmax": np.exp(wide) / np.exp(wide).sum(1, keepdims=True),
        "MatMul": wide @ np.ones((4096, 1)),
        "LayerNormalization": centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5),
    }[op]
    more = {"MatMul": [np.ones((4096, 1), np.float16)], "LayerNormalization": [np.ones(4096, np.float16)]}.get(op, [])
    axes = {"ReduceSum": [ints(1)], "ReduceMean": [ints(1)]}.get(op, [])
    inputs = {f"x{p}": array for p, array in enumerate([x, *more])}
    graph = importer.load(single_node(op, inputs, {f"c{p}": array for p, array in enumerate(axes)}))
    (result,) = evaluate_graph(graph, inputs)
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, expected, rtol=2e-3, atol=1e-3)

"""Composites raised from their parts compute what the parts do; what only looks alike is left."""

from collections.abc import Callable, Sequence
from math import pi, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.closeness import assert_near
from tests.passes.graphs import random_graphs, value
from tilewright.base.dtypes import DType, f32, f64
from tilewright.graph import Graph, Node, Value, evaluate_graph, make_node, verify
from tilewright.ops.operator import require
from tilewright.passes.normalize import eliminate_dead_code
from tilewright.passes.recognize import recognize
from tilewright.symbolic.expr import const

Array = NDArray[np.generic]
SHAPE = (2, 3, 8)
X = value("x", *SHAPE)


class Builder:
    """Writes a graph as an exporter would."""

    def __init__(self, dtype: DType = f32) -> None:
        self.dtype = dtype
        self.x = Value("x", dtype, X.shape)
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}

    def __call__(self, op: str, *inputs: Value, **attributes: object) -> Value:
        self.nodes.append(make_node(require(op), inputs, [f"v{len(self.nodes)}"], attributes))
        return self.nodes[-1].outputs[0]

    def number(self, number: float, shape: Sequence[int] = ()) -> Value:
        return self.constant(np.full(shape, number, self.dtype.numpy))

    def constant(self, array: Array) -> Value:
        made = Value(f"c{len(self.constants)}", self.dtype, tuple(map(const, array.shape)))
        self.constants[made] = array
        return made

    def vector(self, seed: int) -> Value:
        return self.constant(np.random.default_rng(seed).standard_normal(SHAPE[-1]).astype(np.float32))

    def graph(self, output: Value) -> Graph:
        return Graph("g", (self.x,), (output,), tuple(self.nodes), self.constants)


def power(b: Builder, x: Value, exponent: int, how: str) -> Value:
    """``x ** exponent`` as it is written by hand, by the importer, and as products."""
    if how == "Pow":
        return b("Pow", x, b.number(exponent))
    if how == "IntegerPower":
        return b("IntegerPower", x, exponent=exponent)
    return b("Mul", x, x) if exponent == 2 else b("Mul", b("Mul", x, x), x)


def layer_normalization(
    b: Builder,
    *,
    square: str = "Pow",
    exponent: int = 2,
    quotient: str = "Div",
    bias: bool = True,
    axes: tuple[int, ...] = (-1,),
    spread: tuple[int, ...] | None = None,
    epsilon: Value | None = None,
) -> Value:
    """The mean over ``axes``, the variance over ``spread`` (None: those, too)."""
    centered = b("Sub", X, b("ReduceMean", X, axes=axes))
    squared = power(b, centered, exponent, square)
    root = b("Sqrt", b("Add", b("ReduceMean", squared, axes=spread or axes), epsilon or b.number(1e-5)))
    normal = b("Div", centered, root) if quotient == "Div" else b("Mul", b("Reciprocal", root), centered)
    scaled = b("Mul", b.vector(1), normal)
    return b("Add", scaled, b.vector(2)) if bias else scaled


def rms_normalization(b: Builder) -> Value:
    mean = b("ReduceMean", b("Mul", X, X), axes=(2,))
    return b("Mul", b("Mul", X, b("Reciprocal", b("Sqrt", b("Add", mean, b.number(1e-6))))), b.vector(1))


def softmax(b: Builder, axis: int = -1, total: int | None = None) -> Value:
    exponential = b("Exp", b("Sub", X, b("ReduceMax", X, axes=(axis,))))
    return b("Div", exponential, b("ReduceSum", exponential, axes=(axis if total is None else total,)))


def quotient_of_axes(b: Builder, above: int, below: int) -> Value:
    """A softmax if the axes are equal."""
    over, under = (b("Exp", b("Sub", X, b("ReduceMax", X, axes=(axis,)))) for axis in (above, below))
    return b("Div", over, b("ReduceSum", under, axes=(below,)))


def centered_twice(b: Builder, above: int, below: int) -> Value:
    """A layer normalization if the axes are equal."""
    over, under = (b("Sub", X, b("ReduceMean", X, axes=(axis,))) for axis in (above, below))
    root = b("Sqrt", b("Add", b("ReduceMean", b("Mul", under, under), axes=(-1,)), b.number(1e-5)))
    return b("Mul", b("Div", over, root), b.vector(1))


def gelu(b: Builder, form: int, root: float = sqrt(2), one: float = 1.0) -> Value:
    x = b.x
    scaled = b("Div", x, b.number(root)) if form % 2 else b("Mul", x, b.number(1 / root, (1,)))
    factor, half = b("Add", b("Erf", scaled), b.number(one)), b.number(0.5)
    if form < 2:
        return b("Mul", b("Mul", x, factor), half)
    return b("Mul", x, b("Mul", half, factor)) if form < 4 else b("Mul", b("Mul", half, x), factor)


def gelu_tanh(b: Builder, cube: str = "Pow") -> Value:
    cubed = power(b, X, 3, cube)
    inner = b("Mul", b("Add", X, b("Mul", b.number(0.044715), cubed)), b.number(sqrt(2 / pi)))
    return b("Mul", b("Mul", b.number(0.5), X), b("Add", b.number(1.0), b("Tanh", inner)))


def hard_swish(b: Builder, divide_last: bool = True) -> Value:
    clipped = b("Clip", b("Add", X, b.number(3.0)), b.number(0.0), b.number(6.0))
    if divide_last:
        return b("Div", b("Mul", X, clipped), b.number(6.0))
    return b("Mul", X, b("Div", clipped, b.number(6.0)))


RAISED: dict[str, tuple[Callable[[Builder], Value], str]] = {
    "layer norm": (layer_normalization, "LayerNormalization"),
    "layer norm, products": (
        lambda b: layer_normalization(b, square="Mul", quotient="Reciprocal"),
        "LayerNormalization",
    ),
    "layer norm, imported": (lambda b: layer_normalization(b, square="IntegerPower"), "LayerNormalization"),
    "GELU by tanh, imported": (lambda b: gelu_tanh(b, "IntegerPower"), "Gelu"),
    "layer norm without bias": (lambda b: layer_normalization(b, bias=False), "LayerNormalization"),
    "RMS norm": (rms_normalization, "RMSNormalization"),
    "softmax": (softmax, "Softmax"),
    "softmax of the middle axis": (lambda b: softmax(b, 1), "Softmax"),
    **{f"gelu {form}": (lambda b, form=form: gelu(b, form), "Gelu") for form in range(6)},
    "gelu by tanh": (gelu_tanh, "Gelu"),
    "gelu by tanh of products": (lambda b: gelu_tanh(b, "Mul"), "Gelu"),
    "hard swish": (hard_swish, "HardSwish"),
    "hard swish, division first": (lambda b: hard_swish(b, divide_last=False), "HardSwish"),
    "swish": (lambda b: b("Mul", b("Sigmoid", X), X), "Swish"),
}
LEFT: dict[str, Callable[[Builder], Value]] = {
    "the axis is not the last": lambda b: layer_normalization(b, axes=(1,)),
    "cubes": lambda b: layer_normalization(b, square="Pow", exponent=3),
    "cubes, imported": lambda b: layer_normalization(b, square="IntegerPower", exponent=3),
    "mean and variance over other axes": lambda b: layer_normalization(b, spread=(1,)),
    "maximum and sum over other axes": lambda b: softmax(b, axis=2, total=1),
    "a softmax of two axes": lambda b: quotient_of_axes(b, -1, 1),
    "a softmax of two other axes": lambda b: quotient_of_axes(b, 1, -1),
    "means over two axes": lambda b: centered_twice(b, 1, -1),
    "means over two other axes": lambda b: centered_twice(b, -1, 1),
    "an epsilon for each row": lambda b: layer_normalization(b, epsilon=b.number(1e-5, (3, 1))),
    "an epsilon that is computed": lambda b: layer_normalization(b, epsilon=b("Exp", b("ReduceMax", X))),
    "no maximum": lambda b: b("Div", b("Exp", X), b("ReduceSum", b("Exp", X), axes=(-1,))),
    "another root": lambda b: gelu(b, 1, root=1.5),
    "another value's sigmoid": lambda b: b("Mul", b("Sigmoid", b("Neg", X)), X),
}


def results(graph: Graph) -> list[Array]:
    return evaluate_graph(graph, {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)})


@pytest.mark.parametrize("name", RAISED)
def test_raised(name: str) -> None:
    write, op = RAISED[name]
    builder = Builder()
    graph = builder.graph(write(builder))
    after = eliminate_dead_code(recognize(graph))
    verify(after)
    assert [node.op.name for node in after.nodes] == [op]
    np.testing.assert_allclose(results(after)[0], results(graph)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LEFT)
def test_left(name: str) -> None:
    builder = Builder()
    graph = builder.graph(LEFT[name](builder))
    assert recognize(graph) == graph


def gelu_of(dtype: DType, root: float, one: float = 1.0) -> list[str]:
    """The operators that are left of a GELU with other constants."""
    builder = Builder(dtype)
    graph = builder.graph(gelu(builder, 1, root, one))
    return [node.op.name for node in eliminate_dead_code(recognize(graph)).nodes]


@pytest.mark.parametrize("dtype", [f32, f64])
def test_constants_may_be_rounded_twice(dtype: DType) -> None:
    root = dtype.numpy.type(sqrt(2))
    for towards in (0.0, 2.0):
        assert gelu_of(dtype, float(np.nextafter(root, dtype.numpy.type(towards)))) == ["Gelu"]


@pytest.mark.parametrize("dtype", [f32, f64])
def test_other_constants_are_other_functions(dtype: DType) -> None:
    eps = float(np.finfo(dtype.numpy).eps)
    assert len(gelu_of(dtype, sqrt(2) * (1 + 4 * eps))) > 1
    assert len(gelu_of(dtype, sqrt(2), 1 + eps)) > 1, "1 is never rounded"


def test_a_root_rounded_to_float32_is_another_one_in_float64() -> None:
    """It differs in the eighth digit, which float64 results show."""
    builder = Builder(f64)
    graph = builder.graph(gelu(builder, 1, float(np.float32(sqrt(2)))))
    x = np.linspace(-3, 3, 48).reshape(SHAPE)
    (raised,) = evaluate_graph(recognize(graph), {"x": x})
    np.testing.assert_allclose(raised, evaluate_graph(graph, {"x": x})[0], rtol=1e-15)


@given(random_graphs(), st.sampled_from(sorted(RAISED)))
@settings(max_examples=30, deadline=None)
def test_the_meaning_of_graphs_stays(graph: Graph, name: str) -> None:
    """Parts that others read stay."""
    builder = Builder()
    end = RAISED[name][0](builder)
    parts = [v for node in builder.nodes for v in node.outputs if not v.shape or v.shape == X.shape]
    whole = Graph("g", (X,), tuple(dict.fromkeys((end, *parts[:2]))), tuple(builder.nodes), builder.constants)
    after = recognize(whole)
    verify(after)
    assert after.outputs == whole.outputs
    for new, old in zip(results(after), results(whole), strict=True):
        assert_near(new, old, 2e-6)
    assert recognize(graph).outputs == graph.outputs

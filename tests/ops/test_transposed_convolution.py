"""Transposed convolutions against the definition, element by element, and ONNX Runtime; NaN and infinities in the data
must reach the outputs that depend on them, and no others."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tilewright
from tests.frontend.models import run_onnxruntime, single_node
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph, evaluate_graph
from tilewright.ops.shapes import simplified
from tilewright.ops.transposed_convolution import Phases
from tilewright.symbolic.expr import Const, Expr, const

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    """A transposed convolution; one entry for each spatial dimension."""

    spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    more: tuple[int, ...]
    """The output padding."""
    group: int = 1
    channels: int = 2
    """Of each group."""
    filters: int = 2
    """Of each group."""
    batch: int = 1

    @property
    def outputs(self) -> tuple[int, ...]:
        dims = zip(
            self.spatial, self.kernel, self.strides, self.dilations, self.begins, self.ends, self.more, strict=True
        )
        return tuple((i - 1) * s + (k - 1) * d + 1 - b - e + m for i, k, s, d, b, e, m in dims)

    @property
    def attributes(self) -> dict[str, object]:
        return {
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": (*self.begins, *self.ends),
            "output_padding": self.more,
            "group": self.group,
        }


def brute_force(case: Case, x: Array, weight: Array, bias: Array) -> Array:
    """Every element of the input times every tap, added where it belongs; in float64."""
    filters = case.group * case.filters
    result = np.zeros((case.batch, filters, *case.outputs)) + bias.reshape(-1, *(1 for _ in case.outputs))
    for place in product(*map(range, case.spatial)):
        for tap in product(*map(range, case.kernel)):
            moves = zip(place, tap, case.strides, case.dilations, case.begins, strict=True)
            at = tuple(i * s + k * d - b for i, k, s, d, b in moves)
            if all(0 <= y < extent for y, extent in zip(at, case.outputs, strict=True)):
                for g in range(case.group):
                    inputs, outputs = (slice(g * n, g * n + n) for n in (case.channels, case.filters))
                    values, factors = (
                        x[:, inputs, *place].astype(np.float64),
                        weight[inputs, :, *tap].astype(np.float64),
                    )
                    result[:, outputs, *at] += (values[:, :, None] * factors).sum(1)
    return result.astype(np.float32)


def check(case: Case, planted: tuple[float, ...], seed: int, constant: bool = True) -> None:
    """By the te evaluator and as native code, as brute force and ONNX Runtime have it."""
    random = np.random.default_rng(seed)
    x = random.uniform(-2, 2, (case.batch, case.group * case.channels, *case.spatial)).astype(np.float32)
    for value in planted:
        x.reshape(-1)[random.integers(x.size)] = value
    weight = random.uniform(0.5, 2, (case.group * case.channels, case.filters, *case.kernel)).astype(np.float32)
    bias = random.uniform(-2, 2, case.group * case.filters).astype(np.float32)
    feeds, parameters = {"x": x}, {"w": weight, "b": bias}
    if not constant:
        feeds, parameters = {**feeds, **parameters}, {}
    proto = single_node("ConvTranspose", feeds, parameters, ["x", "w", "b"], **case.attributes)
    with np.errstate(all="ignore"):
        expected = brute_force(case, x, weight, bias)
        results = [*evaluate_graph(importer.load(proto), feeds)]
    results += [*tilewright.compile(proto).run(None, feeds), *run_onnxruntime(proto, feeds)]
    for result in results:
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-5)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    most = 5 if rank < 3 else 3

    def numbers(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, strides, dilations = numbers(1, most), numbers(1, 4), numbers(1, 3)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    begins, ends = (tuple(draw(st.integers(0, (r - 1) // 2)) for r in reach) for _ in range(2))
    more = tuple(draw(st.integers(0, stride - 1)) for stride in strides)
    group, filters = draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 16]))
    places = numbers(1, 4 if rank < 3 else 3)
    return Case(places, kernel, strides, dilations, begins, ends, more, group, draw(st.integers(1, 2)), filters)


PLANTED = st.lists(st.sampled_from([np.nan, np.inf, -np.inf]), max_size=3).map(tuple)


@given(cases(), PLANTED, st.integers(0, 1 << 30), st.booleans())
@settings(max_examples=15)
def test_drawn(case: Case, planted: tuple[float, ...], seed: int, constant: bool) -> None:
    check(case, planted, seed, constant)


def square(kernel: int, stride: int, dilation: int = 1, pad: int = 0, more: int = 0, **others: int) -> Case:
    """Of two dimensions that are alike, except that the input has one column more."""
    pairs = ((value, value) for value in (kernel, stride, dilation, pad, pad, more))
    return Case((3, 4), *pairs, **others)


@pytest.mark.parametrize(
    "case",
    [
        square(3, 2, pad=1, more=1, channels=16, filters=16),
        square(3, 2, pad=1, channels=3, filters=32),
        square(4, 2, pad=1, channels=16, filters=16, batch=2),
        square(2, 3, channels=4, filters=16),
        square(1, 2, more=1),
        square(3, 2, 2, filters=16),
        square(3, 4, 6, pad=1, filters=16),
        square(5, 3, 2, pad=2, filters=16),
        square(4, 2, 3, pad=1, channels=4, filters=3),
        square(3, 3, 2, pad=1, channels=4, filters=8),
        square(3, 2, pad=1, more=1, group=16, channels=1, filters=1),
        square(3, 2, pad=1, more=1, group=2, channels=16, filters=16),
        square(4, 2, pad=1, group=2, channels=3, filters=2),
        square(7, 4, pad=3, channels=5, filters=17),
        square(3, 1, 2, pad=2, channels=16, filters=16),
    ],
    ids=str,
)
def test_special_numbers_stay_where_they_belong(case: Case) -> None:
    check(case, (np.nan, np.inf), 3)
    check(case, (), 4)


def test_run_time_extents() -> None:
    """Even phases and uneven ones, outputs that are a multiple of the stride and others."""
    for case in (square(4, 2, pad=1, filters=16), square(3, 2, pad=1, filters=16), square(3, 2, pad=1, more=1)):
        random = np.random.default_rng(8)
        shape = (case.group * case.channels, case.filters, *case.kernel)
        weight, bias = (random.uniform(-1, 1, s).astype(np.float32) for s in (shape, (shape[1],)))
        x = random.uniform(-2, 2, (1, case.channels, *case.spatial)).astype(np.float32)
        operands = {"w": weight, "b": bias}
        proto = single_node("ConvTranspose", {"x": x}, operands, ["x", "w", "b"], **case.attributes)
        for dim, name in zip(proto.graph.input[0].type.tensor_type.shape.dim[2:], "hw", strict=True):
            dim.dim_param = name
        for dim in proto.graph.output[0].type.tensor_type.shape.dim[2:]:
            dim.Clear()
        model = tilewright.compile(proto, dynamic="symbolic")
        np.testing.assert_allclose(
            model.run(None, {"x": x})[0], brute_force(case, x, weight, bias), rtol=1e-4, atol=1e-5
        )


def compiled_graph(filters: int, kernel: int, math: str = "default", size: int = 4, channels: int = 8) -> Graph:
    """What a transposed convolution with that many filters becomes."""
    feeds = {"x": np.ones((1, channels, size, size), np.float32)}
    weight = np.ones((channels, filters, kernel, kernel), np.float32)
    proto = single_node("ConvTranspose", feeds, {"w": weight}, ["x", "w"], strides=[2, 2])
    return tilewright.compile(proto, target="x86_64,znver4", math=math).compiled.graph


ROWS_WITH_TAPS = ["Reshape", "Conv", "Reshape", "TapSums", "PhasesToSpace", "Slice"]


@pytest.mark.parametrize(
    ("filters", "kernel", "channels", "size", "operators"),
    [
        (4, 4, 8, 8, ["Conv", "PhasesToSpace"]),
        (3, 3, 8, 4, ROWS_WITH_TAPS),
        # So few channels would be interleaved, if phases were even.
        (4, 3, 2, 4, ROWS_WITH_TAPS),
        (32, 4, 8, 4, ["PhaseConv", "Copy"]),
    ],
)
def test_few_filters_are_interleaved_or_rows_with_their_taps_if_phases_are_uneven(
    filters: int, kernel: int, channels: int, size: int, operators: list[str]
) -> None:
    graph = compiled_graph(filters, kernel, size=size, channels=channels)
    assert sorted(node.op.name for node in graph.nodes) == sorted(operators)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_phases_have_the_taps_of_the_definition(kernel: int, stride: int, dilation: int) -> None:
    """Each tap that reaches an output is there once, and reads the input that it should."""
    dim = Phases(const(kernel), stride, dilation)
    for place in range(2 * stride):
        wanted = {k: (place - k * dilation) // stride for k in range(kernel) if (place - k * dilation) % stride == 0}
        phase, backs = const(place % stride), range(_value(dim.taps))
        found = [const(back) for back in backs if _value(dim.has(phase, const(back)))]
        assert len(found) == len(wanted)
        sources = {_value(dim.tap(phase, back)): _value(dim.source(const(place), back)) for back in found}
        assert sources == wanted
        assert all(place // stride - _value(dim.farthest) <= source <= place // stride for source in sources.values())


def _value(expr: Expr) -> int:
    known = simplified(expr)
    assert isinstance(known, Const)
    return int(known.value)


def test_winograd_computes_phases_where_it_pays() -> None:
    """As the channels of one convolution, which stay in blocks when they are interleaved; not if that is excluded."""
    graph = compiled_graph(64, 4, size=16, channels=128)
    names = [node.op.name for node in graph.nodes]
    assert names[-3:] == ["WinogradOutput", "PhasesToSpace", "Copy"]
    strict = compiled_graph(64, 4, math="strict", size=16, channels=128)
    assert [node.op.name for node in strict.nodes] == ["PhaseConv", "Copy"]
    small = compiled_graph(512, 4, size=4, channels=256)
    assert [node.op.name for node in small.nodes] == ["Conv", "Copy", "TapSums", "PhasesToSpace"]


def test_phases_by_winograd_are_the_transposed_convolution() -> None:
    random = np.random.default_rng(2)
    x = random.standard_normal((2, 64, 12, 11)).astype(np.float32)
    weight, bias = (random.standard_normal(shape).astype(np.float32) for shape in ((64, 32, 4, 4), (32,)))
    attributes = {"strides": [2, 2], "pads": [1, 0, 1, 2]}
    proto = single_node("ConvTranspose", {"x": x}, {"w": weight, "b": bias}, ["x", "w", "b"], **attributes)
    model = tilewright.compile(proto, threads=1)
    assert "WinogradOutput" in {node.op.name for node in model.compiled.graph.nodes}
    (result,), (expected,) = model.run(None, {"x": x}), run_onnxruntime(proto, {"x": x})
    assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max()

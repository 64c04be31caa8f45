"""Transposed convolutions of quantized models, against sums in float64 that scatter each element of the data."""

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import tilewright
from tests.passes.test_quantized import BEST, Network, bytes_, kinds, real, scales
from tilewright.compilation import prepare
from tilewright.frontend.onnx.read.importer import load
from tilewright.graph import evaluate_graph

STEP, RESULT = 0.02, 0.5


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution with a bias of integers, between quantized values; ``zeros``: of data and result."""

    channels: int
    filters: int
    data: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...] = ()
    more: tuple[int, ...] = ()
    zeros: tuple[int, int] = (3, -128)
    relu: bool = False
    is_real: bool = False
    """Whether the result stays in f32."""

    @property
    def x(self) -> NDArray[np.float32]:
        return real(2, self.channels, *self.data)

    @property
    def weight(self) -> NDArray[np.int8]:
        return bytes_(self.channels, self.filters, *self.kernel)

    @property
    def bias(self) -> NDArray[np.int32]:
        return np.random.default_rng(1).integers(-9999, 9999, self.filters).astype(np.int32)

    @property
    def _dilations(self) -> tuple[int, ...]:
        return self.dilations or (1,) * len(self.data)

    def model(self) -> onnx.ModelProto:
        net, scale = Network(), scales(self.filters)
        x = net.quantized("x", STEP, self.zeros[0])
        w = net.weight("w", self.weight, scale, axis=1)
        b = net.weight("b", self.bias, np.float32(STEP) * scale)
        moves = {"strides": list(self.strides), "pads": list(self.pads), "dilations": list(self._dilations)}
        if self.more:
            moves["output_padding"] = list(self.more)
        y = net.add("ConvTranspose", [x, w, b], "y", **moves)
        y = net.add("Relu", [y], "r") if self.relu else y
        return net.model({"x": self.x}, y if self.is_real else net.quantized(y, RESULT, self.zeros[1]))

    def expected(self) -> NDArray[np.float64]:
        """The result; before it is rounded to steps, if it is."""
        x = np.clip(np.rint(self.x / np.float32(STEP)) + self.zeros[0], -128, 127).astype(np.float64) - self.zeros[0]
        rank, weight = len(self.data), self.weight.astype(np.float64)
        moves = list(zip(self.data, self.strides, self._dilations, self.kernel, self.more or (0,) * rank, strict=True))
        whole = [(i - 1) * s + (k - 1) * d + 1 + m for i, s, d, k, m in moves]
        total = np.zeros((len(x), self.filters, *whole))
        for tap in np.ndindex(*self.kernel):
            first = [t * d for t, d in zip(tap, self._dilations, strict=True)]
            places = (slice(f, f + (i - 1) * s + 1, s) for f, (i, s, *_) in zip(first, moves, strict=True))
            total[(slice(None), slice(None), *places)] += np.einsum("nc...,cf->nf...", x, weight[(..., *tap)])
        kept = (slice(b, w - e) for b, e, w in zip(self.pads[:rank], self.pads[rank:], whole, strict=True))
        total = total[(slice(None), slice(None), *kept)] + self.bias.reshape(-1, *(1,) * rank)
        value = total * (np.float64(np.float32(STEP)) * scales(self.filters)).reshape(-1, *(1,) * rank)
        value = np.maximum(value, 0) if self.relu else value
        return value if self.is_real else RESULT * np.clip(value / RESULT, -128 - self.zeros[1], 127 - self.zeros[1])

    @property
    def largest_error(self) -> float:
        return 1e-3 if self.is_real else 0.5 * RESULT + 1e-4


MEANT = [
    Transposed(8, 6, (5, 4), (4, 4), (2, 2), (1, 1, 1, 1)),
    Transposed(4, 3, (3, 5), (2, 3), (2, 3), (0, 1, 0, 1), relu=True),
    Transposed(4, 3, (3, 2), (4, 2), (4, 1), (3, 0, 0, 1), more=(3, 0), is_real=True),
    Transposed(4, 5, (1, 1), (4, 3), (1, 1), (0, 0, 0, 0)),
    Transposed(4, 5, (1, 4), (3, 4), (2, 2), (1, 1, 0, 1), zeros=(-7, 5)),
    Transposed(4, 5, (6,), (3,), (1,), (2, 0), dilations=(2,)),
    Transposed(4, 5, (2, 3, 2), (2, 2, 4), (2, 2, 2), (0, 0, 1, 0, 0, 1)),
    Transposed(4, 5, (4, 3), (4, 3), (2, 1), (1, 1, 1, 1), dilations=(1, 2), relu=True, zeros=(3, 5)),
]
FLOAT = [
    Transposed(4, 5, (4, 3), (3, 3), (2, 2), (1, 1, 1, 1)),  # phases of one tap and of two
    Transposed(4, 5, (4,), (4,), (2,), (1, 1), dilations=(3,)),
    Transposed(4, 5, (4,), (2,), (1,), (3, 0)),  # which leaves out data
]


@pytest.mark.parametrize("case", MEANT)
def test_what_they_mean(case: Transposed) -> None:
    graph = prepare(load(case.model()))
    assert "QuantizedConv" in [node.op.name for node in graph.nodes]
    (found,) = evaluate_graph(graph, {"x": case.x})
    assert found.shape == case.expected().shape
    assert np.abs(found.astype(np.float64) - case.expected()).max() <= case.largest_error


@pytest.mark.parametrize("case", FLOAT)
def test_others_stay_real(case: Transposed) -> None:
    graph = prepare(load(case.model()))
    assert "QuantizedConv" not in [node.op.name for node in graph.nodes]
    (found,) = evaluate_graph(graph, {"x": case.x})
    assert np.abs(found.astype(np.float64) - case.expected()).max() <= 0.5 * RESULT + 1e-3


@pytest.mark.parametrize(
    "case",
    [
        Transposed(64, 64, (5, 4), (4, 4), (2, 2), (1, 1, 1, 1)),
        pytest.param(Transposed(100, 64, (1, 1), (4, 4), (1, 1), (0, 0, 0, 0), relu=True), marks=pytest.mark.slow),
        pytest.param(Transposed(32, 3, (8, 8), (4, 4), (2, 2), (1, 1, 1, 1), is_real=True), marks=pytest.mark.slow),
        pytest.param(Transposed(32, 32, (3, 4, 5), (2, 2, 2), (2, 2, 2), (0,) * 6), marks=pytest.mark.slow),
    ],
)
def test_they_are_sums_of_bytes(case: Transposed) -> None:
    assert {"BlockedDotConvolution", "PhasesToSpace"} <= set(kinds(case.model(), BEST))
    (found,) = tilewright.compile(case.model()).run(None, {"x": case.x})
    assert np.abs(found.astype(np.float64) - case.expected()).max() <= case.largest_error


def test_phases_of_blocks_are_read_in_blocks() -> None:
    """What brings phases of a layer to their places is a part of the kernel of the next, whose padded data stay in
    blocks of channels."""
    net = Network()
    x, scale = net.quantized("x", STEP), scales(64)
    for number in range(2):
        w = net.weight(f"w{number}", bytes_(64, 64, 4, 4), scale, axis=1)
        moves = {"strides": [2, 2], "pads": [1] * 4}
        x = net.quantized(net.add("ConvTranspose", [x, w], f"y{number}", **moves), RESULT)
    compiled = tilewright.compile(net.model({"x": real(1, 64, 4, 4)}, x), target="x86_64,znver5").compiled
    sums = [str(kernel.schedule.program) for kernel in compiled.kernels if "dotconv" in kernel.program.name]
    assert len(sums) == 2
    assert all("vpdpbusd_add" in text for text in sums)

"""Quantized networks (QDQ) whose scales are powers of two, with random weights; and what NumPy makes of layers."""

import math
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Codes = NDArray[np.int8]


@dataclass(frozen=True)
class Signal:
    """A dequantized value: its name, the exponent of its scale, its shape, and about the spread of its bytes."""

    name: str
    exponent: int
    shape: tuple[int, ...]
    spread: float = 30.0


@dataclass
class Writer:
    """Writes a model, layer after layer."""

    seed: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def _fresh(self, name: str) -> str:
        return f"{name}{len(self.nodes)}_{len(self.constants)}"

    def constant(self, array: np.ndarray, name: str = "c") -> str:
        self.constants.append(numpy_helper.from_array(array, self._fresh(name)))
        return self.constants[-1].name

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        result = self._fresh(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [result], name=result, **attributes))
        return result

    def _parameters(self, exponents: int | NDArray[np.int64], dtype: type) -> tuple[str, str]:
        scale = np.ldexp(np.float32(1), exponents).astype(np.float32)
        return self.constant(scale, "scale"), self.constant(np.zeros(scale.shape, dtype), "zero")

    def quantized(self, name: str, exponent: int, shape: tuple[int, ...], spread: float = 30.0) -> Signal:
        parameters = self._parameters(exponent, np.int8)
        codes = self.node("QuantizeLinear", name, *parameters)
        return Signal(self.node("DequantizeLinear", codes, *parameters), exponent, shape, spread)

    def _weight(self, shape: tuple[int, ...], by_channel: bool, axis: int) -> tuple[str, NDArray[np.int64]]:
        codes = np.clip(np.rint(self.random.normal(size=shape) * 30), -127, 127).astype(np.int8)
        exponents = self.random.integers(-9, -6, shape[axis] if by_channel else ())
        scale, zero = self._parameters(exponents, np.int8)
        weight = self.node("DequantizeLinear", self.constant(codes, "weight"), scale, zero, axis=axis)
        return weight, np.broadcast_to(exponents, (shape[axis],))

    def _bias(self, units: NDArray[np.int64], by_channel: bool) -> str:
        codes = self.random.integers(-2000, 2000, len(units)).astype(np.int32)
        scale, zero = self._parameters(units if by_channel else int(units[0]), np.int32)
        return self.node("DequantizeLinear", self.constant(codes, "bias"), scale, zero, axis=0)

    def _exponent(self, x: Signal, units: NDArray[np.int64], terms: int) -> int:
        """Of the result: its bytes have about the spread 30."""
        spread = math.sqrt(terms) * 30 * x.spread * 2.0 ** float(np.median(units))
        return round(math.log2(spread / 30))

    def convolution(
        self,
        x: Signal,
        filters: int,
        kernel: int = 3,
        stride: int = 1,
        *,
        activation: str = "Relu",
        by_channel: bool = True,
        group: int = 1,
        pads: tuple[int, int, int, int] | None = None,
        dilation: int = 1,
    ) -> Signal:
        channels, *size = x.shape[1:]
        weight, exponents = self._weight((filters, channels // group, kernel, kernel), by_channel, 0)
        units = exponents + x.exponent
        around = (kernel // 2,) * 4 if pads is None else pads
        options = {"strides": [stride] * 2, "pads": list(around), "group": group, "dilations": [dilation] * 2}
        made = self.node("Conv", x.name, weight, self._bias(units, by_channel), **options)
        exponent = self._exponent(x, units, channels // group * kernel * kernel)
        made, spread = self.activated(made, activation, exponent)
        shape = [
            (extent + around[at] + around[at + 2] - dilation * (kernel - 1) - 1) // stride + 1
            for at, extent in enumerate(size)
        ]
        return self.quantized(made, exponent, (1, filters, *shape), spread)

    def activated(self, name: str, activation: str, exponent: int) -> tuple[str, float]:
        if activation == "Clip":
            limits = (self.constant(np.float32(limit)) for limit in (0, np.ldexp(70.4, exponent)))
            return self.node("Clip", name, *limits), 20.0
        return (self.node("Relu", name), 20.0) if activation == "Relu" else (name, 30.0)

    def addition(self, a: Signal, b: Signal, activation: str = "Relu", *, up: int = 1) -> Signal:
        exponent = max(a.exponent, b.exponent) + up
        made, spread = self.activated(self.node("Add", a.name, b.name), activation, exponent)
        return self.quantized(made, exponent, a.shape, spread)

    def pooled(self, x: Signal, *, up: int = 0) -> Signal:
        """By maximum, 3 x 3 with stride 2."""
        made = self.node("MaxPool", x.name, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        size = [(extent - 1) // 2 + 1 for extent in x.shape[2:]]
        return self.quantized(made, x.exponent + up, (*x.shape[:2], *size), x.spread)

    def mean(self, x: Signal) -> Signal:
        """Of each channel, as a vector."""
        made = self.node("Flatten", self.node("GlobalAveragePool", x.name))
        return self.quantized(made, x.exponent - 2, x.shape[:2], x.spread)

    def matrix(self, x: Signal, columns: int, activation: str = "Relu") -> Signal:
        """A product with a constant, as a ``MatMul`` and an ``Add``."""
        weight, exponents = self._weight((x.shape[1], columns), True, 1)
        units = exponents + x.exponent
        made = self.node("Add", self.node("MatMul", x.name, weight), self._bias(units, True))
        exponent = self._exponent(x, units, x.shape[1])
        made, spread = self.activated(made, activation, exponent)
        return self.quantized(made, exponent, (x.shape[0], columns), spread)

    def classes(self, x: Signal, count: int) -> Signal:
        """The last layer, whose result is real."""
        weight, exponents = self._weight((count, x.shape[1]), True, 0)
        made = self.node("Gemm", x.name, weight, self._bias(exponents + x.exponent, True), transB=1)
        return Signal(made, 0, (x.shape[0], count))

    def input(self, *shape: int) -> Signal:
        return self.quantized("x", -5, shape)

    def model(self, x: Signal, *outputs: Signal) -> onnx.ModelProto:
        entering = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
        leaving = [helper.make_tensor_value_info(y.name, TensorProto.FLOAT, y.shape) for y in outputs]
        graph = helper.make_graph(self.nodes, "net", [entering], leaving, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def residual(size: int = 20, width: int = 24, seed: int = 0) -> onnx.ModelProto:
    """As ResNet: a first layer, a maximum, two blocks, one with a stride and a product of one pixel on its way past."""
    net = Writer(seed)
    x = net.input(1, 3, size, size)
    h = net.pooled(net.convolution(x, width, 7, 2))
    for filters, stride in ((width, 1), (2 * width, 2)):
        first = net.convolution(h, filters, 3, stride)
        second = net.convolution(first, filters, 3, activation="")
        past = h if stride == 1 else net.convolution(h, filters, 1, stride, activation="")
        h = net.addition(second, past)
    hidden = net.matrix(net.mean(h), 40)
    return net.model(x, net.classes(hidden, 10))


def inverted(size: int = 12, seed: int = 0) -> onnx.ModelProto:
    """As MobileNet-V2: products of one pixel around depthwise convolutions."""
    net = Writer(seed)
    x = net.input(1, 3, size, size)
    h = net.convolution(x, 8, 3, 2, activation="Clip")
    for stride, filters in ((1, 8), (1, 8), (2, 12)):
        wide = net.convolution(h, 4 * h.shape[1], 1, activation="Clip")
        deep = net.convolution(wide, wide.shape[1], 3, stride, activation="Clip", group=wide.shape[1])
        narrow = net.convolution(deep, filters, 1, activation="")
        h = net.addition(narrow, h, "", up=0) if narrow.shape == h.shape else narrow
    return net.model(x, net.classes(net.mean(h), 10))


def image(proto: onnx.ModelProto, seed: int = 1) -> NDArray[np.float32]:
    """A random input."""
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def resnet18(size: int = 224, seed: int = 0) -> onnx.ModelProto:
    """All layers of ResNet-18 (He et al., 2015)."""
    net = Writer(seed)
    x = net.input(1, 3, size, size)
    h = net.pooled(net.convolution(x, 64, 7, 2))
    for filters in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if filters > 64 and block == 0 else 1
            first = net.convolution(h, filters, 3, stride)
            second = net.convolution(first, filters, 3, activation="")
            past = h if h.shape == second.shape else net.convolution(h, filters, 1, stride, activation="")
            h = net.addition(second, past)
    return net.model(x, net.classes(net.mean(h), 1000))


def mobilenet_v2(size: int = 224, seed: int = 0) -> onnx.ModelProto:
    """All layers of MobileNet-V2 (Sandler et al., 2018)."""
    net = Writer(seed)
    x = net.input(1, 3, size, size)
    h = net.convolution(x, 32, 3, 2, activation="Clip")
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, filters, blocks, first_stride in stages:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            channels = expansion * h.shape[1]
            wide = h if expansion == 1 else net.convolution(h, channels, 1, activation="Clip")
            deep = net.convolution(wide, channels, 3, stride, activation="Clip", group=channels)
            narrow = net.convolution(deep, filters, 1, activation="")
            h = net.addition(narrow, h, "", up=0) if narrow.shape == h.shape else narrow
    last = net.convolution(h, 1280, 1, activation="Clip")
    return net.model(x, net.classes(net.mean(last), 1000))

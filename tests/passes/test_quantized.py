"""Models with ``DequantizeLinear`` and ``QuantizeLinear`` around their operators, against exact sums in float64."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import tilewright
from tests.frontend.models import model, run_onnxruntime
from tilewright.compilation import Options, prepare
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read.importer import load
from tilewright.frontend.onnx.write import exporter
from tilewright.graph import Graph, evaluate_graph
from tilewright.passes.alternatives import expand, facts_of
from tilewright.target.target import Target

Array = NDArray[np.generic]
BEST, OLD = Target.parse("x86_64,znver5"), Target.parse("x86_64")
RANDOM = np.random.default_rng


@dataclass
class Network:
    """Quantized operators in a row, as quantizers write them."""

    dtype: type[np.integer] = np.int8
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])

    def add(self, op: str, inputs: list[str], result: str, **attributes: int | list[int]) -> str:
        self.nodes.append(helper.make_node(op, inputs, [result], result, None, None, None, **attributes))
        return result

    def constant(self, name: str, array: Array) -> str:
        self.constants[name] = array
        return name

    def quantized(self, value: str, scale: float = 0.05, zero: int = 3, dtype: type[np.integer] | None = None) -> str:
        """``value`` quantized, and dequantized again."""
        own = [
            self.constant(f"{value}.scale", np.array(scale, np.float32)),
            self.constant(f"{value}.zero", np.array(zero, dtype or self.dtype)),
        ]
        return self.add(
            "DequantizeLinear", [self.add("QuantizeLinear", [value, *own], f"{value}.q"), *own], f"{value}.d"
        )

    def weight(self, name: str, array: Array, scale: Array, axis: int = 0) -> str:
        own = [self.constant(f"{name}.scale", scale), self.constant(f"{name}.zero", np.zeros(scale.shape, array.dtype))]
        return self.add("DequantizeLinear", [self.constant(f"{name}.q", array), *own], name, axis=axis)

    def model(self, inputs: Mapping[str, Array], output: str) -> onnx.ModelProto:
        return model(self.nodes, inputs, [output], self.constants)


def bytes_(*shape: int) -> NDArray[np.int8]:
    return RANDOM(len(shape)).integers(-127, 128, shape).astype(np.int8)


def scales(count: int, size: float = 0.01) -> NDArray[np.float32]:
    return (size * RANDOM(count).uniform(0.5, 1.5, count)).astype(np.float32)


def real(*shape: int) -> NDArray[np.float32]:
    return RANDOM(7).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Block:
    """A convolution with a bias of integers, perhaps ``Relu``, and quantization; ``zeros``: of data and result."""

    channels: int = 16
    filters: int = 32
    kernel: int = 3
    stride: int = 1
    group: int = 1
    dtype: type[np.integer] = np.int8
    zeros: tuple[int, int] = (3, -128)
    relu: bool = False
    is_per_channel: bool = True

    @property
    def x(self) -> NDArray[np.float32]:
        return real(2, self.channels, 9, 7)

    @property
    def scale(self) -> NDArray[np.float32]:
        return scales(self.filters if self.is_per_channel else 1)

    @property
    def weight(self) -> NDArray[np.int8]:
        return bytes_(self.filters, self.channels // self.group, self.kernel, self.kernel)

    @property
    def bias(self) -> NDArray[np.int32]:
        return RANDOM(1).integers(-9999, 9999, self.filters).astype(np.int32)

    def model(self) -> onnx.ModelProto:
        net = Network(self.dtype)
        x = net.quantized("x", 0.02, self.zeros[0])
        scale = self.scale if self.is_per_channel else self.scale.reshape(())
        w = net.weight("w", self.weight, scale)
        b = net.weight("b", self.bias, np.float32(0.02) * scale)
        moves = {"pads": [self.kernel // 2] * 4, "strides": [self.stride] * 2}
        y = net.add("Conv", [x, w, b], "y", **moves, group=self.group)
        y = net.add("Relu", [y], "r") if self.relu else y
        return net.model({"x": self.x}, net.quantized(y, 0.5, self.zeros[1]))

    def expected(self) -> NDArray[np.float64]:
        """The result before it is rounded to steps, in steps."""
        info = np.iinfo(self.dtype)
        x = np.clip(np.rint(self.x / np.float32(0.02)) + self.zeros[0], info.min, info.max) - self.zeros[0]
        x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *[(self.kernel // 2,) * 2] * 2])
        weight, group = self.weight.astype(np.float64), self.group
        height, width = (e - self.kernel + 1 for e in x.shape[2:])
        total = np.zeros((len(x), self.filters, height, width))
        for place in np.ndindex(self.kernel, self.kernel):
            window = x[:, :, place[0] : place[0] + height, place[1] : place[1] + width]
            parts = zip(np.split(window, group, 1), np.split(weight[:, :, *place], group), strict=True)
            total += np.concatenate([np.einsum("nchw,fc->nfhw", data, own) for data, own in parts], 1)
        total = (total + self.bias[:, None, None])[:, :, :: self.stride, :: self.stride]
        value = total * (np.float64(np.float32(0.02)) * self.scale.astype(np.float64))[:, None, None] / 0.5
        low = max(0.0, info.min - self.zeros[1]) if self.relu else info.min - self.zeros[1]
        return np.clip(value, low, info.max - self.zeros[1])


def kinds(proto: onnx.ModelProto, target: Target = BEST) -> list[str]:
    graph = prepare(load(proto))
    return [node.op.name for node in expand(graph, facts_of(graph, target)).nodes]


BLOCKS = [
    Block(),
    Block(is_per_channel=False, relu=True),
    Block(dtype=np.uint8, zeros=(120, 0), relu=True),
    Block(zeros=(-7, 5), relu=True),
    Block(kernel=1, stride=2),
    Block(channels=24, filters=40),
    Block(channels=3, filters=16),
    Block(channels=32, filters=5),
    Block(channels=16, filters=16, group=16),
    Block(channels=32, filters=32, group=2),
    Block(channels=32, filters=32, group=8, relu=True),
    Block(channels=24, filters=24, group=2),
]


@pytest.mark.parametrize("block", BLOCKS)
def test_convolutions_are_rounded_once(block: Block) -> None:
    (found,) = tilewright.compile(block.model()).run(None, {"x": block.x})
    steps = found.astype(np.float64) / 0.5
    np.testing.assert_array_equal(steps, np.rint(steps))
    assert np.abs(steps - block.expected()).max() <= 0.5 + 1e-4
    (other,) = run_onnxruntime(block.model(), {"x": block.x})
    assert np.mean(other != found) < 0.001


@pytest.mark.parametrize("block", BLOCKS)
def test_what_convolutions_mean(block: Block) -> None:
    """The raised graph, by the operators' own te."""
    graph = prepare(load(block.model()))
    assert "QuantizedConv" in [node.op.name for node in graph.nodes]
    (found,) = evaluate_graph(graph, {"x": block.x})
    assert np.abs(found.astype(np.float64) / 0.5 - block.expected()).max() <= 0.5 + 1e-3


def test_how_convolutions_are_computed() -> None:
    in_blocks = ["QuantizeLinear", "BlockedDotConvolution", "Add", "Requantize", "DequantizeLinear"]
    assert [name for name in kinds(Block().model()) if name not in ("Unsqueeze", "Sub")] == in_blocks
    assert "ChannelGroups" in kinds(Block(channels=3, filters=16).model())
    assert "Pad" in kinds(Block(channels=24).model())
    assert "Relu" not in kinds(Block(relu=True).model())
    assert "Relu" in kinds(Block(relu=True, zeros=(3, 5)).model())
    assert "ChannelConvolution" in kinds(Block(channels=16, filters=16, group=16).model())
    assert "BlockedDotConvolution" in kinds(Block(channels=32, filters=32, group=2).model())
    assert "Conv" in kinds(Block(channels=24, filters=24, group=2).model())
    assert "Conv" in kinds(Block().model(), OLD)


@pytest.mark.parametrize("channels", [64, 256])
def test_the_weights_stay_bytes(channels: int) -> None:
    """Also where there are as many blocks of channels as channels in a block."""
    compiled = compile_graph(load(Block(channels=channels, filters=64).model()), Options(target=BEST))
    assert sum(array.nbytes for array in compiled.graph.constants.values()) < 2 * channels * 64 * 9
    assert any("vpdpbusd_add" in str(kernel.program) for kernel in compiled.kernels)


def residual() -> onnx.ModelProto:
    """Two convolutions, a sum with what enters them, and a pool, all quantized."""
    net = Network()
    x = net.quantized("x", 0.02)
    y = net.quantized(net.add("Conv", [x, net.weight("v", bytes_(16, 16, 1, 1), scales(16))], "a"), 0.1, 7)
    z = net.quantized(
        net.add("Conv", [y, net.weight("w", bytes_(16, 16, 3, 3), scales(16))], "b", pads=[1] * 4), 0.4, -5
    )
    total = net.quantized(net.add("Relu", [net.add("Add", [z, x], "c")], "s"), 0.3, -128)
    largest = net.add("MaxPool", [total], "m", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    return net.model({"x": real(1, 16, 8, 8)}, net.quantized(largest, 0.3, -128))


def test_pools_and_sums_between_convolutions() -> None:
    proto, x = residual(), real(1, 16, 8, 8)
    (found,), (other,) = tilewright.compile(proto).run(None, {"x": x}), run_onnxruntime(proto, {"x": x})
    assert np.mean(found != other) < 0.01
    assert np.abs(found.astype(np.float64) - other.astype(np.float64)).max() < 0.31
    graph = prepare(load(proto))
    (pool,) = (node for node in graph.nodes if node.op.name == "MaxPool")
    assert pool.outputs[0].dtype.itemsize == 1
    assert sum(node.op.name == "QuantizeLinear" for node in graph.nodes) == 2, "of the input and the sum"


@pytest.mark.parametrize("crossed", [False, True])
@pytest.mark.parametrize("bias", [None, np.int32, np.float32])
def test_products_of_matrices(crossed: bool, bias: type | None) -> None:
    net, x = Network(np.uint8), real(5, 40)
    a, scale, b = net.quantized("x", 0.02, 128), scales(24), bytes_(40, 24)
    w = net.weight("w", b.T.copy() if crossed else b, scale, axis=0 if crossed else 1)
    exact = (np.clip(np.rint(x / np.float32(0.02)), -128, 127).astype(np.float64) @ b) * np.float64(np.float32(0.02))
    exact, addend = exact * scale, RANDOM(3).integers(-3000, 3000, 24).astype(np.int32)
    if bias is None:
        y = net.add("MatMul", [a, net.add("Transpose", [w], "t", perm=[1, 0]) if crossed else w], "y")
    else:
        own = np.float32(0.02) * scale
        exact += addend * own.astype(np.float64)
        c = (
            net.weight("c", addend, own)
            if bias is np.int32
            else net.constant("c", np.asarray(addend * own, np.float32))
        )
        y = net.add("Gemm", [a, w, c], "y", transB=int(crossed))
    (found,) = tilewright.compile(net.model({"x": x}, net.quantized(y, 0.25, 100))).run(None, {"x": x})
    steps = found.astype(np.float64) / 0.25
    assert np.abs(steps - np.clip(exact / 0.25, -100, 155)).max() <= 0.5 + 1e-4


def test_parameters_known_only_at_run_time_are_not_raised() -> None:
    """A scale of the weight may be an input: the graph stays as it is, and is right."""
    net, x, scale = Network(), real(4, 8), np.array(0.01, np.float32)
    w = net.add("DequantizeLinear", [net.constant("w.q", bytes_(8, 8)), "scale"], "w")
    net.add("MatMul", [net.quantized("x"), w], "y")
    proto, feeds = net.model({"x": x, "scale": scale}, "y"), {"x": x, "scale": scale}
    (found,), (other,) = tilewright.compile(proto).run(None, feeds), run_onnxruntime(proto, feeds)
    assert np.abs(found.astype(np.float64) - other.astype(np.float64)).max() < 1e-5


def test_tables_stay_bytes() -> None:
    net, at = Network(), np.array([[5, 0], [3, 5]], np.int64)
    table = net.weight("t", bytes_(6, 8), np.array(0.1, np.float32))
    proto = net.model({"at": at}, net.add("Gather", [table, "at"], "y"))
    graph = prepare(load(proto))
    assert all(array.dtype != np.float32 or array.size == 1 for array in graph.constants.values())
    (found,), (other,) = tilewright.compile(proto).run(None, {"at": at}), run_onnxruntime(proto, {"at": at})
    np.testing.assert_array_equal(found, other)


def test_beside_a_node_without_operands() -> None:
    """A shape that is data, as quantized transformers have it, is one."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["extents"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", ["d", "extents"], ["y"]),
    ]
    x, kept = real(3, 2), {"scale": np.array(0.1, np.float32), "zero": np.array(3, np.uint8)}
    proto = model(nodes, {"x": x}, ["y"], kept)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    graph = prepare(load(proto))
    assert any(not node.inputs for node in graph.nodes)
    np.testing.assert_allclose(evaluate_graph(graph, {"x": x})[0], run_onnxruntime(proto, {"x": x})[0], atol=1e-6)


def operators(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


@pytest.mark.parametrize("scale", [0.05, -0.05])
def test_bytes_that_are_quantized_again(scale: float) -> None:
    """The same bytes, if the scale is positive; else computed as it is written."""
    net, x = Network(), real(2, 3, 4)
    moved = net.add("Transpose", [net.quantized("x", scale)], "t", perm=[2, 0, 1])
    proto = net.model({"x": x}, net.quantized(moved, scale))
    (found,), (other,) = tilewright.compile(proto).run(None, {"x": x}), run_onnxruntime(proto, {"x": x})
    np.testing.assert_array_equal(found, other)
    assert operators(prepare(load(proto))).count("QuantizeLinear") == (1 if scale > 0 else 2)


@pytest.mark.parametrize("block", [Block(), Block(kernel=1, relu=True, zeros=(0, 4))])
def test_it_is_written_as_it_was_read(block: Block) -> None:
    written = exporter.export(prepare(load(block.model())))
    onnx.checker.check_model(written, full_check=True)
    found, expected = (run_onnxruntime(proto, {"x": block.x}) for proto in (written, block.model()))
    assert np.mean(found[0] != expected[0]) < 0.001


@pytest.mark.parametrize("is_shared", [False, True])
def test_what_is_put_together_is_quantized_before(is_shared: bool) -> None:
    """In the kernels of both convolutions, unless something else reads what they compute."""
    net = Network()
    x = net.quantized("x", 0.02)
    parts = [
        net.quantized(net.add("Conv", [x, net.weight(f"w{name}", bytes_(16, 16, 1, 1), scales(16))], name), step, zero)
        for name, step, zero in (("a", 0.1, 7), ("b", 0.2, -9))
    ]
    joined = net.quantized(net.add("Concat", parts, "c", axis=1), 0.15, 2)
    y = net.add("Add", [joined, net.add("Concat", [parts[0], parts[0]], "d", axis=1)], "y") if is_shared else joined
    proto, feeds = net.model({"x": real(1, 16, 5, 5)}, y), {"x": real(1, 16, 5, 5)}
    (found,), (other,) = tilewright.compile(proto).run(None, feeds), run_onnxruntime(proto, feeds)
    assert np.mean(np.abs(found.astype(np.float64) - other.astype(np.float64)) > 1e-3) < 0.01
    graph = prepare(load(proto))
    (first, *_) = (node for node in graph.nodes if node.op.name == "Concat")
    assert (first.outputs[0].dtype.itemsize == 1) is not is_shared
    assert len(compile_graph(load(proto), Options(target=BEST)).kernels) < 6 or is_shared

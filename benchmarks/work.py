"""How much work a model is, in floating-point operations and bytes of weights, and how fast a machine can be at best.

Two counts of operations. `flops` is the usual one: what the operators' definitions say, multiplications by padding
included. `least` is what the cheapest known algorithm executes: without multiplications by padding, and by Winograd's
minimal filtering (Lavin and Gray, 2016), of each phase of a stride. Only contractions count (convolutions, matrix
products, recurrent layers); the rest is small next to them and moves bytes rather than computes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np
import onnx

Shape = tuple[int, ...]
Value = TypeVar("Value", int, bytes, list[int])

WINOGRAD_TILES = {1: 10, 2: 8}  # F(4, 7), F(6x6, 3x3): of more points, in so many dimensions, float32 loses digits
TOLERANCE = 0.1  # clocks move between the probe and the run

SINGLE = 4
"""Bytes of a float32."""
MATRIX_GAIN = 8
"""How many times as many products of narrow numbers AMX does in a cycle as two units of dot products do."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one inference takes at least."""

    flops: float
    """Floating-point operations by definition: two per multiply-add."""
    least: float
    """Floating-point operations of the cheapest known algorithm."""
    bytes: float
    """Bytes of weights, inputs and outputs, each of which is read or written at least once."""
    width: int = SINGLE
    """Bytes of a number."""

    def in_width(self, width: int, *, has_matrix_unit: bool = False) -> "Work":
        """By dot products of numbers of `width` bytes: half the width, twice the operations at a time. Never wider."""
        factor = min(1.0, width / self.width)
        at_once = factor / MATRIX_GAIN if has_matrix_unit and width < self.width == SINGLE else factor
        return Work(self.flops * at_once, self.least * at_once, self.bytes * factor, min(width, self.width))


@dataclass(frozen=True, slots=True)
class Roof:
    """What this machine can do with some number of threads."""

    flops: float
    """Floating-point operations per second."""
    bandwidth: float
    """Bytes per second, read from arrays that are together as large as the weights."""

    def least_seconds(self, work: Work) -> float:
        """No run can be shorter: all operations at the peak, or all weights at full bandwidth."""
        return max(work.least / self.flops, work.bytes / self.bandwidth)

    def broken_by(self, work: Work, seconds: float) -> bool:
        """Whether a run is faster than is possible: the benchmark then measures something else than it says."""
        return seconds * (1 + TOLERANCE) < self.least_seconds(work)


def work_of(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> Work:
    """Count; `shapes` has those of all values that contractions take and make (see `run_shapes`)."""
    weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    known = {**shapes, **weights}
    counts = [_COUNTERS[node.op_type](node, known) for node in model.graph.node if node.op_type in _COUNTERS]
    return Work(sum(count.flops for count in counts), sum(count.least for count in counts), _bytes(model.graph))


def _bytes(graph: onnx.GraphProto) -> int:
    """Of weights, inputs and outputs of known shape, without what is only partly read."""
    skipped = {name for node in graph.node for name in _partly_read(node)}
    sizes = {tensor.name: (tensor.data_type, tuple(tensor.dims)) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output):
        of_type = value.type.tensor_type
        if of_type.HasField("shape"):
            sizes[value.name] = of_type.elem_type, tuple(dim.dim_value for dim in of_type.shape.dim)
    width = onnx.helper.tensor_dtype_to_np_dtype
    return sum(width(dtype).itemsize * prod(dims) for name, (dtype, dims) in sizes.items() if name not in skipped)


def _partly_read(node: onnx.NodeProto) -> Iterator[str]:
    """Tables that are looked up, and what a convolution steps over."""
    strides = _attribute(node, "strides", [1])
    if node.op_type == "Gather" or (node.op_type == "Conv" and max(strides) > 1):
        yield node.input[0]


def run_shapes(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, Shape]:
    """The shapes of what contractions take and make, from a run: exporters compute shapes at run time."""
    import onnxruntime as ort  # optional

    constant = {tensor.name for tensor in model.graph.initializer}
    wanted = dict.fromkeys(name for node in model.graph.node if node.op_type in _COUNTERS for name in _values(node))
    names = [name for name in wanted if name not in constant]
    if not names:
        return {}
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    del probed.graph.output[:]
    probed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(probed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {name: value.shape for name, value in zip(names, session.run(names, dict(feeds)), strict=True)}


def _values(node: onnx.NodeProto) -> Iterator[str]:
    yield from (name for name in node.input if name)
    yield node.output[0]


@dataclass(frozen=True, slots=True)
class _Count:
    flops: float
    least: float


def _convolution(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> _Count:
    source, weight, result = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
    flops = 2.0 * prod(result) * prod(weight[1:])
    dims = range(len(source) - 2)
    windows = _windows(node, source[2:], weight[2:], result[2:])
    points = _points(windows)
    shares = [_share(source[2 + d], result[2 + d], windows[d], points) for d in dims]
    return _Count(flops, flops * prod(shares))


def _transposed(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> _Count:
    """The adjoint of a convolution from the result to the source; a stride of s makes s smaller kernels of stride 1."""
    source, weight, result = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
    flops = 2.0 * prod(source) * prod(weight[1:])
    windows = _windows(node, result[2:], weight[2:], source[2:])
    points = _points(windows)
    shares = [_share(result[2 + d], source[2 + d], windows[d], points) for d in range(len(source) - 2)]
    return _Count(flops, flops * prod(shares))


def _matmul(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> _Count:
    flops = 2.0 * prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
    return _Count(flops, flops)


def _gemm(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> _Count:
    transposed = bool(_attribute(node, "transA", 0))
    flops = 2.0 * prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if transposed else 1]
    return _Count(flops, flops)


def _recurrent(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> _Count:
    steps, batch = shapes[node.input[0]][:2]
    flops = 2.0 * steps * batch * (prod(shapes[node.input[1]]) + prod(shapes[node.input[2]]))
    return _Count(flops, flops)


_COUNTERS: dict[str, Callable[[onnx.NodeProto, Mapping[str, Shape]], _Count]] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}


@dataclass(frozen=True, slots=True)
class _Window:
    """A kernel along one dimension."""

    size: int
    stride: int
    dilation: int
    begin: int
    """Padding before the first element."""


def _windows(node: onnx.NodeProto, source: Shape, kernel: Shape, result: Shape) -> list[_Window]:
    dims = len(source)
    strides, dilations = _attribute(node, "strides", [1] * dims), _attribute(node, "dilations", [1] * dims)
    pads = _attribute(node, "pads", [0] * 2 * dims)
    automatic = _attribute(node, "auto_pad", b"NOTSET")
    windows: list[_Window] = []
    for d in range(dims):
        begin = pads[d]
        if automatic in (b"SAME_UPPER", b"SAME_LOWER"):
            total = max(0, (result[d] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - source[d])
            begin = total // 2 if automatic == b"SAME_UPPER" else total - total // 2
        windows.append(_Window(kernel[d], strides[d], dilations[d], begin))
    return windows


def _points(windows: Iterable[_Window]) -> int:
    """The most points of a tile in each dimension."""
    return WINOGRAD_TILES.get(sum(window.size > 1 for window in windows), min(WINOGRAD_TILES.values()))


def _share(source: int, result: int, window: _Window, points: int) -> float:
    """Which part of the multiplications along one dimension the cheapest algorithm executes."""
    first = np.arange(result)[:, None] * window.stride - window.begin
    taps = first + np.arange(window.size)[None, :] * window.dilation
    inside = float(((taps >= 0) & (taps < source)).mean())
    phases = [len(range(start, window.size, window.stride)) for start in range(min(window.stride, window.size))]
    return min(inside, sum(count * _winograd(count, points) for count in phases) / window.size)


def _winograd(kernel: int, points: int) -> float:
    """F(m, r) makes m results from m + r - 1 multiplications rather than m r."""
    results = points + 1 - kernel
    return points / (results * kernel) if 1 < kernel < points else 1.0


def _attribute(node: onnx.NodeProto, name: str, default: Value) -> Value:
    found = [attribute for attribute in node.attribute if attribute.name == name]
    return onnx.helper.get_attribute_value(found[0]) if found else default

"""Random single operators for `cases.py`: attributes and sizes of each family, as ONNX models.

Case `index` of a seed is always the same, however many there are. Extents are drawn evenly over their logarithms, half
of them rounded to a multiple of 8, as in most networks; cases whose work is beyond `LEAST_WORK` and `MOST_WORK` are
drawn again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, prod
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import onnx

from .operator_models import Parts, assemble

Item = TypeVar("Item")

MULTIPLE = 8
MOST_ELEMENTS = 1 << 21
"""Of any tensor: 8 MiB."""
SHOWN = 5
"""Elements up to which the text of a case has a constant's values."""
LEAST_WORK, MOST_WORK = 1e5, 3e8
"""Multiply-adds, or elements that are read, of a case."""


class TooLargeOrSmall(Exception):
    """The case is drawn again."""


@dataclass(frozen=True, slots=True)
class RandomCase:
    """A model of one node, and feeds for it."""

    family: str
    text: str
    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]


@dataclass(slots=True)
class Draw:
    """Random choices, and the model that they make."""

    random: np.random.Generator
    parts: Parts

    def of(self, items: Sequence[Item], weights: Sequence[float] | None = None) -> Item:
        """One of them; each as likely as its weight, or equally."""
        shares = None if weights is None else np.array(weights) / sum(weights)
        return items[int(self.random.choice(len(items), p=shares))]

    def chance(self, probability: float) -> bool:
        """Whether something happens that has this probability."""
        return bool(self.random.random() < probability)

    def extent(self, least: int, most: int) -> int:
        """An extent, often a multiple of 8."""
        number = round(exp(self.random.uniform(log(least), log(most + 0.49))))
        return max(MULTIPLE, number // MULTIPLE * MULTIPLE) if most >= MULTIPLE and self.chance(0.5) else number

    def extents(self, rank: int, most: int) -> list[int]:
        """Extents of a tensor of at most so many elements."""
        return [self.extent(1, max(1, int(most ** (1 / rank) * 4))) for _ in range(rank)]

    def data(self, *shape: int) -> str:
        """An input of the model."""
        return self.parts.input(*_checked(shape))

    def weight(self, shape: Sequence[int], added_up: int, is_constant: bool) -> str:
        """A weight: a constant, or another input, of the same scale as data."""
        return self.parts.weight(_checked(shape), added_up) if is_constant else self.data(*shape)


def _checked(shape: Sequence[int]) -> Sequence[int]:
    if not 0 < prod(shape) <= MOST_ELEMENTS:
        raise TooLargeOrSmall
    return shape


def _check_work(work: float) -> None:
    if not LEAST_WORK <= work <= MOST_WORK:
        raise TooLargeOrSmall


@dataclass(frozen=True, slots=True)
class _Window:
    """The attributes of a sliding window, and the extents of its result."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    outputs: list[int]

    @staticmethod
    def drawn(draw: Draw, size: Sequence[int], kernels: Sequence[int], dilations: Sequence[int]) -> "_Window":
        """Mostly the same along all dimensions, with pads that keep the size, none, or any."""
        rank = len(size)
        square = draw.chance(0.7)

        def each(items: Sequence[int], weights: Sequence[float] | None = None) -> list[int]:
            return [draw.of(items, weights)] * rank if square else [draw.of(items, weights) for _ in range(rank)]

        kernel, strides = each(kernels), each((1, 2, 3), (6, 3, 1))
        spread = each(dilations, [4, *[1] * (len(dilations) - 1)])
        reach = [(k - 1) * d for k, d in zip(kernel, spread, strict=True)]
        match draw.of(("same", "none", "any"), (5, 2, 2)):
            case "same":
                pads = [r // 2 for r in reach] + [r - r // 2 for r in reach]
            case "none":
                pads = [0] * (2 * rank)
            case _:
                pads = [int(draw.random.integers(0, r + 1)) for r in (*reach, *reach)]
        ends = zip(size, pads[:rank], pads[rank:], reach, strides, strict=True)
        outputs = [(extent + before + after - r - 1) // stride + 1 for extent, before, after, r, stride in ends]
        if min(outputs) < 1:
            raise TooLargeOrSmall
        return _Window(kernel, strides, spread, pads, outputs)


def convolution(draw: Draw) -> str:
    """Convolutions in one to three dimensions, in groups, depthwise, with weights that are constant or not."""
    dims = draw.of((1, 2, 3), (2, 6, 2))
    batch, size = draw.of((1, 2, 4, 8), (6, 1, 1, 1)), [draw.extent(4, (1024, 128, 24)[dims - 1])] * dims
    window = _Window.drawn(draw, size, (1, 2, 3, 3, 5, 7), (1, 2, 3, 6, 12))
    inner, outer = draw.extent(1, 640), draw.extent(1, 640)
    groups = draw.of((1, 2, 4, 0), (6, 1, 1, 2))
    if groups == 0:
        groups, outer = inner, inner * draw.of((1, 2), (4, 1))
    else:
        inner, outer = -(-inner // groups) * groups, -(-outer // groups) * groups
    share = inner // groups
    _check_work(batch * outer * prod(window.outputs) * share * prod(window.kernel))
    added_up = share * prod(window.kernel)
    inputs = [draw.data(batch, inner, *size)]
    inputs.append(draw.weight((outer, share, *window.kernel), added_up, draw.chance(0.85)))
    inputs.extend([draw.weight((outer,), 1, is_constant=True)] * draw.chance(0.6))
    strides, dilations, pads = window.strides, window.dilations, window.pads
    return draw.parts.node("Conv", *inputs, group=groups, strides=strides, dilations=dilations, pads=pads)


def transposed_convolution(draw: Draw) -> str:
    """Transposed convolutions in one or two dimensions."""
    dims = draw.of((1, 2), (1, 4))
    size = [draw.extent(2, (512, 64)[dims - 1])] * dims
    kernel, stride = draw.of((2, 3, 4, 5)), draw.of((1, 2, 3), (1, 3, 1))
    pad = int(draw.random.integers(0, kernel // 2 + 1))
    inner, outer = draw.extent(1, 512), draw.extent(1, 512)
    groups = draw.of((1, 2), (5, 1))
    inner, outer = -(-inner // groups) * groups, -(-outer // groups) * groups
    _check_work(prod(size) * inner * outer // groups * kernel**dims)
    if (min(size) - 1) * stride + kernel - 2 * pad < 1:
        raise TooLargeOrSmall
    weight = draw.weight((inner, outer // groups, *[kernel] * dims), inner, is_constant=True)
    attributes = {"strides": [stride] * dims, "pads": [pad] * (2 * dims), "group": groups}
    return draw.parts.node("ConvTranspose", draw.data(1, inner, *size), weight, **attributes)


def product(draw: Draw) -> str:
    """Products of matrices, batched or not, and Gemm."""
    rows, inner, columns = draw.extent(1, 1024), draw.extent(1, 2048), draw.extent(1, 2048)
    batch = draw.of(((), (draw.extent(2, 32),), (draw.extent(2, 8), draw.extent(2, 16))), (3, 2, 1))
    _check_work(prod(batch) * rows * inner * columns)
    is_constant = draw.chance(0.6)
    if not batch and draw.chance(0.4):
        flips = {name: int(draw.chance(0.4)) for name in ("transA", "transB")}
        left = (inner, rows) if flips["transA"] else (rows, inner)
        right = (columns, inner) if flips["transB"] else (inner, columns)
        inputs = [draw.data(*left), draw.weight(right, inner, is_constant)]
        inputs.extend([draw.weight((columns,), 1, is_constant=True)] * draw.chance(0.6))
        return draw.parts.node("Gemm", *inputs, **flips)
    shared = () if is_constant and draw.chance(0.7) else batch
    return draw.parts.node(
        "MatMul", draw.data(*batch, rows, inner), draw.weight((*shared, inner, columns), inner, is_constant)
    )


def pooling(draw: Draw) -> str:
    """Maxima and means over windows or over whole images."""
    dims = draw.of((1, 2, 3), (1, 5, 1))
    shape = [draw.of((1, 2, 4)), draw.extent(1, 512), *[draw.extent(4, (2048, 160, 32)[dims - 1])] * dims]
    operator = draw.of(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), (4, 4, 1, 1))
    x = draw.data(*shape)
    if operator.startswith("Global"):
        _check_work(prod(shape))
        return draw.parts.node(operator, x)
    has_dilations = operator == "MaxPool" and draw.chance(0.2)
    window = _Window.drawn(draw, shape[2:], (1, 2, 3, 3, 5, 8), (1, 2) if has_dilations else (1,))
    _check_work(prod(shape[:2]) * prod(window.outputs) * prod(window.kernel))
    halves = [k // 2 for k in window.kernel] * 2  # a window of padding only has no maximum and no mean
    pads = [min(pad, half) for pad, half in zip(window.pads, halves, strict=True)]
    attributes: dict[str, object] = {"kernel_shape": window.kernel, "strides": window.strides, "pads": pads}
    attributes["ceil_mode"] = int(draw.chance(0.2))
    if operator == "AveragePool":
        attributes["count_include_pad"] = int(draw.chance(0.3))
    elif has_dilations:
        attributes["dilations"] = window.dilations
    return draw.parts.node(operator, x, **attributes)


def resize(draw: Draw) -> str:
    """Images made larger or smaller."""
    shape = [1, draw.extent(1, 256), draw.extent(4, 128), draw.extent(4, 128)]
    scale = draw.of((0.5, 0.75, 1.5, 2.0, 3.0, 4.0), (2, 1, 1, 5, 1, 1))
    scales = np.array([1, 1, scale, scale if draw.chance(0.8) else 2.0], np.float32)
    _check_work(prod(shape) * float(prod(scales)))
    _checked([int(extent * factor) for extent, factor in zip(shape, scales.tolist(), strict=True)])
    mode = draw.of(("nearest", "linear", "cubic"), (2, 3, 1))
    place = draw.of(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    attributes = {"mode": mode, "coordinate_transformation_mode": place}
    return draw.parts.node("Resize", draw.data(*shape), "", draw.parts.constant(scales), **attributes)


def reduction(draw: Draw) -> str:
    """Sums, means, extrema, norms over any axes."""
    rank = draw.of((1, 2, 3, 4, 5), (1, 3, 4, 4, 1))
    shape = draw.extents(rank, MOST_ELEMENTS // 4)
    _check_work(prod(shape))
    operators = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp")
    operator, keepdims = draw.of(operators), int(draw.chance(0.5))
    count = int(draw.random.integers(1, rank + 1))
    axes = sorted(int(axis) for axis in draw.random.choice(rank, count, replace=False))
    x = draw.data(*shape)
    if operator == "ReduceSum":
        return draw.parts.node(operator, x, draw.parts.constant(np.array(axes)), keepdims=keepdims)
    return draw.parts.node(operator, x, axes=axes, keepdims=keepdims)


def normalization(draw: Draw) -> str:
    """Softmax and normalizations."""
    rank = draw.of((2, 3, 4), (2, 2, 3))
    shape = draw.extents(rank, MOST_ELEMENTS // 4)
    _check_work(prod(shape))
    x = draw.data(*shape)
    operator = draw.of(("Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization", "BatchNormalization"))
    match operator:
        case "Softmax" | "LogSoftmax":
            return draw.parts.node(operator, x, axis=draw.of((-1, int(draw.random.integers(0, rank))), (2, 1)))
        case "LayerNormalization":
            axis = rank - draw.of((1, min(2, rank - 1)), (3, 1))
            scale, bias = (draw.parts.weight(shape[axis:], 1) for _ in range(2))
            return draw.parts.node(operator, x, scale, bias, axis=axis)
        case "InstanceNormalization" if rank > 2:
            return draw.parts.node(operator, x, *(draw.parts.weight(shape[1:2], 1) for _ in range(2)))
        case _:
            statistics = [draw.parts.weight(shape[1:2], 1) for _ in range(3)]
            variance = draw.parts.constant(draw.random.uniform(0.7, 1.3, shape[1]).astype(np.float32))
            return draw.parts.node("BatchNormalization", x, *statistics, variance)


FAMILIES: Mapping[str, tuple[Callable[[Draw], str], float]] = MappingProxyType(
    {
        "convolution": (convolution, 8),
        "transposed convolution": (transposed_convolution, 1),
        "product": (product, 4),
        "pooling": (pooling, 2),
        "resize": (resize, 1),
        "reduction": (reduction, 2),
        "normalization": (normalization, 2),
    }
)
"""What draws a case of a family, and how often the family is drawn."""


def random_case(seed: int, index: int, families: Sequence[str] = tuple(FAMILIES)) -> RandomCase:
    """Case `index` of `seed`, of one of `families`."""
    random = np.random.default_rng((seed, index))
    family = Draw(random, Parts(random)).of(families, [FAMILIES[name][1] for name in families])
    while True:
        draw = Draw(random, Parts(random))
        try:
            output = FAMILIES[family][0](draw)
        except TooLargeOrSmall:
            continue
        model, feeds = assemble(draw.parts, output, f"case_{index}")
        return RandomCase(family, _text(draw.parts), model, feeds)


def _text(parts: Parts) -> str:
    """The node in a line: its operator, the shapes of its inputs, its attributes."""
    (node,) = parts.nodes
    shapes = [_operand(parts, name) for name in node.input if name]
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    shown = (f"{name}={_value(value)}" for name, value in attributes.items())
    return f"{node.op_type}({', '.join((*shapes, *shown))})"


def _operand(parts: Parts, name: str) -> str:
    if name in parts.inputs:
        return "x".join(map(str, parts.inputs[name]))
    array = parts.constants[name]
    return str(array.tolist()) if array.size <= SHOWN else f"constant {'x'.join(map(str, array.shape))}"


def _value(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

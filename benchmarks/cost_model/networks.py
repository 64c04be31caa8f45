"""ResNet-50 and MobileNet-V2 at batch 1, as ONNX models that are written here: their kernels are the tasks.

What batch norms would be is already in the weights, which are random. (The zoo's files have the same layers, but need
torch.)
"""

from collections.abc import Callable

import numpy as np
import onnx

from ..operator_models import Parts, assemble

SIZE, CLASSES = 224, 1000
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Of ResNet-50: channels within a block, blocks, stride of the first one."""
BOTTLENECKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Of MobileNet-V2: expansion, channels, blocks, stride of the first one."""
EXPANSION = 4
FIRST, LAST = 32, 1280
"""Channels of MobileNet-V2's first and last convolution."""


def resnet50() -> onnx.ModelProto:
    """He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016), with strides in the 3x3 convolutions."""
    parts = Parts(np.random.default_rng(0))
    x = parts.input(1, 3, SIZE, SIZE)
    x = parts.node("Relu", _convolution(parts, x, 3, 64, 7, 2))
    x = parts.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inner = 64
    for channels, blocks, stride in STAGES:
        outer = channels * EXPANSION
        for block in range(blocks):
            step = stride if block == 0 else 1
            y = parts.node("Relu", _convolution(parts, x, inner, channels, 1))
            y = parts.node("Relu", _convolution(parts, y, channels, channels, 3, step))
            y = _convolution(parts, y, channels, outer, 1)
            shortcut = x if block else _convolution(parts, x, inner, outer, 1, step)
            x = parts.node("Relu", parts.node("Add", y, shortcut))
            inner = outer
    return _classified(parts, x, inner, "resnet50")


def mobilenet_v2() -> onnx.ModelProto:
    """Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (CVPR 2018)."""
    parts = Parts(np.random.default_rng(0))
    low, high = (parts.constant(np.array(bound, np.float32)) for bound in (0.0, 6.0))

    def clipped(value: str) -> str:
        return parts.node("Clip", value, low, high)

    x = clipped(_convolution(parts, parts.input(1, 3, SIZE, SIZE), 3, FIRST, 3, 2))
    inner = FIRST
    for expansion, channels, blocks, stride in BOTTLENECKS:
        for block in range(blocks):
            step, wide = stride if block == 0 else 1, inner * expansion
            y = x if expansion == 1 else clipped(_convolution(parts, x, inner, wide, 1))
            y = clipped(_convolution(parts, y, wide, wide, 3, step, groups=wide))
            y = _convolution(parts, y, wide, channels, 1)
            x = parts.node("Add", x, y) if step == 1 and inner == channels else y
            inner = channels
    return _classified(parts, clipped(_convolution(parts, x, inner, LAST, 1)), LAST, "mobilenet_v2")


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2}


def _convolution(parts: Parts, x: str, inner: int, outer: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
    within = inner // groups
    weight = parts.weight((outer, within, kernel, kernel), within * kernel**2)
    bias = parts.constant(np.zeros(outer, np.float32))
    pads = [kernel // 2] * 4
    return parts.node("Conv", x, weight, bias, strides=[stride] * 2, pads=pads, group=groups)


def _classified(parts: Parts, x: str, channels: int, name: str) -> onnx.ModelProto:
    pooled = parts.node("Flatten", parts.node("GlobalAveragePool", x))
    weight, bias = parts.weight((channels, CLASSES), channels), parts.constant(np.zeros(CLASSES, np.float32))
    model, _ = assemble(parts, parts.node("Gemm", pooled, weight, bias), name)
    return model

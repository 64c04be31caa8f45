"""Networks with work that need not be done, as they are exported: weights are random, and keep the scale of data."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import onnx

from benchmarks.planted.convolutions import EPSILON, PADS, batch_statistics
from benchmarks.planted.writer import Network, matrix, weights


class _Seeds:
    """Numbers that differ, for weights."""

    def __init__(self) -> None:
        self._last = 0

    def __call__(self) -> int:
        self._last += 1
        return self._last


def repvgg() -> onnx.ModelProto:
    """RepVGG-A0 in its training form (Ding et al., CVPR 2021): blocks sum filters of 3 x 3, of points, and none."""
    network, seeds = Network("repvgg"), _Seeds()
    x, channels = network.input("x", 1, 3, 224, 224), 3
    for width, blocks in ((48, 1), (48, 2), (96, 4), (192, 14), (1280, 1)):
        for number in range(blocks):
            x = _repvgg_block(network, seeds, x, channels, width, stride=2 if number == 0 else 1)
            channels = width
    pooled = network("Flatten", network("GlobalAveragePool", x))
    return network.returns(network("Gemm", pooled, matrix(seeds(), channels, 1000))).model()


def _repvgg_block(network: Network, seeds: _Seeds, x: str, channels: int, width: int, stride: int = 1) -> str:
    strides = [stride, stride]
    branches = [
        network("Conv", x, weights(seeds(), width, channels, 3, 3), pads=PADS, strides=strides),
        network("Conv", x, weights(seeds(), width, channels, 1, 1), strides=strides),
        *([x] if stride == 1 and channels == width else []),
    ]
    normal = [
        network("BatchNormalization", branch, *batch_statistics(seeds(), width), epsilon=EPSILON) for branch in branches
    ]
    total = normal[0]
    for other in normal[1:]:
        total = network("Add", total, other)
    return network("Relu", network("Mul", total, np.array(len(branches) ** -0.5, np.float32)))


TOKENS, WIDTH, HEADS, LAYERS = 1024, 256, 4, 4


def linear_attention_encoder() -> onnx.ModelProto:
    """An encoder with efficient attention (Shen et al., WACV 2021), in the order of usual attention: ``(q k) v``."""
    network, seeds = Network("linear_attention_encoder"), _Seeds()
    x = network.input("x", 1, TOKENS, WIDTH)
    for _ in range(LAYERS):
        q, k, v = (_heads(network, network("MatMul", x, matrix(seeds(), WIDTH, WIDTH))) for _ in range(3))
        q, k = network("Softmax", q, axis=-1), network("Softmax", k, axis=-2)
        scores = network("MatMul", q, network("Transpose", k, perm=[0, 1, 3, 2]))
        mixed = network("Transpose", network("MatMul", scores, v), perm=[0, 2, 1, 3])
        flat = network("Reshape", mixed, np.array([1, TOKENS, WIDTH], np.int64))
        x = _normalized(network, network("Add", x, network("MatMul", flat, matrix(seeds(), WIDTH, WIDTH))))
        wide = network("Relu", network("MatMul", x, matrix(seeds(), WIDTH, 2 * WIDTH)))
        x = _normalized(network, network("Add", x, network("MatMul", wide, matrix(seeds(), 2 * WIDTH, WIDTH))))
    return network.returns(x).model()


def _heads(network: Network, x: str) -> str:
    parts = network("Reshape", x, np.array([1, TOKENS, HEADS, WIDTH // HEADS], np.int64))
    return network("Transpose", parts, perm=[0, 2, 1, 3])


def _normalized(network: Network, x: str) -> str:
    ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    return network("LayerNormalization", x, ones, zeros, axis=-1)


STEPS, STATE, TAGS = 16, 256, 32


def lstm_tagger() -> onnx.ModelProto:
    """A tagger whose LSTM cell is written out step by step, each gate with matrices of its own."""
    network, seeds = Network("lstm_tagger"), _Seeds()
    xs = [network.input(f"x{step}", 1, STATE) for step in range(STEPS)]
    ws, us = ([network.constant(matrix(seeds(), STATE, STATE)) for _ in range(4)] for _ in range(2))
    biases = [network.constant(weights(seeds(), STATE)) for _ in range(4)]
    scores, h, c = (
        network.constant(matrix(seeds(), STATE, TAGS)),
        network.input("h", 1, STATE),
        network.input("c", 1, STATE),
    )
    tags: list[str] = []
    for x in xs:
        sums = [
            network("Add", network("Add", network("MatMul", x, w), network("MatMul", h, u)), b)
            for w, u, b in zip(ws, us, biases, strict=True)
        ]
        i, o, f = (network("Sigmoid", one) for one in sums[:3])
        c = network("Add", network("Mul", f, c), network("Mul", i, network("Tanh", sums[3])))
        h = network("Mul", o, network("Tanh", c))
        tags.append(network("MatMul", h, scores))
    return network.returns(network("Concat", *tags, axis=0)).model()


def detection_neck() -> onnx.ModelProto:
    """A neck as in YOLOv6 (Li et al., 2022), with blocks of RepVGG in training form: maps of a coarser level are
    enlarged, then reduced to fewer channels by a convolution of points, and added. Two heads read each level."""
    network, seeds = Network("detection_neck"), _Seeds()
    sides, widths = (40, 20, 10), (64, 128, 256)
    levels = [network.input(f"c{n + 3}", 1, w, s, s) for n, (w, s) in enumerate(zip(widths, sides, strict=True))]
    found: list[str] = []
    above, above_width = "", 0
    for level, width in zip(reversed(levels), reversed(widths), strict=True):
        x = _points(network, seeds, level, width, width)
        if above:
            larger = network("Resize", above, "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
                             coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
            x = network("Add", x, _points(network, seeds, larger, above_width, width))
        above, above_width = _repvgg_block(network, seeds, x, width, width), width
        found += [_head(network, seeds, above, width, results) for results in (80, 4)]
    return network.returns(*found).model()


def _points(network: Network, seeds: _Seeds, x: str, channels: int, width: int) -> str:
    return network("Conv", x, weights(seeds(), width, channels, 1, 1), weights(seeds(), width))


def _head(network: Network, seeds: _Seeds, x: str, width: int, results: int) -> str:
    inner = network("Conv", x, weights(seeds(), width, width, 3, 3), weights(seeds(), width), pads=PADS)
    return _points(network, seeds, network("Relu", inner), width, results)


BUILT: Mapping[str, Callable[[], onnx.ModelProto]] = MappingProxyType(
    {one.__name__: one for one in (repvgg, linear_attention_encoder, lstm_tagger, detection_neck)}
)

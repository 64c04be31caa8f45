"""Quantized networks, and networks of integers."""

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from .writer import Maker, Network, Planted, planted

_SCALE, _ZERO = np.array(0.05, np.float32), np.array(120, np.uint8)
_OF_RESULT = np.array(0.4, np.float32)


def bytes_of(seed: int, *shape: int) -> NDArray[np.int8]:
    """Weights of 8 bits."""
    return np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int8)


def pool_of_dequantized() -> Planted:
    """The maximum of four, of floats that are bytes times a scale."""
    given, rewritten = Network("given"), Network("rewritten")
    options = {"kernel_shape": [2, 2], "strides": [2, 2]}
    x = given.input("x", 1, 64, 56, 56, of=TensorProto.UINT8)
    given.returns(given("MaxPool", given("DequantizeLinear", x, _SCALE, _ZERO), **options))
    x = rewritten.input("x", 1, 64, 56, 56, of=TensorProto.UINT8)
    rewritten.returns(rewritten("DequantizeLinear", rewritten("MaxPool", x, **options), _SCALE, _ZERO))
    return planted("dequantized, then max-pool", "monotone functions", given, rewritten)


def quantized_points_after_copies() -> Planted:
    """Places of an image of bytes are copied before a quantized 1x1 convolution."""
    given, rewritten = Network("given"), Network("rewritten")
    x = given.input("x", 1, 128, 28, 28, of=TensorProto.UINT8)
    larger = _as_bytes(given, _twice(given, given("DequantizeLinear", x, _SCALE, _ZERO)), _SCALE)
    given.returns(_points(given, larger), of=TensorProto.UINT8)
    x = rewritten.input("x", 1, 128, 28, 28, of=TensorProto.UINT8)
    mixed = rewritten("DequantizeLinear", _points(rewritten, x), _OF_RESULT, _ZERO)
    larger = _as_bytes(rewritten, _twice(rewritten, mixed), _OF_RESULT)
    rewritten.returns(larger, of=TensorProto.UINT8)
    return planted("upsample, then quantized 1x1", "a detection neck, quantized", given, rewritten)


def _twice(network: Network, image: str) -> str:
    nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return network("Resize", image, "", np.array([1, 1, 2, 2], np.float32), **nearest)


def _as_bytes(network: Network, value: str, scale: NDArray[np.float32]) -> str:
    return network("QuantizeLinear", value, scale, _ZERO)


def _points(network: Network, x: str) -> str:
    """A convolution of dequantized bytes by dequantized filters, with a bias, quantized."""
    scales = (np.random.default_rng(1).random(128) * 0.01 + 0.001).astype(np.float32)
    filters = network("DequantizeLinear", bytes_of(2, 128, 128, 1, 1), scales, np.zeros(128, np.int8), axis=0)
    integers = np.random.default_rng(3).integers(-900, 900, 128).astype(np.int32)
    bias = network("DequantizeLinear", integers, scales * _SCALE, np.zeros(128, np.int32), axis=0)
    data = network("DequantizeLinear", x, _SCALE, _ZERO)
    return _as_bytes(network, network("Conv", data, filters, bias), _OF_RESULT)


def last_row_of_product() -> Planted:
    """Of a product of bytes, only the last row is read: the head of a network that predicts the next word."""
    given, rewritten = Network("given"), Network("rewritten")
    weight, cut = bytes_of(0, 256, 1024), (np.array([127]), np.array([128]), np.array([0]))
    product = given("MatMulInteger", given.input("x", 128, 256, of=TensorProto.UINT8), weight, _ZERO)
    given.returns(given("Slice", product, *cut), of=TensorProto.INT32)
    row = rewritten("Slice", rewritten.input("x", 128, 256, of=TensorProto.UINT8), *cut)
    rewritten.returns(rewritten("MatMulInteger", row, weight, _ZERO), of=TensorProto.INT32)
    return planted("last row of an integer product", "a language model's head", given, rewritten)


def joined_integer_filters() -> Planted:
    """Convolutions of one image of bytes, whose channels are joined."""
    given, rewritten = Network("given"), Network("rewritten")
    parts = [bytes_of(seed, 64, 64, 1, 1) for seed in range(4)]
    x = given.input("x", 1, 64, 28, 28, of=TensorProto.UINT8)
    joined = given("Concat", *(given("ConvInteger", x, part, _ZERO) for part in parts), axis=1)
    given.returns(joined, of=TensorProto.INT32)
    x = rewritten.input("x", 1, 64, 28, 28, of=TensorProto.UINT8)
    rewritten.returns(rewritten("ConvInteger", x, np.concatenate(parts), _ZERO), of=TensorProto.INT32)
    return planted("integer convolutions, concat", "TASO, of integers", given, rewritten)


def chain_of_integers() -> Planted:
    """``(Q K) V`` of integers of 32 bits: sums that wrap around may be added in any order."""
    given, rewritten = Network("given"), Network("rewritten")
    for network in (given, rewritten):
        q, k, v = (
            network.input(name, *shape, of=TensorProto.INT32)
            for name, shape in (("q", (512, 16)), ("k", (16, 512)), ("v", (512, 16)))
        )
        if network is given:
            network.returns(network("MatMul", network("MatMul", q, k), v), of=TensorProto.INT32)
        else:
            network.returns(network("MatMul", q, network("MatMul", k, v)), of=TensorProto.INT32)
    return planted("(Q K) V of integers", "linear attention", given, rewritten)


PLANTED: tuple[Maker, ...] = (
    pool_of_dequantized,
    quantized_points_after_copies,
    last_row_of_product,
    joined_integer_filters,
    chain_of_integers,
)

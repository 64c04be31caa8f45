"""Products of matrices that are one product, or smaller ones."""

import numpy as np

from .writer import Maker, Network, Planted, matrix, planted, weights

ROWS, WIDTH = 64, 256


def _rows(network: Network, rows: int = ROWS, width: int = WIDTH) -> str:
    return network.input("x", rows, width)


def sum_of_products() -> Planted:
    """Two products of one matrix, added."""
    v, w = matrix(0, WIDTH, WIDTH), matrix(1, WIDTH, WIDTH)
    given, rewritten = Network("given"), Network("rewritten")
    x = _rows(given)
    given.returns(given("Add", given("MatMul", x, v), given("MatMul", x, w)))
    rewritten.returns(rewritten("MatMul", _rows(rewritten), v + w))
    return planted("x W1 + x W2", "TASO", given, rewritten)


def chain_of_products() -> Planted:
    """Two products after one another, with a wide matrix between them."""
    v, w = matrix(0, 64, 1024), matrix(1, 1024, 64)
    given, rewritten = Network("given"), Network("rewritten")
    given.returns(given("MatMul", given("MatMul", _rows(given, width=64), v), w))
    rewritten.returns(rewritten("MatMul", _rows(rewritten, width=64), v @ w))
    return planted("(x W1) W2", "TASO", given, rewritten)


def low_rank_adapter() -> Planted:
    """A matrix, and a low-rank change of it, applied one beside the other."""
    w, a, b = matrix(0, WIDTH, WIDTH), matrix(1, WIDTH, 16), matrix(2, 16, WIDTH)
    given, rewritten = Network("given"), Network("rewritten")
    x = _rows(given)
    given.returns(given("Add", given("MatMul", x, w), given("MatMul", given("MatMul", x, a), b)))
    rewritten.returns(rewritten("MatMul", _rows(rewritten), w + a @ b))
    return planted("x W + (x A) B", "Mirage (LoRA)", given, rewritten)


def queries_keys_values() -> Planted:
    """Three products of one matrix, with biases."""
    ws, bs = [matrix(seed, WIDTH, WIDTH) for seed in range(3)], [weights(seed + 9, WIDTH) for seed in range(3)]
    given, rewritten = Network("given"), Network("rewritten")
    x = _rows(given, 16)
    given.returns(*(given("Add", given("MatMul", x, w), b) for w, b in zip(ws, bs, strict=True)))
    y = rewritten("MatMul", _rows(rewritten, 16), np.concatenate(ws, axis=1))
    shifted = rewritten("Add", y, np.concatenate(bs))
    rewritten.returns(*rewritten.several("Split", 3, shifted, np.array([WIDTH] * 3, np.int64), axis=1))
    return planted("queries, keys, values", "TASO (BERT)", given, rewritten)


def mean_after_product() -> Planted:
    """The mean over a sequence after a layer, which is the layer of the mean."""
    w, b = matrix(0, WIDTH, WIDTH), weights(1, WIDTH)
    given, rewritten = Network("given"), Network("rewritten")
    axes = np.array([1], np.int64)
    x = given.input("x", 4, ROWS, WIDTH)
    given.returns(given("ReduceMean", given("Add", given("MatMul", x, w), b), axes, keepdims=0))
    y = rewritten("ReduceMean", rewritten.input("x", 4, ROWS, WIDTH), axes, keepdims=0)
    rewritten.returns(rewritten("Add", rewritten("MatMul", y, w), b))
    return planted("mean over rows after x W + b", "STENSO", given, rewritten)


def linear_attention() -> Planted:
    """Attention without a softmax: the product of keys and values does not grow with the square of the sequence."""
    heads, length, width = 4, 512, 32
    given, rewritten = Network("given"), Network("rewritten")

    def operands(network: Network) -> list[str]:
        q, k, v = (network.input(name, 1, heads, length, width) for name in "qkv")
        return [q, network("Transpose", k, perm=[0, 1, 3, 2]), v]

    q, k, v = operands(given)
    given.returns(given("MatMul", given("MatMul", q, k), v))
    q, k, v = operands(rewritten)
    rewritten.returns(rewritten("MatMul", q, rewritten("MatMul", k, v)))
    return planted("linear attention", "Katharopoulos et al.", given, rewritten)


def shared_keys_and_values() -> Planted:
    """Keys and values that all heads share, copied for each (as exporters write multi-query attention)."""
    heads, queries, length, width = 8, 4, 512, 64
    given, rewritten = Network("given"), Network("rewritten")
    shape = np.array([1, heads, length, width], np.int64)
    scale = np.array(width**-0.5, np.float32)

    def operands(network: Network) -> tuple[str, str, str]:
        q = network.input("q", 1, heads, queries, width)
        return q, network.input("k", 1, 1, length, width), network.input("v", 1, 1, length, width)

    q, k, v = operands(given)
    keys = given("Transpose", given("Expand", k, shape), perm=[0, 1, 3, 2])
    scores = given("Softmax", given("Mul", given("MatMul", q, keys), scale), axis=-1)
    given.returns(given("MatMul", scores, given("Expand", v, shape)))

    def flat(name: str, *extents: int) -> str:
        return rewritten("Reshape", name, np.array(extents, np.int64))

    q, k, v = operands(rewritten)
    keys = rewritten("Transpose", flat(k, 1, length, width), perm=[0, 2, 1])
    rows = rewritten("MatMul", flat(q, 1, heads * queries, width), keys)
    scores = rewritten("Softmax", rewritten("Mul", rows, scale), axis=-1)
    y = rewritten("MatMul", scores, flat(v, 1, length, width))
    rewritten.returns(flat(y, 1, heads, queries, width))
    return planted("keys and values shared by Expand", "Shazeer, multi-query attention", given, rewritten)


PLANTED: tuple[Maker, ...] = (
    sum_of_products,
    chain_of_products,
    low_rank_adapter,
    queries_keys_values,
    mean_after_product,
    linear_attention,
    shared_keys_and_values,
)

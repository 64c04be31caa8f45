"""The programs in NumPy, in the precision of their inputs: what is right. Arguments are those of programs.py."""

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating]


def capsules(x: Array, w: Array) -> Sequence[Array]:
    size = x.shape[0] // 2
    windows = [x[r : r + 2 * size : 2, s : s + 2 * size : 2] for r, s in product(range(3), repeat=2)]
    taps = w.reshape(9, *w.shape[2:])
    return [np.einsum("tyxcik,tcokj->yxoij", np.stack(windows), taps, optimize=True)]


def norms(x: Array) -> Sequence[Array]:
    return [np.linalg.norm(x, axis=1), np.asarray(np.linalg.norm(x))]


def dilated_conv3d(x: Array, w: Array) -> Sequence[Array]:
    windows = sliding_window_view(x, (5, 5, 5), axis=(1, 2, 3))[..., ::2, ::2, ::2]
    return [np.einsum("czyxrst,ocrst->ozyx", windows, w, optimize=True)]


def attention_scores(q: Array, k: Array) -> Sequence[Array]:
    scores = q.transpose(1, 0, 2) @ k.transpose(1, 2, 0) / np.sqrt(q.shape[2])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return [weights / weights.sum(-1, keepdims=True)]


def lstm_cell(x: Array, h: Array, c: Array, w: Array, u: Array, b: Array) -> Sequence[Array]:
    gates = np.einsum("ni,goi->gno", x, w) + np.einsum("nj,goj->gno", h, u) + b[:, None]
    cell = _sigmoid(gates[1]) * c + _sigmoid(gates[0]) * np.tanh(gates[2])
    return [_sigmoid(gates[3]) * np.tanh(cell), cell]


def stencil2d(x: Array) -> Sequence[Array]:
    weights = np.outer([1, 2, 1], [1, 2, 1]) / 16
    for _ in range(2):
        x = np.einsum("yxrs,rs->yx", sliding_window_view(x, (3, 3)), weights)
    return [x]


def wave3d(now: Array, before: Array, speed: Array) -> Sequence[Array]:
    size, middle = before.shape[0], slice(2, -2)
    laplacian = np.zeros_like(before)
    for axis, (place, weight) in product(range(3), enumerate([-1 / 12, 4 / 3, -5 / 2, 4 / 3, -1 / 12])):
        at = [middle] * 3
        at[axis] = slice(place, place + size)
        laplacian += weight * now[tuple(at)]
    return [2 * now[middle, middle, middle] - before + speed * laplacian]


def triangular_solves(a: Array, b: Array) -> Sequence[Array]:
    return [np.linalg.solve(np.tril(a), b)]


def correlation(left: Array, right: Array) -> Sequence[Array]:
    windows = sliding_window_view(right, left.shape[1:], axis=(1, 2))
    return [np.einsum("cyx,cabyx->abyx", left, windows) / left.shape[0]]


def bilinear(x: Array, w: Array, y: Array) -> Sequence[Array]:
    return [np.einsum("ni,oij,nj->no", x, w, y, optimize=True)]


def distances(x: Array, y: Array) -> Sequence[Array]:
    return [np.linalg.norm(x[:, None] - y[None], axis=2)]


def separable(x: Array, w: Array, v: Array) -> Sequence[Array]:
    deep = np.einsum("cyxrs,crs->cyx", sliding_window_view(x, (3, 3), axis=(1, 2)), w)
    return [np.tensordot(v, deep.clip(0, 6), 1)]


def group_norm(x: Array, gamma: Array, beta: Array) -> Sequence[Array]:
    mean, variance = (f(x, axis=(2, 3), keepdims=True) for f in (np.mean, np.var))
    scaled = (x - mean) / np.sqrt(variance + 1e-5) * gamma[..., None] + beta[..., None]
    return [scaled * _sigmoid(scaled)]


def grouped_residual(x: Array, w: Array) -> Sequence[Array]:
    windows = sliding_window_view(x, (3, 3), axis=(2, 3))
    convolved = np.einsum("gcyxrs,gocrs->goyx", windows, w, optimize=True)
    return [np.maximum(convolved + x[:, :, 1:-1, 1:-1], 0)]


def gram(x: Array) -> Sequence[Array]:
    return [x @ x.T / x.shape[1]]


def causal_pooling(q: Array, k: Array, v: Array, bias: Array) -> Sequence[Array]:
    near, weight = np.tril(np.exp(bias)), np.exp(k)
    return [_sigmoid(q) * (near @ (weight * v)) / (near @ weight)]


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))

"""The network of model.py in NumPy float64, written from the papers; it shares no code with model.py.

Padding is excluded by -inf instead of a large negative number, attention is an einsum over heads, and erf is libm's,
so that an error in the graph has no counterpart here.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def embed(
    weights: Mapping[str, NDArray[np.floating]], feeds: Mapping[str, NDArray[np.int64]], heads: int, epsilon: float
) -> Array:
    """Sentence embeddings, [batch, hidden], rows of length one.

    `feeds` holds `input_ids`, `attention_mask` and `token_type_ids`, each [batch, sequence]; every row has a token.
    """
    exact = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    tokens = feeds["attention_mask"] > 0
    x = _embeddings(exact, feeds, epsilon)
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in exact:
        x = _layer(exact, f"encoder.layer.{layer}.", x, tokens, heads, epsilon)
        layer += 1
    mean = np.stack([rows[kept].mean(axis=0) for rows, kept in zip(x, tokens, strict=True)])
    return mean / np.sqrt((mean**2).sum(axis=1, keepdims=True))


def _embeddings(weights: Mapping[str, Array], feeds: Mapping[str, NDArray[np.int64]], epsilon: float) -> Array:
    tables = {kind: weights[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")}
    length = feeds["input_ids"].shape[1]
    x = tables["word"][feeds["input_ids"]] + tables["token_type"][feeds["token_type_ids"]] + tables["position"][:length]
    return _normalize(weights, "embeddings.LayerNorm", x, epsilon)


def _layer(
    weights: Mapping[str, Array], prefix: str, x: Array, tokens: NDArray[np.bool_], heads: int, epsilon: float
) -> Array:
    query, key, value = (
        _linear(weights, f"{prefix}attention.self.{part}", x).reshape(*x.shape[:2], heads, -1)
        for part in ("query", "key", "value")
    )
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(query.shape[-1])
    weight = _softmax(np.where(tokens[:, None, None, :], scores, -np.inf))
    attended = np.einsum("bhqk,bkhd->bqhd", weight, value).reshape(x.shape)
    x = x + _linear(weights, f"{prefix}attention.output.dense", attended)
    x = _normalize(weights, f"{prefix}attention.output.LayerNorm", x, epsilon)
    inner = _linear(weights, f"{prefix}intermediate.dense", x)
    inner = inner * (0.5 + 0.5 * _erf(inner * math.sqrt(0.5)))
    x = x + _linear(weights, f"{prefix}output.dense", inner)
    return _normalize(weights, f"{prefix}output.LayerNorm", x, epsilon)


def _linear(weights: Mapping[str, Array], name: str, x: Array) -> Array:
    return np.einsum("bsi,oi->bso", x, weights[f"{name}.weight"], optimize=True) + weights[f"{name}.bias"]


def _normalize(weights: Mapping[str, Array], name: str, x: Array, epsilon: float) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def _softmax(x: Array) -> Array:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)

"""Operators that the importer knows and random graphs do not have, each with the reason."""

from collections.abc import Mapping

_SHAPE = "the shape of its result depends on its elements, so that it is compiled of constants only"

_RANDOM = "its numbers are random"
_NEW = "too new for ONNX Runtime, so that one oracle is missing"

LEFT_OUT: Mapping[str, str] = {
    "Bernoulli": _RANDOM,
    "BitCast": _NEW,
    "TfIdfVectorizer": "its result has one element for each of the n-grams that it knows; tests/frontend has it",
    "Multinomial": _RANDOM,
    "NonZero": _SHAPE,
    "RandomNormal": _RANDOM,
    "RandomNormalLike": _RANDOM,
    "RandomUniform": _RANDOM,
    "RandomUniformLike": _RANDOM,
    "SwiGLU": _NEW,
    "TensorScatter": _NEW,
    "NonMaxSuppression": _SHAPE,
    "Unique": _SHAPE,
    "DeformConv": "its oracles differ at borders; tests/ops and ONNX's node tests have it",
    "RoiAlign": "a float64 reference would repeat ours; tests/ops and ONNX's node tests have it",
}
"""No rule of generation."""

NO_KERNEL: Mapping[str, str] = {
    "CumProd": "new in opset 26, which ONNX Runtime does not read",
}
"""There is a rule, but ONNX Runtime has no kernel, so that one oracle is missing; ONNX's node tests have these."""

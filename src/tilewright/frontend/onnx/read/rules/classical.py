"""Operators of the domain ``ai.onnx.ml`` (features of classical models) that have numbers only."""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.frontend.onnx.read.rules.indexing import check_constant
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value

DOMAIN = "ai.onnx.ml"


def _array_feature_extractor(request: Request) -> Sequence[Value]:
    """The chosen columns; those of a vector are a matrix of one row, as in ONNX Runtime."""
    data, chosen = request.input(0), request.apply("Reshape", request.input(1), shape=(-1,))
    if not data.shape:
        raise request.invalid(f"{data!r} has no columns")
    table = request.apply("Unsqueeze", data, axes=(0,)) if len(data.shape) == 1 else data
    last = len(table.shape) - 1
    check_constant(request, chosen, [table.shape[last]], f"the columns of {data!r}")
    return [request.apply("Gather", table, chosen, axis=last)]


def _binarizer(request: Request) -> Sequence[Value]:
    """1 for numbers above the threshold, else 0."""
    data = request.input(0)
    threshold = request.number("threshold", 0.0)
    if data.dtype.is_int:
        if not data.dtype.min <= threshold < data.dtype.max:
            raise request.unsupported(f"the threshold {threshold} is beyond all {data.dtype}; leave the node out")
        threshold = np.floor(threshold)
    limit = request.constant(np.array(threshold).astype(data.dtype.numpy))
    return [request.apply("Cast", request.apply("Greater", data, limit), to=data.dtype)]


RULES: Mapping[str, RuleFunction] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "Binarizer": _binarizer,
}

"""ONNX's Dropout, which is the identity in inference."""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value


def _dropout(request: Request) -> Sequence[Value]:
    """The input, and a mask that keeps all of it (a bool from opset 10 on).

    ``training_mode`` (opset 12) must be off, or the ratio 0.
    """
    training, ratio = request.array(2), request.optional(1)
    if training is not None and training.any():
        known = None if ratio is None else request.importer.known(ratio)
        if known is None or known.any():
            raise request.unsupported("Dropout in training mode is random; export the model for inference")
    data = request.input(0)
    same = request.apply("Identity", data)
    if request.outputs < 2:
        return [same]
    kept = np.array(1, np.bool_ if request.opset >= 10 else data.dtype.numpy)
    return [same, request.apply("Expand", request.constant(kept), shape=data.shape)]


RULES: Mapping[str, RuleFunction] = {"Dropout": _dropout}

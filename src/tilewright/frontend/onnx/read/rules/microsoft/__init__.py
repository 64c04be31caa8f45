"""Operators of ONNX Runtime: of its domain ``com.microsoft``, and one that it adds to ONNX's own.

Its optimizer (``onnxruntime.transformers``) and its quantizer write them. ONNX defines none of these, so a
``Definition`` says what is checked; its rule makes nodes of ``ops``, so that all passes see what they know: attention,
normalizations, products of quantized numbers. To add one, put a line into the table of its family.

In: a ``Request``. Out: the values of its outputs. Meanings: ONNX Runtime's ``ContribOperators.md`` and, where that is
silent, what its CPU kernels compute.
"""

from collections.abc import Mapping

from tilewright.frontend.onnx.read.rules.microsoft import (
    activations,
    attention,
    grouped,
    normalizations,
    products,
    quantized,
    weights,
)
from tilewright.frontend.onnx.read.rules.rule import RuleFunction

__all__ = ["DOMAIN", "OF_ONNX", "RULES"]

DOMAIN = "com.microsoft"

RULES: Mapping[str, RuleFunction] = {
    **activations.RULES,
    **attention.RULES,
    **grouped.RULES,
    **normalizations.RULES,
    **products.RULES,
    **quantized.RULES,
    **weights.RULES,
}
OF_ONNX = normalizations.OF_ONNX
"""Operators of ONNX's domain that only ONNX Runtime has."""

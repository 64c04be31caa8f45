"""Export forms: write nodes of the graph in ONNX, one file per family of operators; the inverse of ``read/rules``.

In: a ``Writing`` (one node of the graph). Out: nodes of the model, the last of which makes the node's results. Where
what is read is a declaration (``Rule``), so is what is written: its inverse. To add another operator: put a line into
the table of its family here, a ``Form`` or a function that writes several nodes:

    "Softmax": Form("Softmax", {"axis": "axis"})

or, if ONNX can't say it, into ``NOT_WRITTEN``.
"""

from collections.abc import Mapping

from tilewright.frontend.onnx.read.rules import RULES, Rule
from tilewright.frontend.onnx.write.forms import (
    contraction,
    convolution,
    elementwise,
    generation,
    indexing,
    movement,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    sampling,
)
from tilewright.frontend.onnx.write.forms.form import Form, FormFunction, Writing

__all__ = ["FORMS", "NOT_WRITTEN", "OF_CODES", "STAGED", "Form", "FormFunction", "Writing"]

_NEWER = "it is newer than the opset that is written; compute it outside of the model"
STAGED = "its sizes are read off data; write a part of the model in which these are known"
_COMPILED = "it is a step of compiled code; write the graph as it is before layouts are chosen"
OF_CODES = "it computes with codes of types of few bits; write the part of the model without them"

NOT_WRITTEN: Mapping[str, str] = {
    "Attention": _COMPILED,
    "BlockAttention": _COMPILED,
    "BlockDigits": _COMPILED,
    "BlockProducts": _COMPILED,
    "BlockedDotConvolution": _COMPILED,
    "ChannelConvolution": _COMPILED,
    "ChannelGroups": _COMPILED,
    "CodeProducts": _COMPILED,
    "CumProd": _NEWER,
    "DecodeFloat": OF_CODES,
    "DotConvolution": _COMPILED,
    "DotProducts": _COMPILED,
    "EncodeFloat": OF_CODES,
    "First": STAGED,
    "KeyPanels": _COMPILED,
    "LowBits": OF_CODES,
    "NonMaxSuppression": STAGED,
    "NonZero": STAGED,
    "PairAttention": _COMPILED,
    "PairConv": _COMPILED,
    "Pairs": _COMPILED,
    "PhasesToSpace": _COMPILED,
    "PixelRowConv": _COMPILED,
    "PixelRows": _COMPILED,
    "PlaceConv": _COMPILED,
    "PlaceDotConvolution": _COMPILED,
    "RangeCount": STAGED,
    "Scaled": OF_CODES,
    "SliceFrom": STAGED,
    "TapSums": _COMPILED,
    "TensorScatter": _NEWER,
    "UniqueGroups": STAGED,
    "UniqueRows": STAGED,
    "WholeChannels": _COMPILED,
    "WindowTaps": _COMPILED,
    "WinogradInput": _COMPILED,
    "WinogradOutput": _COMPILED,
    "WinogradProducts": _COMPILED,
}
"""All other operators: why they are not written, and what helps."""

_INVERSES = {
    op: Form.inverse(name, rule)
    for name, rule in RULES.items()
    if isinstance(rule, Rule) and (op := str(rule.operator)) not in NOT_WRITTEN
}
FORMS: Mapping[str, FormFunction] = {
    **_INVERSES,
    **contraction.FORMS,
    **convolution.FORMS,
    **elementwise.FORMS,
    **generation.FORMS,
    **indexing.FORMS,
    **movement.FORMS,
    **normalization.FORMS,
    **pooling.FORMS,
    **quantization.FORMS,
    **recurrent.FORMS,
    **reduction.FORMS,
    **sampling.FORMS,
}

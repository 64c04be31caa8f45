"""Import rules: translate ONNX nodes to nodes of the graph, one file per family of operators.

In: a ``Request`` (one node of the model). Out: the values of its outputs. Most rules are declarations:

    "Gemm": Rule("Gemm", {"alpha": "alpha", "transA": "transpose_a"})

Others are functions that apply several operators or depend on the opset. To add an operator: write it in ``ops``, and
put a line into the table of its family here.
"""

from collections.abc import Mapping

from tilewright.frontend.onnx.read.rules import (
    classical,
    contraction,
    convolution,
    dropout,
    einsum,
    elementwise,
    generation,
    indexing,
    movement,
    ngrams,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resizing,
    selection,
    signal,
    sorting,
    training,
    variadic,
)
from tilewright.frontend.onnx.read.rules.indexing import CHECKED_INPUTS
from tilewright.frontend.onnx.read.rules.rule import Request, Rule, RuleFunction
from tilewright.frontend.onnx.read.rules.sequences import sequence_rule
from tilewright.frontend.onnx.read.rules.signal import BY_BODY_OF_DATA

__all__ = [
    "BY_BODY_OF_DATA",
    "CHECKED_INPUTS",
    "OF_OTHER_DOMAINS",
    "RULES",
    "Request",
    "Rule",
    "RuleFunction",
    "sequence_rule",
]

RULES: Mapping[str, RuleFunction] = {
    **contraction.RULES,
    **convolution.RULES,
    **dropout.RULES,
    **einsum.RULES,
    **elementwise.RULES,
    **generation.RULES,
    **indexing.RULES,
    **movement.RULES,
    **ngrams.RULES,
    **normalization.RULES,
    **pooling.RULES,
    **quantization.RULES,
    **recurrent.RULES,
    **reduction.RULES,
    **resizing.RULES,
    **selection.RULES,
    **signal.RULES,
    **sorting.RULES,
    **variadic.RULES,
}

OF_OTHER_DOMAINS: Mapping[tuple[str, str], RuleFunction] = {
    (domain, name): rule
    for domain, rules in ((classical.DOMAIN, classical.RULES), (training.DOMAIN, training.RULES))
    for name, rule in rules.items()
}
"""By domain and name: operators that ONNX defines beside its main domain."""

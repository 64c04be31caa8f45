"""Operators: each is one Python function from tensors and attributes to tensors.

In: te tensors and attributes. Out: te tensors, which define shape, dtype, semantics and reference code.

    find("Softmax").apply([x], {"axis": -1})       the te program of a softmax over the last axis of x

To add an operator, write a function in the file of its family and decorate it with ``@operator(name, kind, traits)``; a
new file is also imported here. ``kind``: how it may be fused (``FusionKind``); ``traits``: properties that rewrites use
(``Trait``); ``batched``: its batch dimensions (``Batch``). Names and semantics are those of ONNX.
"""

from tilewright.ops import (
    accumulation,
    activation,
    attention,
    block_attention,
    contraction,
    convolution,
    dot_products,
    einsum,
    elementwise,
    generation,
    indexing,
    linear_algebra,
    movement,
    normalization,
    padding,
    pair_attention,
    pixel_rows,
    pooling,
    quantization,
    quantized,
    recurrent,
    reduction,
    resampling,
    sampling,
    scatter,
    selection,
    signal,
    softmax,
    sorting,
    transposed_convolution,
    weight_products,
    winograd,
)
from tilewright.ops.operator import Attribute, Attributes, FusionKind, Operator, Trait, find, names

__all__ = [
    "Attribute",
    "Attributes",
    "FusionKind",
    "Operator",
    "Trait",
    "accumulation",
    "activation",
    "attention",
    "block_attention",
    "contraction",
    "convolution",
    "dot_products",
    "einsum",
    "elementwise",
    "find",
    "generation",
    "indexing",
    "linear_algebra",
    "movement",
    "names",
    "normalization",
    "padding",
    "pair_attention",
    "pixel_rows",
    "pooling",
    "quantization",
    "quantized",
    "recurrent",
    "reduction",
    "resampling",
    "sampling",
    "scatter",
    "selection",
    "signal",
    "softmax",
    "sorting",
    "transposed_convolution",
    "weight_products",
    "winograd",
]

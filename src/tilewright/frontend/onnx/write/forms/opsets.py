"""The opset that a model needs.

Models are written for the older of two opsets if it has all of their operators: runtimes have faster kernels for older
operators. (ONNX Runtime 1.31 runs NasNet, with much pooling, a fifth faster.)
"""

from collections.abc import Mapping

import onnx

from tilewright.base.dtypes import DType
from tilewright.frontend.onnx.read.protos import type_name

OLD = 18
"""The opset of ONNX 1.13 (2022)."""
NEW = 21
"""The opset of ONNX 1.16 (2024): the first with Gelu, group normalization by channels, quantization by blocks."""

_CHANGED = frozenset({"GridSample", "GroupNormalization"})
"""Operators of the old opset with other semantics there."""
_NEW_TEXTS = frozenset({b"wrap"})
"""Values of attributes missing in the old opset."""


def objection(node: onnx.NodeProto, dtypes: Mapping[str, DType], opset: int) -> str | None:
    """Why ``opset`` lacks this node, some of whose inputs have ``dtypes``; None if it has it."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return f"there is no {node.op_type} in opset {opset}"
    known = schema.attributes
    texts = {attribute.s for attribute in node.attribute}
    is_changed = opset == OLD and (node.op_type in _CHANGED or not texts.isdisjoint(_NEW_TEXTS))
    if is_changed or any(attribute.name not in known for attribute in node.attribute):
        return f"{node.op_type} of opset {opset} is another one"
    for position, name in enumerate(node.input):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if name in dtypes and type_name(dtypes[name]) not in formal.types:
            return f"{node.op_type} of opset {opset} does not take {dtypes[name]}"
    return None

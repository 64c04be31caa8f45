"""Types of a model's inner values, by ONNX's own inference."""

import onnx
from google.protobuf.message import EncodeError
from onnx import shape_inference


def inferred_types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Types of inner values, as far as ONNX infers them; every unknown extent gets a name."""
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except (shape_inference.InferenceError, EncodeError, ValueError):  # malformed, or too large for protobuf
        return {}
    found: dict[str, onnx.ValueInfoProto] = {}
    for info in (*inferred.graph.value_info, *inferred.graph.output):
        tensor = info.type.tensor_type
        if tensor.elem_type and tensor.HasField("shape"):
            for position, extent in enumerate(tensor.shape.dim):
                if not extent.dim_param and not extent.HasField("dim_value"):
                    extent.dim_param = f"{info.name}.{position}"
            found[info.name] = info
    return found

"""Reading the parts of an ONNX file: the model, its tensors, attributes and element types, each with clear errors."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper
from onnx.external_data_helper import load_external_data_for_model

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InvalidModel, ResourceLimit, UnsupportedDType, UnsupportedModel
from tilewright.graph import Array
from tilewright.ops import Attribute

FIRST_OPSET = 7
"""The first opset with NumPy's broadcasting. Of older ones, only operators that it left as they were are read."""

OWN_DOMAIN = ("", "ai.onnx")
"""The names of the domain of ONNX's own operators."""

MAX_FILE_BYTES = (1 << 31) - 1
"""What protobuf can hold."""

MAX_ELEMENTS = 1 << 34
"""Elements of one tensor: more than any machine that this compiler runs on has room for."""


def read_model(path: Path) -> onnx.ModelProto:
    """The model in a file, with its external data. Raises ``InvalidModel``."""
    if not path.is_file():
        raise InvalidModel(f"there is no model file {path}")
    size = path.stat().st_size
    if not size:
        raise InvalidModel(f"{path} is empty")
    if size > MAX_FILE_BYTES:
        raise ResourceLimit(f"{path} has {size} bytes, more than {MAX_FILE_BYTES}; store the weights as external data")
    try:
        model = onnx.load_model_from_string(path.read_bytes())
        load_external_data_for_model(model, str(path.parent))
    except (DecodeError, ValueError, OSError, onnx.checker.ValidationError) as error:
        raise InvalidModel(f"{path} can't be read as ONNX: {error}") from error
    if not model.graph.node and not model.graph.output:
        raise InvalidModel(f"{path} is no ONNX model: it holds no graph")
    return model


def sha256(source: str | os.PathLike[str] | onnx.ModelProto) -> str | None:
    """The SHA-256 of a model's file without its external data, in hexadecimal digits; None if it can't be written."""
    if not isinstance(source, onnx.ModelProto):
        with Path(source).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if source.ByteSize() > MAX_FILE_BYTES:
        return None
    return hashlib.sha256(source.SerializeToString(deterministic=True)).hexdigest()


def opset_of(imports: Sequence[onnx.OperatorSetIdProto]) -> int | None:
    """The version of ONNX's own operators; None if only other domains are imported.

    Raises ``InvalidModel`` if there is none at all, ``UnsupportedModel`` if it is newer than the installed onnx.
    """
    if not imports:
        raise InvalidModel("the model does not say which ONNX opset it uses; add opset_import")
    version = next((entry.version for entry in imports if entry.domain in OWN_DOMAIN), None)
    newest = onnx.defs.onnx_opset_version()
    if version is not None and version < 1:
        raise InvalidModel(f"the model uses opset {version}; opsets are counted from 1, and the newest is {newest}")
    if version is not None and version > newest:
        raise UnsupportedModel(
            f"the model uses opset {version}; the newest known is {newest}: export it for that opset, or install a "
            "newer onnx"
        )
    return version


def dtype_of(code: int, place: str) -> DType:
    """The dtype of an ONNX element type. Raises ``InvalidModel`` or ``UnsupportedModel`` naming ``place``."""
    if code not in onnx.TensorProto.DataType.values() or code == onnx.TensorProto.UNDEFINED:
        raise InvalidModel(f"{place}: {code} is no ONNX element type")
    try:
        return dtypes.from_numpy(onnx.helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, UnsupportedDType) as error:
        name = onnx.TensorProto.DataType.Name(code)
        known = ", ".join(map(str, dtypes.ALL))
        raise UnsupportedModel(f"{place} has element type {name}, which is not supported; there is: {known}") from error


def array_of(tensor: onnx.TensorProto, place: str) -> Array:
    """The values of a constant. Raises ``InvalidModel`` or ``UnsupportedModel`` naming ``place``."""
    if any(extent < 0 for extent in tensor.dims):
        raise InvalidModel(f"{place} has the shape {list(tensor.dims)}; extents are not negative")
    check_size(tuple(tensor.dims), place)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise InvalidModel(f"{place} is in another file; give the model's path, or load it with onnx.load")
    dtype = dtype_of(tensor.data_type, place)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError, OSError, onnx.checker.ValidationError) as error:
        raise InvalidModel(f"{place} can't be read: {error}") from error
    return np.ascontiguousarray(array, dtype.numpy).reshape(array.shape)


def check_size(shape: tuple[int, ...], place: str) -> None:
    """Raises ``ResourceLimit`` naming ``place`` if a tensor of this shape is larger than any memory."""
    count = 1
    for extent in shape:
        count *= extent
    if count > MAX_ELEMENTS:
        raise ResourceLimit(f"{place} has the shape {list(shape)}: {count} elements, more than {MAX_ELEMENTS}")


def constant_of(node: onnx.NodeProto, place: str) -> Array:
    """What a ``Constant`` node holds. Raises ``InvalidModel`` or ``UnsupportedModel`` naming ``place``."""
    for attribute in node.attribute:
        match attribute.name:
            case "value":
                return array_of(attribute.t, place)
            case "value_float":
                return np.array(attribute.f, np.float32)
            case "value_int":
                return np.array(attribute.i, np.int64)
            case "value_floats":
                return np.array(attribute.floats, np.float32)
            case "value_ints":
                return np.array(attribute.ints, np.int64)
            case _:
                raise UnsupportedModel(f"{place}: {attribute.name} is not supported; give a dense tensor as `value`")
    raise InvalidModel(f"{place} holds no value")


def attribute_of(attribute: onnx.AttributeProto, place: str) -> Attribute:
    """The value of an attribute. Raises ``UnsupportedModel`` naming ``place`` for tensors, graphs and lists of text."""
    kinds = onnx.AttributeProto
    match attribute.type:
        case kinds.INT:
            return attribute.i
        case kinds.FLOAT:
            return attribute.f
        case kinds.STRING:
            return attribute.s.decode(errors="replace")
        case kinds.INTS:
            return tuple(attribute.ints)
        case kinds.FLOATS:
            return tuple(attribute.floats)
        case _:
            raise UnsupportedModel(f"{place}: attribute {attribute.name} is of a kind that is not supported")


_SCHEMA_TYPES = {
    onnx.AttributeProto.INT: onnx.defs.OpSchema.AttrType.INT,
    onnx.AttributeProto.FLOAT: onnx.defs.OpSchema.AttrType.FLOAT,
    onnx.AttributeProto.STRING: onnx.defs.OpSchema.AttrType.STRING,
    onnx.AttributeProto.TENSOR: onnx.defs.OpSchema.AttrType.TENSOR,
    onnx.AttributeProto.GRAPH: onnx.defs.OpSchema.AttrType.GRAPH,
    onnx.AttributeProto.SPARSE_TENSOR: onnx.defs.OpSchema.AttrType.SPARSE_TENSOR,
    onnx.AttributeProto.INTS: onnx.defs.OpSchema.AttrType.INTS,
    onnx.AttributeProto.FLOATS: onnx.defs.OpSchema.AttrType.FLOATS,
    onnx.AttributeProto.STRINGS: onnx.defs.OpSchema.AttrType.STRINGS,
}


def _schema(op_type: str, opset: int, place: str) -> onnx.defs.OpSchema:
    """ONNX's definition of an operator as of ``opset``. Raises ``InvalidModel`` or ``UnsupportedModel``."""
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError as error:
        raise InvalidModel(f"{place}: opset {opset} has no operator {op_type}; raise the opset of the model") from error
    if schema.deprecated:
        raise InvalidModel(f"{place}: opset {opset} has {op_type} no more; lower the opset of the model")
    if opset < FIRST_OPSET and schema.since_version != onnx.defs.get_schema(op_type, FIRST_OPSET, "").since_version:
        raise UnsupportedModel(
            f"{place}: {op_type} of opset {opset} is not supported, and that of {FIRST_OPSET} and newer is; convert "
            f"the model by onnx.version_converter.convert_version(model, {FIRST_OPSET})"
        )
    return schema


def check_node(node: onnx.NodeProto, opset: int, place: str) -> None:
    """Whether inputs and attributes are what ONNX's definition of the operator says. Raises ``InvalidModel``."""
    schema = _schema(node.op_type, opset, place)
    if not schema.min_input <= len(node.input) <= schema.max_input:
        wanted = f"{schema.min_input} to {schema.max_input}"
        raise InvalidModel(f"{place} has {len(node.input)} inputs; {node.op_type} takes {wanted}")
    for attribute in node.attribute:
        known = schema.attributes.get(attribute.name)
        if known is None:
            there = ", ".join(schema.attributes) or "none"
            raise InvalidModel(
                f"{place}: {node.op_type} of opset {opset} has no attribute {attribute.name} (there is: {there})"
            )
        if _SCHEMA_TYPES.get(attribute.type) != known.type:
            kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
            raise InvalidModel(f"{place}: attribute {attribute.name} can't be of the kind {kind}")
    given = {attribute.name for attribute in node.attribute}
    missing = [name for name, known in schema.attributes.items() if known.required and name not in given]
    if missing:
        raise InvalidModel(f"{place}: attribute {', '.join(missing)} is missing")

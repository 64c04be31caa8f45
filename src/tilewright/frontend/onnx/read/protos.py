"""Reading the parts of an ONNX file: the model, its tensors, attributes and element types, each with clear errors."""

import errno
import hashlib
import math
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BufferedReader
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import numpy_helper

from tilewright.base import dtypes
from tilewright.base.arrays import Bytes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InvalidModel, ResourceLimit, UnsupportedDType, UnsupportedModel
from tilewright.base.input_files import open_regular
from tilewright.base.memory import Budget, memory_guarded
from tilewright.base.names import readable
from tilewright.frontend.onnx.read import wire
from tilewright.frontend.onnx.read.narrow import NARROW, Narrow
from tilewright.graph import Array, Value
from tilewright.ops import Attribute
from tilewright.symbolic.expr import Const

FIRST_OPSET = 7
"""The first opset with NumPy's broadcasting. Of older ones, only unchanged operators are supported."""

MAX_FILE_BYTES = (1 << 31) - 1
"""Maximum bytes of a protobuf message."""

MAX_ELEMENTS = 1 << 34
"""Maximum elements of one tensor: more than fit in any supported machine."""


MAX_RANK = 32
"""Maximum dimensions of a tensor, each of which becomes a nested loop."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The source of a model's constants, and the limit of their bytes."""

    budget: Budget
    outside: Callable[[onnx.TensorProto, str], Bytes] | None = None
    """Reads the checked bytes of an external tensor; None: there are no other files."""


@contextmanager
def opened_model(path: Path) -> Generator[BufferedReader]:
    """A context manager: a model's file, checked by its size and its outermost fields.

    Raises ``InvalidModel`` or ``ResourceLimit``, before most of it is read, and for what fails within the block.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                raise InvalidModel(f"{path} is empty")
            if size > MAX_FILE_BYTES:
                raise ResourceLimit(
                    f"{path} has {size} bytes, more than {MAX_FILE_BYTES}; store the weights as external data"
                )
            wire.check_model(wire.Bytes(file.fileno()))
            yield file
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.EISDIR:
            raise InvalidModel(f"{path} is a directory; give the model's file in it") from error
        if isinstance(error, OSError) and error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise InvalidModel(f"there is no model file {path}") from error
        raise InvalidModel(f"{path} can't be read as ONNX{_of_form(path)}: {error}") from error


_FORMS = {
    b"PK": ", as it is an archive (tilewright.load takes artifacts; export what PyTorch saved by torch.onnx.export)",
    b"\x89HDF": ", as it is of Keras (export it by tf2onnx)",
    b"version https://git-lfs": ", as it only says where Git LFS has it (git lfs pull)",
    b"<?xml": ", as it is XML: OpenVINO writes such models; export the network to ONNX",
    b"<": ", as it is a page, not a model: look at how it was downloaded",
    b"\x80": ", as Python pickled it (export what PyTorch saved by torch.onnx.export)",
    b"GGUF": ", as it has weights only; export the network to ONNX",
    b"{": ", as it is JSON; export the network to ONNX",
}
"""A guess of the format of a wrong file, by its first bytes."""


def _of_form(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return _form_of(file.read(32))
    except OSError:
        return ""


def _form_of(begin: bytes) -> str:
    if begin[4:8] == b"TFL3":
        return ", as it is of TensorFlow Lite (convert it by tf2onnx --tflite)"
    return next((told for bytes_, told in _FORMS.items() if begin.startswith(bytes_)), "")


def read_model(path: Path) -> onnx.ModelProto:
    """The model in a file, without its external data, but with all weights in the file (``weights_in_file``).

    Raises ``InvalidModel`` or ``ResourceLimit``.
    """
    with opened_model(path) as file, memory_guarded(f"the model {path} was read"):
        # When memory is exhausted, protobuf raises a signal: its copy must fit besides the bytes.
        Budget().take(2 * os.fstat(file.fileno()).st_size, f"reading {path}")
        return parsed(file.read(), os.fspath(path))


def parse_model(content: bytes) -> onnx.ModelProto:
    """The model that is in a file of these bytes. Raises ``InvalidModel`` or ``ResourceLimit``."""
    whose = "the model in memory"
    if not content:
        raise InvalidModel(f"{whose} is empty")
    if len(content) > MAX_FILE_BYTES:
        raise ResourceLimit(f"{whose} has {len(content)} bytes, more than {MAX_FILE_BYTES}; give the path of its file")
    with memory_guarded(f"{whose} was read"):
        try:
            wire.check_model(wire.InMemory(content))
        except ValueError as error:
            raise InvalidModel(f"{whose} can't be read as ONNX{_form_of(content)}: {error}") from error
        Budget().take(len(content), f"reading {whose}")
        return parsed(content, whose)


def parsed(content: bytes, whose: str) -> onnx.ModelProto:
    """The model of these bytes. Raises ``InvalidModel``, which says ``whose`` they are."""
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError as error:
        raise InvalidModel(f"{whose} can't be read as ONNX: {error}") from error
    if not model.graph.node and not model.graph.output:
        raise InvalidModel(f"{whose} is no ONNX model: it holds no graph")
    return model


def sha256(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> str | None:
    """The SHA-256 of a model's file without its external data, in hexadecimal digits; None if it can't be serialized.

    Raises as ``opened_model`` does.
    """
    if isinstance(source, str | os.PathLike):
        return sha256_of_file(Path(source))[0]
    content = source if isinstance(source, bytes) else serialized(source)
    return None if content is None else hashlib.sha256(content).hexdigest()


def sha256_of_file(path: Path) -> tuple[str, os.stat_result]:
    """The SHA-256 of a model's file, in hexadecimal digits, and its attributes before reading."""
    with opened_model(path) as file:
        facts = os.fstat(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest(), facts


def serialized(model: onnx.ModelProto) -> bytes | None:
    """The bytes of a model's file, equal for equal models; None if they exceed protobuf's limit."""
    if model.ByteSize() > MAX_FILE_BYTES:
        return None
    try:
        return model.SerializeToString(deterministic=True)
    except (EncodeError, ValueError):  # the exception has no detail: too large, or out of memory
        return None


def opsets_of(imports: Sequence[onnx.OperatorSetIdProto], whose: str = "the model") -> dict[str, int]:
    """The versions of operators by domain; ``""`` is ONNX's own, which may be missing if others are there.

    Raises ``InvalidModel`` if there is none at all, ``UnsupportedModel`` if ONNX's is newer than the installed onnx.
    """
    if not imports:
        raise InvalidModel(f"{whose} does not say which ONNX opset it uses; add opset_import")
    versions = {own_domain(entry.domain): entry.version for entry in imports}
    version, newest = versions.get("", 1), onnx.defs.onnx_opset_version()
    if version < 1:
        raise InvalidModel(f"{whose} uses opset {version}; opsets are counted from 1, and the newest is {newest}")
    if version > newest:
        raise UnsupportedModel(
            f"{whose} uses opset {version}; the newest known is {newest}: export it for that opset, or install a newer "
            "onnx"
        )
    return versions


def own_domain(domain: str) -> str:
    """``domain``; of the two names of ONNX's own, the empty one."""
    return "" if domain == "ai.onnx" else domain


def dtype_of(code: int, place: str) -> DType:
    """The dtype of an ONNX element type. Raises ``InvalidModel`` or ``UnsupportedModel`` naming ``place``."""
    if code not in onnx.TensorProto.DataType.values() or code == onnx.TensorProto.UNDEFINED:
        raise InvalidModel(f"{place}: {code} is no ONNX element type")
    try:
        return dtypes.from_numpy(onnx.helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, UnsupportedDType) as error:
        name = onnx.TensorProto.DataType.Name(code)
        raise UnsupportedModel(
            f"{place} has element type {name}, which is not supported; {_instead_of(code)}"
        ) from error


def _instead_of(code: int) -> str:
    """What helps where a model has an element type that there is not."""
    if code == onnx.TensorProto.STRING:
        return "make numbers of texts outside of the model, as a tokenizer does, and cut what reads texts off"
    return f"convert to another one by a Cast node: there is {', '.join(map(str, dtypes.ALL))}"


def stored_dtype_of(code: int, place: str) -> DType:
    """The same, of an input or output of a model: also types that native code has as codes (``narrow``)."""
    narrow = NARROW.get(code)
    return dtype_of(code, place) if narrow is None else narrow.dtype


def type_of(value: Value | None) -> onnx.TypeProto:
    """ONNX's description of a value's type; an empty one for an omitted input."""
    kind = onnx.TypeProto()
    if value is not None:
        kind.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(value.dtype.numpy)
        kind.tensor_type.shape.SetInParent()
        for extent in value.shape:
            dim = kind.tensor_type.shape.dim.add()
            if isinstance(extent, Const):
                dim.dim_value = int(extent.value)
    return kind


def array_of(tensor: onnx.TensorProto, place: str, storage: Storage) -> Array:
    """The values of a constant. Raises ``InvalidModel``, ``UnsupportedModel`` or ``ResourceLimit`` naming ``place``."""
    shape = tuple(tensor.dims)
    if any(extent < 0 for extent in shape):
        raise InvalidModel(f"{place} has the shape {list(shape)}; extents are not negative")
    check_size(shape, place)
    is_outside = tensor.data_location == onnx.TensorProto.EXTERNAL
    if is_outside and storage.outside is None:
        raise InvalidModel(f"{place} is in another file; give the model's path, or load it with onnx.load")
    narrow = NARROW.get(tensor.data_type)
    dtype = dtype_of(tensor.data_type, place) if narrow is None else narrow.held
    if is_outside and storage.outside is not None:
        content = storage.outside(tensor, place)
        if narrow is not None and narrow.bits < 8:
            storage.budget.take(math.prod(shape), place)
            return narrow.unpacked(content.view(np.uint8), math.prod(shape)).reshape(shape)
        return content.view(dtype.numpy).reshape(shape)
    try:
        array = numpy_helper.to_array(tensor)  # checked against the size of the data in the file
    except (ValueError, TypeError, OverflowError, OSError, onnx.checker.ValidationError) as error:
        raise InvalidModel(f"{place} can't be read: {error}") from error
    if narrow is not None:
        array = narrow.held_of(array)
    storage.budget.take(array.nbytes, place)
    return np.ascontiguousarray(array, dtype.numpy).reshape(array.shape)


def initializers(graph: onnx.GraphProto, storage: Storage) -> Iterator[tuple[str, Array, str]]:
    """The constants of a graph or branch: name, elements, and description for errors. Sparse ones become dense."""
    for tensor in graph.initializer:
        place = f"constant {readable(tensor.name)}"
        yield tensor.name, array_of(tensor, place, storage), place
    for sparse in graph.sparse_initializer:
        place = f"constant {readable(sparse.values.name)}"
        yield sparse.values.name, dense_of(sparse, place, storage), place


def dense_of(sparse: onnx.SparseTensorProto, place: str, storage: Storage) -> Array:
    """The elements of a sparse constant. Raises ``InvalidModel`` or ``ResourceLimit`` naming ``place``."""
    shape = tuple(sparse.dims)
    if any(extent < 0 for extent in shape):
        raise InvalidModel(f"{place} has the shape {list(shape)}; extents are not negative")
    check_size(shape, place)
    values = array_of(sparse.values, f"{place}: its values", storage).reshape(-1)
    indices = array_of(sparse.indices, f"{place}: its indices", storage)
    if indices.dtype != np.int64 or indices.shape not in ((values.size,), (values.size, len(shape))):
        raise InvalidModel(
            f"{place}: its indices are {indices.dtype}{list(indices.shape)}; {values.size} values of a tensor with "
            f"{len(shape)} dimensions need int64[{values.size}] or int64[{values.size}, {len(shape)}]"
        )
    bounds = shape if indices.ndim == 2 else (math.prod(shape),)
    columns = indices.astype(np.int64).reshape(values.size, len(bounds))
    if values.size and ((columns < 0) | (columns >= np.array(bounds))).any():
        raise InvalidModel(f"{place}: an index is outside of the shape {list(shape)}")
    storage.budget.take(math.prod(shape) * values.itemsize, f"{place}, which is sparse, with all of its zeros")
    dense = np.zeros(shape, values.dtype)
    target = dense if indices.ndim == 2 else dense.reshape(-1)
    target[tuple(columns.T)] = values
    return dense


def check_size(shape: tuple[int, ...], place: str) -> None:
    """Raises ``ResourceLimit`` naming ``place`` if a tensor of this shape is too large, or has too many dimensions."""
    if len(shape) > MAX_RANK:
        raise ResourceLimit(f"{place} has {len(shape)} dimensions, more than {MAX_RANK}; reshape it")
    count = math.prod(shape)
    if count > MAX_ELEMENTS:
        raise ResourceLimit(f"{place} has the shape {list(shape)}: {count} elements, more than {MAX_ELEMENTS}")


def constant_of(node: onnx.NodeProto, place: str, storage: Storage) -> Array:
    """The value of a ``Constant`` node. Raises as ``array_of`` does."""
    for attribute in node.attribute:
        match attribute.name:
            case "value":
                return array_of(attribute.t, place, storage)
            case "sparse_value":
                return dense_of(attribute.sparse_tensor, place, storage)
            case "value_float":
                return np.array(attribute.f, np.float32)
            case "value_int":
                return np.array(attribute.i, np.int64)
            case "value_floats":
                return np.array(attribute.floats, np.float32)
            case "value_ints":
                return np.array(attribute.ints, np.int64)
            case _:
                raise UnsupportedModel(
                    f"{place}: {attribute.name} is not supported (text has no native code); leave it out"
                )
    raise InvalidModel(f"{place} holds no value")


def attribute_of(attribute: onnx.AttributeProto, place: str, storage: Storage) -> Attribute | Array:
    """The value of an attribute. Raises ``UnsupportedModel`` naming ``place`` for graphs, and as ``array_of`` does."""
    kinds = onnx.AttributeProto
    match attribute.type:
        case kinds.INT:
            return attribute.i
        case kinds.FLOAT:
            return attribute.f
        case kinds.STRING:
            return attribute.s.decode(errors="replace")
        case kinds.TENSOR:
            return array_of(attribute.t, f"{place}: attribute {attribute.name}", storage)
        case kinds.INTS:
            return tuple(attribute.ints)
        case kinds.FLOATS:
            return tuple(attribute.floats)
        case kinds.STRINGS:
            return tuple(text.decode(errors="replace") for text in attribute.strings)
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
    onnx.AttributeProto.TYPE_PROTO: onnx.defs.OpSchema.AttrType.TYPE_PROTO,
}


def is_defined(node: onnx.NodeProto, opset: int) -> bool:
    """Whether ONNX defines a node's operator as of ``opset``."""
    return onnx.defs.has(node.op_type, opset, own_domain(node.domain))


def schema_of(node: onnx.NodeProto, opset: int, place: str) -> onnx.defs.OpSchema | None:
    """ONNX's definition of a node's operator as of ``opset``; None if it has none in any version.

    Raises ``InvalidModel`` for an operator missing in ``opset``, ``UnsupportedModel`` for one that is too old.
    """
    op_type, domain = node.op_type, own_domain(node.domain)
    if not onnx.defs.has(op_type, domain):
        return None
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError as error:
        raise InvalidModel(f"{place}: opset {opset} has no operator {op_type}; raise the opset of the model") from error
    if domain:
        return schema
    if schema.deprecated:
        raise InvalidModel(f"{place}: opset {opset} has {op_type} no more; lower the opset of the model")
    if opset < FIRST_OPSET and schema.since_version != onnx.defs.get_schema(op_type, FIRST_OPSET, "").since_version:
        raise UnsupportedModel(
            f"{place}: {op_type} of opset {opset} is not supported, and that of {FIRST_OPSET} and newer is; convert "
            f"the model by onnx.version_converter.convert_version(model, {FIRST_OPSET})"
        )
    return schema


def check_node(node: onnx.NodeProto, schema: onnx.defs.OpSchema, opset: int, place: str) -> None:
    """Check inputs, outputs and attributes against ONNX's definition of the operator. Raises ``InvalidModel``."""
    named = max((position for position, name in enumerate(node.output, 1) if name), default=0)
    if len(node.output) < schema.min_output or named > schema.max_output:
        wanted = f"{schema.min_output} to {schema.max_output}"
        raise InvalidModel(f"{place} has {len(node.output)} outputs; {node.op_type} makes {wanted}")
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
        kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
        if _SCHEMA_TYPES.get(attribute.type) != known.type:
            raise InvalidModel(f"{place}: attribute {attribute.name} can't be of the kind {kind}")
    given = {attribute.name for attribute in node.attribute}
    missing = [name for name, known in schema.attributes.items() if known.required and name not in given]
    if missing:
        raise InvalidModel(f"{place}: attribute {', '.join(missing)} is missing")


def check_types(
    node: onnx.NodeProto,
    schema: onnx.defs.OpSchema,
    inputs: Sequence[Value | None],
    narrow_of: Callable[[Value], Narrow | None],
    place: str,
) -> None:
    """Check the element types of inputs against ONNX's definition: equal types where required, and known kinds.

    The definition of the newest opset counts as that of the model's does, as models have types that their opset lacks.
    Integers and floats of other sizes than those listed are accepted, too. ``narrow_of``: the types of values that are
    codes. Raises ``InvalidModel``.
    """
    newest = onnx.defs.get_schema(node.op_type, schema.domain)
    seen: dict[str, tuple[str, str]] = {}
    for position, (name, value) in enumerate(zip(node.input, inputs, strict=True)):
        if value is None:
            continue
        formal = newest.inputs[min(position, len(newest.inputs) - 1)]
        narrow = narrow_of(value)
        own, known = (str(value.dtype), type_name(value.dtype)) if narrow is None else (narrow.name, narrow.type_name)
        told = f"{place}: input `{readable(name)}` is {own}"
        taken = (*formal.types, *schema.inputs[min(position, len(schema.inputs) - 1)].types)
        if _kind_of(known) not in map(_kind_of, taken):
            raise InvalidModel(
                f"{told}, which {node.op_type} does not take as {formal.name}; convert it by a Cast node"
            )
        if formal.is_homogeneous:
            other, type_of_other = seen.setdefault(formal.type_str, (name, own))
            if type_of_other != own:
                raise InvalidModel(
                    f"{told}, and input `{readable(other)}` is {type_of_other}; {node.op_type} takes both of one type: "
                    "convert one by a Cast node"
                )


@cache
def _kind_of(name: str) -> str:
    """The kind of ONNX's type name: integers, floats from 16 bits on, or itself."""
    if "int" in name:
        return "integer"
    is_wide = "double" in name or ("float" in name and not name.startswith(("tensor(float4", "tensor(float8")))
    return "float" if is_wide else name


@cache
def type_name(dtype: DType) -> str:
    """What ONNX calls tensors of ``dtype``."""
    code = onnx.helper.np_dtype_to_tensor_dtype(dtype.numpy)
    return f"tensor({onnx.TensorProto.DataType.Name(code).lower()})"

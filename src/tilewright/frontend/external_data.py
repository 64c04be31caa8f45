"""Tensors of a model whose bytes are in other files, read so that nothing but the model's own folder is ever opened.

ONNX's own loader was repaired four times for paths, symbolic links, hard links and attributes that a model may set
(CVE-2024-27318, CVE-2026-34447, CVE-2026-34446, CVE-2026-34445). Here a path is walked folder by folder below the
model's, following no links; only a regular file with one name is read; offset and length are checked against the file
and the tensor before a byte is read; keys that are not known are ignored. This holds for every tensor of the model:
constants, sparse ones, those in attributes, in branches and in functions.
"""

import errno
import hashlib
import logging
import math
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from tilewright.base import files
from tilewright.base.errors import InvalidModel, UntrustedData
from tilewright.base.names import readable
from tilewright.frontend.onnx_proto import check_size, read_model
from tilewright.frontend.order import all_nodes, subgraphs

_LOCATION = b"location"
_KNOWN_KEYS = frozenset({"location", "offset", "length", "checksum"})
_BITS: dict[int, int] = {
    **dict.fromkeys((onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.FLOAT4E2M1), 4),
    **dict.fromkeys((onnx.TensorProto.INT2, onnx.TensorProto.UINT2), 2),
}
"""Of element types that share bytes."""


def read_external_data(model: onnx.ModelProto, folder: Path) -> None:
    """Put the bytes of external tensors into ``model``.

    Raises ``UntrustedData`` for a location outside of ``folder``, a link, or what is no regular file, ``InvalidModel``
    for one that is missing or does not fit its tensor, ``ResourceLimit`` for a tensor that is too large.
    """
    for tensor in all_tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _read(tensor, folder, f"tensor {readable(tensor.name)}")


def locations(path: Path) -> list[str]:
    """The files, as the model in ``path`` calls them, that have bytes of its tensors. Raises as reading them does.

    The key of such an entry is in the file as it is: a model without it need not be parsed to know that it has none.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if not any(_LOCATION in content[start:end] for start, end in _without_weights(content)):
            return []
    tensors = [t for t in all_tensors(read_model(path)) if t.data_location == onnx.TensorProto.EXTERNAL]
    return list(dict.fromkeys(_source(tensor, f"tensor {readable(tensor.name)}").location for tensor in tensors))


def _without_weights(content: mmap.mmap) -> Iterator[tuple[int, int]]:
    """All parts of a model's file but ``graph.initializer.raw_data``. Raises ``ValueError`` if it is no such file.

    Source: the encoding of Protocol Buffers; a field of another wire type than these can't be large.
    """
    graph, initializer, raw_data = 7, 5, 9
    known = 0
    for tensor in _fields(content, _fields(content, [(0, len(content))], graph), initializer):
        for start, end in _fields(content, [tensor], raw_data):
            yield known, start
            known = end
    yield known, len(content)


def _fields(content: mmap.mmap, messages: Iterable[tuple[int, int]], wanted: int) -> Iterator[tuple[int, int]]:
    """Where the fields with the number ``wanted`` of these messages are; they are messages or bytes themselves."""
    for start, end in messages:
        at = start
        while at < end:
            key, at = _varint(content, at)
            match key & 7:
                case 0:
                    _, at = _varint(content, at)
                case 1:
                    at += 8
                case 2:
                    length, at = _varint(content, at)
                    if key >> 3 == wanted:
                        yield at, at + length
                    at += length
                case 5:
                    at += 4
                case kind:
                    raise ValueError(f"wire type {kind} at byte {at}")
        if at != end:
            raise ValueError(f"a field reaches beyond byte {end}")


def _varint(content: mmap.mmap, at: int) -> tuple[int, int]:
    """The number that starts at byte ``at``, and where the next thing starts."""
    value = shift = 0
    while at < len(content) and shift < 64:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError(f"no number ends at byte {at}")


def sha256(folder: Path, location: str) -> tuple[str, os.stat_result]:
    """The SHA-256 of a file of external data, in hexadecimal digits, and what the system said of it before it was read.

    Raises as reading it does.
    """
    with os.fdopen(_open_beneath(folder, location, "the model"), "rb") as file:
        facts = os.fstat(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest(), facts


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor in a model."""
    yield from _tensors_of_graph(model.graph)
    yield from _tensors_of_nodes(model.graph.node)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)
        yield from _tensors_of_attributes(function.attribute_proto)


def _tensors_of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)


def _tensors_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in all_nodes(nodes):
        yield from _tensors_of_attributes(node.attribute)
        for graph in subgraphs(node):
            yield from _tensors_of_graph(graph)


def _tensors_of_attributes(attributes: Iterable[onnx.AttributeProto]) -> Iterator[onnx.TensorProto]:
    for attribute in attributes:
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)


@dataclass(frozen=True, slots=True)
class _Source:
    """What a tensor says about where its bytes are. ``length``: None for all that the tensor needs."""

    location: str
    offset: int
    length: int | None


def _read(tensor: onnx.TensorProto, folder: Path, place: str) -> None:
    source = _source(tensor, place)
    wanted = _byte_count(tensor, place)
    if source.length not in (None, wanted):
        raise InvalidModel(
            f"{place}: its external data has length {source.length}, and {list(tensor.dims)} elements take {wanted} "
            "bytes; write the model anew"
        )
    descriptor = _open_beneath(folder, source.location, place)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if source.offset + wanted > size:
            raise InvalidModel(
                f"{place}: bytes {source.offset} to {source.offset + wanted} are wanted of "
                f"{readable(source.location)}, which has {size}; copy the whole file beside the model"
            )
        file.seek(source.offset)
        content = file.read(wanted)
    if len(content) != wanted:
        raise InvalidModel(f"{place}: {readable(source.location)} was cut while it was read; load the model again")
    tensor.raw_data = content
    tensor.data_location = onnx.TensorProto.DEFAULT
    del tensor.external_data[:]


def _source(tensor: onnx.TensorProto, place: str) -> _Source:
    given = {entry.key: entry.value for entry in tensor.external_data}
    for key in given.keys() - _KNOWN_KEYS:
        log = logging.getLogger("tilewright")
        log.warning("%s: its external data has the unknown key %s, which is ignored", place, readable(key))
    if "location" not in given:
        raise InvalidModel(f"{place}: its external data has no location; write the model anew")
    length = _number(given, "length", place) if "length" in given else None
    return _Source(given["location"], _number(given, "offset", place), length)


def _number(given: dict[str, str], key: str, place: str) -> int:
    text = given.get(key, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidModel(f"{place}: the {key} of its external data is {readable(text)!r}; give a number of bytes")
    return int(text)


def _byte_count(tensor: onnx.TensorProto, place: str) -> int:
    if any(extent < 0 for extent in tensor.dims):
        raise InvalidModel(f"{place} has the shape {list(tensor.dims)}; extents are not negative")
    check_size(tuple(tensor.dims), place)
    if tensor.data_type == onnx.TensorProto.STRING or tensor.data_type not in onnx.TensorProto.DataType.values()[1:]:
        raise InvalidModel(f"{place}: tensors of element type {tensor.data_type} can't be external; store it inside")
    bits = _BITS.get(tensor.data_type, 0) or 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return -(-math.prod(tensor.dims) * bits // 8)


def _open_beneath(folder: Path, location: str, place: str) -> int:
    """A descriptor of a regular file below ``folder``."""
    shown = readable(location)
    parts = [part for part in location.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in location or location.startswith("/"):
        raise UntrustedData(
            f"{place}: its external data is at {shown!r}; only files below the model's folder are read: copy it there"
        )
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        # Without waiting: opening a pipe would block until somebody writes to it.
        descriptor = os.open(parts[-1], flags | os.O_NONBLOCK, dir_fd=at)
    except OSError as error:
        raise _refusal(error, f"{place}: its external data {shown}") from error
    finally:
        os.close(at)
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(descriptor)
        what = "no regular file" if facts.st_nlink == 1 or not stat.S_ISREG(facts.st_mode) else "a hard link"
        raise UntrustedData(f"{place}: its external data {shown} is {what}; copy the bytes into a file of their own")
    return descriptor


def _refusal(error: OSError, what: str) -> InvalidModel | UntrustedData:
    """A link is somebody's intention; anything else is a mishap."""
    if isinstance(error, FileNotFoundError):
        return InvalidModel(f"{what} is missing; copy it beside the model")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return UntrustedData(f"{what} is a symbolic link, or behind one; copy the file itself beside the model")
    return InvalidModel(f"{what} can't be read: {files.reason(error)}")

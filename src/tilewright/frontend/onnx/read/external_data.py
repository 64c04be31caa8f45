"""Reads external tensor data, only from files in the model's own folder.

ONNX's own loader had four vulnerabilities by paths, symbolic links, hard links and attributes (CVE-2024-27318,
CVE-2026-34447, CVE-2026-34446, CVE-2026-34445). Here a path is walked folder by folder below the model's, following no
links; only a regular file with one name is read; offset and length are checked against the file and the tensor before a
byte is read; keys that are not known are ignored. This holds for every tensor of the model: constants, sparse ones,
those in attributes, in branches and in functions.
"""

import errno
import hashlib
import logging
import math
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import onnx

from tilewright.base import files
from tilewright.base.arrays import Bytes, new_bytes
from tilewright.base.errors import InvalidModel, UntrustedData
from tilewright.base.input_files import open_regular, read_at
from tilewright.base.memory import Budget
from tilewright.base.names import readable
from tilewright.frontend.onnx.read import wire
from tilewright.frontend.onnx.read.narrow import NARROW
from tilewright.frontend.onnx.read.order import all_nodes, subgraphs
from tilewright.frontend.onnx.read.protos import check_size, read_model

_KNOWN_KEYS = frozenset({"location", "offset", "length", "checksum"})


class Outside(Protocol):
    """Where the bytes of tensors are that are not in the model."""

    def check(self, model: onnx.ModelProto, budget: Budget) -> None:
        """Check all references of ``model``'s tensors, and count their bytes, before any is read. Raises
        ``BadInput``."""
        ...

    def read(self, tensor: onnx.TensorProto, place: str) -> Bytes:
        """The bytes of a checked tensor; read-only. Raises ``BadInput``."""
        ...


class ExternalData:
    """The files in ``folder`` with bytes of a model's tensors.

    Ranges that several tensors name are read once and shared. They are read into separate memory: neither mapped
    (truncation of a mapped file ends the process) nor copied into the model (protobuf ends the process when memory is
    exhausted).
    """

    def __init__(self, folder: Path, own: "OwnFile | None" = None) -> None:
        """``own``: the model's file, if its weights are read like external data."""
        self._folder = folder
        self._own = own
        self._read: dict[_Range, Bytes] = {}

    def check(self, model: onnx.ModelProto, budget: Budget) -> None:
        """Check all references of ``model``'s tensors, and count their bytes, before any is read.

        Raises ``UntrustedData`` for a location outside of the folder, a link, or a file that is not regular,
        ``InvalidModel`` for one that is missing or does not fit its tensor, ``ResourceLimit`` for a tensor that is too
        large, and for more bytes than ``budget`` allows.
        """
        counted = set[_Range]()
        for tensor in all_tensors(model):
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                place = f"tensor {readable(tensor.name)}"
                _warn_of_unknown_keys(tensor, place)
                wanted = _range(tensor, place)
                if wanted not in counted:
                    counted.add(wanted)
                    with self._opened(wanted, place):
                        budget.take(wanted.size, place)

    def read(self, tensor: onnx.TensorProto, place: str) -> Bytes:
        """The bytes of a checked tensor; read-only. Raises as ``check``."""
        wanted = _range(tensor, place)
        if wanted not in self._read:
            content = new_bytes(wanted.size, place)
            with self._opened(wanted, place) as descriptor:
                count = read_at(descriptor, wanted.offset, content.data)
            if count != wanted.size:
                raise InvalidModel(f"{place}: {self._name(wanted)} was cut while it was read; load the model again")
            content.flags.writeable = False
            self._read[wanted] = content
        return self._read[wanted]

    def forget(self) -> None:
        """Keep none of the bytes that were read."""
        self._read.clear()

    def open_bytes(self, tensor: onnx.TensorProto, place: str) -> tuple[BinaryIO, int]:
        """The file with the bytes of ``tensor``, positioned at the first, and their number.

        For copying without keeping them in memory. Raises as ``check``.
        """
        wanted = _range(tensor, place)
        with self._opened(wanted, place) as descriptor:
            os.lseek(descriptor, wanted.offset, os.SEEK_SET)
            return os.fdopen(os.dup(descriptor), "rb"), wanted.size

    def _own_file(self, wanted: "_Range") -> "OwnFile | None":
        """The model's own file, if the bytes are there."""
        return self._own if self._own is not None and wanted.location == self._own.location else None

    def _name(self, wanted: "_Range") -> str:
        """The file's name in errors."""
        own = self._own_file(wanted)
        return readable(wanted.location if own is None else own.name)

    @contextmanager
    def _opened(self, wanted: "_Range", place: str) -> Generator[int]:
        """A descriptor of the file, checked to contain all bytes. Errors refuse the tensor."""
        own = self._own_file(wanted)
        beneath = _opened_beneath(self._folder, wanted.location, place) if own is None else nullcontext(own.descriptor)
        with beneath as descriptor:
            size, end = os.fstat(descriptor).st_size, wanted.offset + wanted.size
            if end > size:
                raise InvalidModel(
                    f"{place}: bytes {wanted.offset} to {end} are wanted of {self._name(wanted)}, which has "
                    f"{size}; copy the whole file beside the model"
                )
            yield descriptor


@dataclass(frozen=True, slots=True)
class OwnFile:
    """The model's own file, open, under a ``location`` that no model can name."""

    location: str
    name: str
    descriptor: int


def locations(path: Path) -> list[str]:
    """The files with tensor bytes, by their names in the model in ``path``.

    Raises ``ValueError`` if it is not a model, and as reading it does.
    """
    with open_regular(path) as file:
        if not wire.may_name_locations(wire.Bytes(file.fileno())):
            return []
    tensors = [t for t in all_tensors(read_model(path)) if t.data_location == onnx.TensorProto.EXTERNAL]
    return list(dict.fromkeys(_source(tensor, f"tensor {readable(tensor.name)}").location for tensor in tensors))


def sha256(folder: Path, location: str) -> tuple[str, os.stat_result]:
    """The SHA-256 of a file of external data, in hexadecimal digits, and its attributes before reading.

    Raises as reading it does.
    """
    with _opened_beneath(folder, location, "the model") as descriptor:
        facts = os.fstat(descriptor)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
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
    """A tensor's reference to its bytes. ``length``: None for as many as the tensor needs."""

    location: str
    offset: int
    length: int | None


@dataclass(frozen=True, slots=True)
class _Range:
    """Bytes of a file. Equal ranges are read once."""

    location: str
    offset: int
    size: int


def _range(tensor: onnx.TensorProto, place: str) -> _Range:
    """The range of the bytes of ``tensor``, by its number of elements. Raises ``InvalidModel`` or ``ResourceLimit``."""
    source = _source(tensor, place)
    wanted = byte_count(tensor, place)
    if source.length not in (None, wanted):
        raise InvalidModel(
            f"{place}: its external data has length {source.length}, and {list(tensor.dims)} elements take {wanted} "
            "bytes; write the model anew"
        )
    return _Range(source.location, source.offset, wanted)


def _warn_of_unknown_keys(tensor: onnx.TensorProto, place: str) -> None:
    for key in dict.fromkeys(entry.key for entry in tensor.external_data if entry.key not in _KNOWN_KEYS):
        log = logging.getLogger("tilewright")
        log.warning("%s: its external data has the unknown key %s, which is ignored", place, readable(key))


def _source(tensor: onnx.TensorProto, place: str) -> _Source:
    given = {entry.key: entry.value for entry in tensor.external_data}
    if "location" not in given:
        raise InvalidModel(f"{place}: its external data has no location; write the model anew")
    length = _number(given, "length", place) if "length" in given else None
    return _Source(given["location"], _number(given, "offset", place), length)


def location_of(tensor: onnx.TensorProto, place: str) -> str:
    """Where the model says that the bytes of an external tensor are. Raises ``InvalidModel``."""
    return _source(tensor, place).location


def _number(given: dict[str, str], key: str, place: str) -> int:
    text = given.get(key, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidModel(f"{place}: the {key} of its external data is {readable(text)!r}; give a number of bytes")
    return int(text)


def byte_count(tensor: onnx.TensorProto, place: str) -> int:
    """The number of bytes of the elements of ``tensor``. Raises ``InvalidModel`` or ``ResourceLimit``."""
    if any(extent < 0 for extent in tensor.dims):
        raise InvalidModel(f"{place} has the shape {list(tensor.dims)}; extents are not negative")
    check_size(tuple(tensor.dims), place)
    if tensor.data_type == onnx.TensorProto.STRING or tensor.data_type not in onnx.TensorProto.DataType.values()[1:]:
        raise InvalidModel(f"{place}: tensors of element type {tensor.data_type} can't be external; store it inside")
    narrow = NARROW.get(tensor.data_type)
    bits = 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize if narrow is None else narrow.bits
    return -(-math.prod(tensor.dims) * bits // 8)


@contextmanager
def _opened_beneath(folder: Path, location: str, place: str) -> Generator[int]:
    """A descriptor of a regular file below ``folder``, during the block. Errors refuse the tensor."""
    shown = readable(location)
    parts = [part for part in location.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in location or location.startswith("/"):
        raise UntrustedData(
            f"{place}: its external data is at {shown!r}; only files below the model's folder are read: copy it there"
        )
    with ExitStack() as opened:
        try:
            descriptor = _descend(folder, parts, opened)
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
                what = "a hard link" if stat.S_ISREG(facts.st_mode) else "no regular file"
                raise UntrustedData(
                    f"{place}: its external data {shown} is {what}; copy the bytes into a file of their own"
                )
            yield descriptor
        except OSError as error:
            raise _refusal(error, f"{place}: its external data {shown}") from error


def _descend(folder: Path, parts: Sequence[str], opened: ExitStack) -> int:
    """A descriptor of the last of ``parts``, without following links. ``opened`` closes it and those of its parents."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    opened.callback(os.close, at)
    for part in parts[:-1]:
        at = os.open(part, flags | os.O_DIRECTORY, dir_fd=at)
        opened.callback(os.close, at)
    # Non-blocking: opening a pipe would wait for a writer.
    at = os.open(parts[-1], flags | os.O_NONBLOCK, dir_fd=at)
    opened.callback(os.close, at)
    return at


def _refusal(error: OSError, what: str) -> InvalidModel | UntrustedData:
    """A link is refused as untrusted; other errors as invalid."""
    if isinstance(error, FileNotFoundError):
        return InvalidModel(f"{what} is missing; copy it beside the model")
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return UntrustedData(f"{what} is a symbolic link, or behind one; copy the file itself beside the model")
    return InvalidModel(f"{what} can't be read: {files.reason(error)}")

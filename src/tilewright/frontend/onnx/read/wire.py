"""Checks the Protocol Buffers encoding of a model's file, and finds the weights in it, without parsing all of it.

Parsing takes many times the file's size in memory, and hashing reads all of it. So the outer structure is checked
first: the lengths of the fields must add up to the file's size, and one field must be the graph.

Source: https://protobuf.dev/programming-guides/encoding
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

_LOCATION = b"location"
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_WINDOW = 1 << 16
_MOST_FIELDS = 1 << 22
"""Maximum fields of one message: more than in any model; each takes a step here."""


class Bytes:
    """Random access to a file's bytes, read on demand. (A mapped file that is truncated ends the process.)"""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._start = 0
        self._window = b""
        self.size = os.fstat(descriptor).st_size

    def byte(self, at: int) -> int:
        """The byte at ``at``. Raises ``ValueError`` beyond the end."""
        if not 0 <= at - self._start < len(self._window):
            self._start, self._window = at, os.pread(self._descriptor, _WINDOW, at)
            if not self._window:
                raise ValueError(f"there is no byte {at}")
        return self._window[at - self._start]

    def part(self, start: int, end: int) -> bytes:
        """The bytes of this part; fewer beyond the end."""
        return os.pread(self._descriptor, end - start, start)

    def contains(self, word: bytes, start: int, end: int) -> bool:
        """Whether ``word`` is in this part."""
        before = b""
        while start < end:
            part = os.pread(self._descriptor, min(_WINDOW, end - start), start)
            if word in before + part:
                return True
            if not part:
                return False
            before, start = part[-len(word) + 1 :], start + len(part)
        return False


class InMemory(Bytes):
    """Bytes that are in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    def byte(self, at: int) -> int:
        if not 0 <= at < self.size:
            raise ValueError(f"there is no byte {at}")
        return self._content[at]

    def part(self, start: int, end: int) -> bytes:
        return self._content[start:end]

    def contains(self, word: bytes, start: int, end: int) -> bool:
        return self._content.find(word, start, end) >= 0


def check_model(content: Bytes) -> None:
    """Raises ``ValueError`` unless the fields of a message cover the file, and one of them is a graph."""
    if not list(_fields(content, [(0, content.size)], _GRAPH)):
        raise ValueError("it holds no graph")


def may_name_locations(content: Bytes) -> bool:
    """Whether a tensor of the model may be in another file. Raises ``ValueError`` if the file is not a model.

    The key of such an entry occurs literally in the file, so a model without it need not be parsed.
    """
    return any(content.contains(_LOCATION, start, end) for start, end in _without_weights(content))


def _without_weights(content: Bytes) -> Iterator[tuple[int, int]]:
    """All parts of a model's file except ``graph.initializer.raw_data``."""
    known = 0
    for tensor in _fields(content, _fields(content, [(0, content.size)], _GRAPH), _INITIALIZER):
        for start, end in _fields(content, [tensor], _RAW_DATA):
            yield known, start
            known = end
    yield known, content.size


@dataclass(frozen=True, slots=True)
class _Field:
    """A field, whose key is at ``begin``, and the range of its content; ``is_bytes``: or of a message."""

    number: int
    begin: int
    start: int
    end: int
    is_bytes: bool


@dataclass(frozen=True, slots=True)
class Weight:
    """The bytes of a constant, in its tensor and graph. ``position``: of the tensor among those of the model."""

    position: int
    graph: _Field
    tensor: _Field
    raw: _Field

    @property
    def start(self) -> int:
        """Of the bytes."""
        return self.raw.start

    @property
    def size(self) -> int:
        """In bytes."""
        return self.raw.end - self.raw.start


def weights(content: Bytes, least: int) -> list[Weight]:
    """The weights in a model's file from ``least`` bytes on, in order. Raises ``ValueError`` if it is not a model.

    Tensors that have their bytes elsewhere, or in several parts, are none.
    """
    found: list[Weight] = []
    position = 0
    for graph in _messages(content, 0, content.size, _GRAPH):
        for tensor in _messages(content, graph.start, graph.end, _INITIALIZER):
            fields = list(_all_fields(content, tensor.start, tensor.end))
            is_elsewhere = any(field.number in (_EXTERNAL_DATA, _DATA_LOCATION) for field in fields)
            raw = [field for field in fields if field.number == _RAW_DATA and field.is_bytes]
            if not is_elsewhere and len(raw) == 1 and raw[0].end - raw[0].start >= least:
                found.append(Weight(position, graph, tensor, raw[0]))
            position += 1
    return found


def without_weights(content: Bytes, given: Sequence[Weight], reference: Callable[[Weight], bytes]) -> bytes:
    """The model's file without the weights ``given``.

    ``reference``: the encoded fields of a tensor that take the place of its bytes.
    """
    parts: list[bytes] = []
    known = 0
    for graph, some in groupby(given, lambda weight: weight.graph):
        inner: list[bytes] = []
        at = graph.start
        for weight in some:
            tensor, raw = weight.tensor, weight.raw
            own = (content.part(tensor.start, raw.begin), content.part(raw.end, tensor.end), reference(weight))
            inner += [content.part(at, tensor.begin), _head(_INITIALIZER, own), *own]
            at = tensor.end
        inner.append(content.part(at, graph.end))
        parts += [content.part(known, graph.begin), _head(_GRAPH, inner), *inner]
        known = graph.end
    return b"".join([*parts, content.part(known, content.size)])


def _head(number: int, content: Iterable[bytes]) -> bytes:
    """What comes before the ``content`` of a message in a field."""
    return _number(number << 3 | 2) + _number(sum(map(len, content)))


def _number(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def _fields(content: Bytes, messages: Iterable[tuple[int, int]], wanted: int) -> Iterator[tuple[int, int]]:
    """The ranges of the fields ``wanted`` of these messages; they are messages or bytes themselves."""
    for start, end in messages:
        yield from ((field.start, field.end) for field in _messages(content, start, end, wanted))


def _messages(content: Bytes, start: int, end: int, wanted: int) -> Iterator[_Field]:
    """The fields ``wanted`` of a message; they are messages or bytes themselves."""
    return (field for field in _all_fields(content, start, end) if field.number == wanted and field.is_bytes)


def _all_fields(content: Bytes, start: int, end: int) -> Iterator[_Field]:
    """The fields of a message. Raises ``ValueError`` unless they cover it."""
    at, count = start, 0
    while at < end:
        begin = at
        key, at = _varint(content, at)
        count += 1
        if not key >> 3 or count > _MOST_FIELDS:
            raise ValueError(f"no field of a model ends at byte {at}")
        first = at
        match key & 7:
            case 0:
                _, at = _varint(content, at)
            case 1:
                at += 8
            case 2:
                length, first = _varint(content, at)
                at = first + length
            case 5:
                at += 4
            case kind:
                raise ValueError(f"wire type {kind} at byte {at}")
        yield _Field(key >> 3, begin, first, at, key & 7 == 2)
    if at != end:
        raise ValueError(f"a field reaches beyond byte {end}")


def _varint(content: Bytes, at: int) -> tuple[int, int]:
    """The number at byte ``at``, and the position after it."""
    value = shift = 0
    while at < content.size and shift < 64:
        byte = content.byte(at)
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError(f"no number ends at byte {at}")

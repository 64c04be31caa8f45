"""Checks the Protocol Buffers encoding of a model's file, without parsing all of it.

Parsing takes many times the file's size in memory, and hashing reads all of it. So the outer structure is checked
first: the lengths of the fields must add up to the file's size, and one field must be the graph.

Source: https://protobuf.dev/programming-guides/encoding
"""

import os
from collections.abc import Iterable, Iterator

_LOCATION = b"location"
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
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


def _fields(content: Bytes, messages: Iterable[tuple[int, int]], wanted: int) -> Iterator[tuple[int, int]]:
    """The ranges of the fields ``wanted`` of these messages; they are messages or bytes themselves.

    A field of another wire type than these can't be large.
    """
    for start, end in messages:
        at, count = start, 0
        while at < end:
            key, at = _varint(content, at)
            count += 1
            if not key >> 3 or count > _MOST_FIELDS:
                raise ValueError(f"no field of a model ends at byte {at}")
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

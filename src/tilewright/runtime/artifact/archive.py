"""Zip files of stored members in a canonical form, so that equal members give equal files.

    local header, data      for each member; the data start on a multiple of ``ALIGNMENT`` bytes of the file
    central directory       one record for each member
    ZIP64 end, ZIP64 locator, end

Every size is written as ZIP64, also small ones, so that large files have the same form. There are no flags and no
comments, only the attributes of a regular file, and one constant time (the earliest of zip). The reader names the fault
if possible (encrypted, a link ...); then it generates all headers again and compares them.

Source: PKWARE's APPNOTE.TXT 6.3.10. Padding: the extra field that Android's zipalign uses.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.base.errors import CorruptArtifact

ALIGNMENT: Final = 64

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4s4H2IH")
_EXTRA = struct.Struct("<2H")
_SIZES64 = struct.Struct("<2H2Q")
_PLACE64 = struct.Struct("<2H3Q")
_LOCAL_MARK, _CENTRAL_MARK, _END64_MARK, _LOCATOR_MARK, _END_MARK = (
    b"PK\3\4",
    b"PK\1\2",
    b"PK\6\6",
    b"PK\6\7",
    b"PK\5\6",
)
_ZIP64_ID, _PADDING_ID = 1, 0xD935
_VERSION = 45  # the first with ZIP64
_ON_UNIX = 3 << 8 | _VERSION
_REGULAR_FILE = 0o100644 << 16
_FIRST_DAY = 1 << 5 | 1  # 1 January 1980
_LATER16, _LATER32 = 0xFFFF, 0xFFFFFFFF  # "see the ZIP64 field"
_MAX_MEMBERS = 1 << 16

Part = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Member:
    """The data of a member, in place, and their CRC-32 according to the archive."""

    data: memoryview
    crc: int

    def is_intact(self) -> bool:
        """Whether the CRC-32 matches. (It does not authenticate the data.)"""
        return zlib.crc32(self.data) == self.crc


@dataclass(frozen=True, slots=True)
class _Entry:
    """A member: the position of its local header, and the facts of both headers."""

    name: str
    crc: int
    size: int
    offset: int

    def local(self) -> bytes:
        """The local header, padded so that the data after it are aligned."""
        name = self.name.encode("ascii")
        sizes = _SIZES64.pack(_ZIP64_ID, 16, self.size, self.size)
        unpadded = self.offset + _LOCAL.size + len(name) + len(sizes) + _EXTRA.size + 2
        padding = struct.pack("<H", ALIGNMENT) + bytes(-unpadded % ALIGNMENT)
        extra = sizes + _EXTRA.pack(_PADDING_ID, len(padding)) + padding
        lengths = (len(name), len(extra))
        head = _LOCAL.pack(_LOCAL_MARK, _VERSION, 0, 0, 0, _FIRST_DAY, self.crc, _LATER32, _LATER32, *lengths)
        return head + name + extra

    def central(self) -> bytes:
        """The record in the central directory."""
        name = self.name.encode("ascii")
        extra = _PLACE64.pack(_ZIP64_ID, 24, self.size, self.size, self.offset)
        fixed = (_CENTRAL_MARK, _ON_UNIX, _VERSION, 0, 0, 0, _FIRST_DAY, self.crc, _LATER32, _LATER32)
        lengths = (len(name), len(extra))
        return _CENTRAL.pack(*fixed, *lengths, 0, 0, 0, _REGULAR_FILE, _LATER32) + name + extra


def pack(members: Iterable[tuple[str, Sequence[Part]]]) -> Iterator[Part]:
    """The bytes of the archive, piece by piece. A member is a name (ASCII) and its data in parts."""
    entries: list[_Entry] = []
    position = 0
    for name, parts in members:
        entry = _Entry(name, _checksum(parts), sum(map(len, parts)), position)
        header = entry.local()
        yield header
        yield from parts
        entries.append(entry)
        position += len(header) + entry.size
    yield _tail(entries, position)


def unpack(data: memoryview) -> dict[str, Member]:
    """The members of an archive, in order, as parts of ``data`` (without a copy).

    Raises ``CorruptArtifact`` for anything that ``pack`` does not write. It checks position and size of the data; the
    caller checks their contents.
    """
    if bytes(data[:4]) != _LOCAL_MARK:
        raise CorruptArtifact("it is no artifact (it does not start as one); tilewright.compile(...).save makes them")
    entries = _directory(data)
    found: dict[str, Member] = {}
    position = 0
    for entry in entries:
        header = entry.local()
        start = position + len(header)
        if entry.offset != position or bytes(data[position:start]) != header:
            raise CorruptArtifact(f"the header of member {entry.name!r} is not as Tilewright writes it")
        position = start + entry.size
        if position > len(data):
            raise CorruptArtifact(f"member {entry.name!r} reaches beyond the end: was it copied completely?")
        found[entry.name] = Member(data[start:position], entry.crc)
    if bytes(data[position:]) != _tail(entries, position):
        raise CorruptArtifact("the directory at its end is not as Tilewright writes it")
    return found


def _checksum(parts: Sequence[Part]) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


def _tail(entries: Sequence[_Entry], position: int) -> bytes:
    """Everything after the members: the directory, which starts at ``position``, and its three ends."""
    directory = b"".join(entry.central() for entry in entries)
    end = position + len(directory)
    count = len(entries)
    return b"".join(
        (
            directory,
            _END64.pack(_END64_MARK, 44, _ON_UNIX, _VERSION, 0, 0, count, count, len(directory), position),
            _LOCATOR.pack(_LOCATOR_MARK, 0, end, 1),
            _END.pack(_END_MARK, 0, 0, _LATER16, _LATER16, _LATER32, _LATER32, 0),
        )
    )


def _directory(data: memoryview) -> list[_Entry]:
    """The entries of the central directory, not yet validated."""
    position, end = _directory_place(data)
    entries: dict[str, _Entry] = {}
    while position < end:
        if len(entries) == _MAX_MEMBERS:
            raise CorruptArtifact(f"it has more than {_MAX_MEMBERS} members")
        entry, position = _entry(data[:end], position)
        if entry.name in entries:
            raise CorruptArtifact(f"member {entry.name!r} is there twice")
        entries[entry.name] = entry
    return list(entries.values())


def _directory_place(data: memoryview) -> tuple[int, int]:
    """Start and end of the central directory, ZIP64 or not."""
    at_end = len(data) - _END.size
    if at_end < 0 or bytes(data[at_end : at_end + 4]) != _END_MARK:
        raise CorruptArtifact("its end is missing, or something follows it: was it copied completely?")
    size, start = _END.unpack_from(data, at_end)[5:7]
    at_end64 = at_end - _LOCATOR.size - _END64.size
    if at_end64 >= 0 and bytes(data[at_end64 : at_end64 + 4]) == _END64_MARK:
        size, start = _END64.unpack_from(data, at_end64)[8:10]
    if start + size > at_end:
        raise CorruptArtifact("the directory at its end points outside the file: was it copied completely?")
    return start, start + size


def _entry(data: memoryview, position: int) -> tuple[_Entry, int]:
    """The entry at ``position``, and the start of the next one. Raises ``CorruptArtifact`` for an entry not in our
    form."""
    after = position + _CENTRAL.size
    if after > len(data) or bytes(data[position : position + 4]) != _CENTRAL_MARK:
        raise CorruptArtifact("the directory at its end is damaged")
    record = _CENTRAL.unpack_from(data, position)
    flags, method, crc, packed, size, name_bytes, extra_bytes, comment_bytes = (*record[3:5], *record[7:13])
    attributes, offset = record[15:17]
    name = bytes(data[after : after + name_bytes]).decode("ascii", "backslashreplace")
    extra = data[after + name_bytes : after + name_bytes + extra_bytes]
    if size == _LATER32 and len(extra) == _PLACE64.size:
        size, packed, offset = _PLACE64.unpack(extra)[2:]
    if fault := _fault(name, flags, method, attributes, packed == size):
        raise CorruptArtifact(f"member {name!r} {fault}")
    return _Entry(name, crc, size, offset), after + name_bytes + extra_bytes + comment_bytes


def _fault(name: str, flags: int, method: int, attributes: int, same_size: bool) -> str | None:
    """Why a member is not in our form."""
    if not name.isascii() or "\\" in name or name.startswith("/") or ".." in name.split("/"):
        return "has a name that is no place inside the archive"
    if flags & 1:
        return "is encrypted; members of artifacts are not"
    if method or not same_size:
        return f"is compressed (method {method}); members of artifacts are stored as they are"
    if attributes >> 16 & 0o170000 == 0o120000:
        return "is a symbolic link; members of artifacts are files"
    return None

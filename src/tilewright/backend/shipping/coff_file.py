"""A merged object as COFF, which linkers of Windows take. Only for x86-64.

Source: Microsoft, "PE Format". Addends are in the code or data there; a distance counts from the end of its field.
"""

import struct
from collections.abc import Mapping

from tilewright.backend.shipping.merged import Kind, Merged, MergedSection
from tilewright.base.errors import InternalError
from tilewright.runtime.memory import round_up
from tilewright.runtime.objectfile import Relocation

_HEADER = struct.Struct("<HHIIIHH")
_SECTION = struct.Struct("<8sIIIIIIHHI")
_RELOCATION = struct.Struct("<IIH")
_SYMBOL = struct.Struct("<8sIhHBB")
_AMD64 = 0x8664
_EXTERNAL, _STATIC, _FUNCTION = 2, 3, 0x20
_KINDS: Mapping[Kind, tuple[bytes, int]] = {
    Kind.CODE: (b".text", 0x60000020),
    Kind.CONSTANTS: (b".rdata", 0x40000040),
    Kind.DATA: (b".data", 0xC0000040),
    Kind.ZEROS: (b".bss", 0xC0000080),
}
"""Names and characteristics."""
_MANY = 0x01000000
"""The characteristic of a section with more relocations than its header can count: the first one has their number."""
_TYPES: Mapping[int, tuple[int, int, int]] = {1: (1, 8, 0), 2: (4, 4, 4), 4: (4, 4, 4)}
"""By ELF's relocations (R_X86_64_64, PC32, PLT32): COFF's (ADDR64, REL32), bytes, and what the addend grows by."""


def coff_file(parts: Merged) -> bytes:
    """The object."""
    names = _Names()
    body, headers = bytearray(), list[bytes]()
    begin = _HEADER.size + _SECTION.size * len(Kind)
    for kind, section in parts.sections.items():
        headers.append(_section(kind, section, begin, body))
    symbols = b"".join(
        _SYMBOL.pack(
            names.field(symbol.name),
            symbol.value,
            0 if symbol.kind is None else 1 + list(Kind).index(symbol.kind),
            _FUNCTION if symbol.is_global and symbol.kind in (None, Kind.CODE) else 0,
            _EXTERNAL if symbol.is_global else _STATIC,
            0,
        )
        for symbol in parts.symbols
    )
    head = _HEADER.pack(_AMD64, len(Kind), 0, begin + len(body), len(parts.symbols), 0, 0)
    return head + b"".join(headers) + bytes(body) + symbols + names.table()


def _section(kind: Kind, section: MergedSection, begin: int, body: bytearray) -> bytes:
    """Appends the contents and the relocations to ``body``, which is at ``begin`` of the file; returns the header."""
    name, flags = _KINDS[kind]
    flags |= section.alignment.bit_length() << 20
    data = bytearray(section.data)
    listed = [_relocation(data, one) for one in section.relocations]
    if len(listed) >= 0xFFFF:
        listed.insert(0, _RELOCATION.pack(1 + len(listed), 0, 0))
        flags |= _MANY
    body.extend(bytes(round_up(len(body), 16) - len(body)))
    data_at = begin + len(body) if data else 0
    body.extend(data)
    listed_at = begin + len(body) if listed else 0
    body.extend(b"".join(listed))
    size = len(data) or section.size
    return _SECTION.pack(name, 0, 0, size, data_at, listed_at, 0, min(len(listed), 0xFFFF), 0, flags)


def _relocation(data: bytearray, one: Relocation) -> bytes:
    """A relocation, whose addend goes to ``data``."""
    if one.kind not in _TYPES:
        raise InternalError(f"relocation {one.kind} of x86-64 has no counterpart in COFF")
    kind, width, grown = _TYPES[one.kind]
    data[one.offset : one.offset + width] = (one.addend + grown).to_bytes(width, "little", signed=True)
    return _RELOCATION.pack(one.offset, one.symbol, kind)


class _Names:
    """The table of long names while it is made."""

    def __init__(self) -> None:
        self._data = bytearray()

    def field(self, name: str) -> bytes:
        """The name if it is short, else its place in the table."""
        if len(name.encode()) <= 8:
            return name.encode()
        at = 4 + len(self._data)
        self._data += name.encode() + b"\0"
        return struct.pack("<II", 0, at)

    def table(self) -> bytes:
        """The table, after its size."""
        return struct.pack("<I", 4 + len(self._data)) + bytes(self._data)

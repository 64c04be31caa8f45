"""A merged object as Mach-O, which linkers of macOS take. Only for aarch64.

Source: Apple, ``mach-o/loader.h``, ``mach-o/nlist.h``, ``mach-o/arm64/reloc.h``. A relocation of code has no room for
an addend there, so a symbol is made for each place that one leads to.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.backend.shipping.merged import Kind, Merged, MergedSymbol
from tilewright.base.errors import InternalError
from tilewright.runtime.memory import round_up
from tilewright.runtime.objectfile import Relocation

_HEADER = struct.Struct("<8I")
_SEGMENT = struct.Struct("<II16sQQQQiiII")
_SECTION = struct.Struct("<16s16sQQ8I")
_SYMBOL_TABLE = struct.Struct("<6I")
_DYNAMIC_TABLE = struct.Struct("<20I")
_VERSION = struct.Struct("<6I")
_SYMBOL = struct.Struct("<IBBHQ")
_COMMANDS = (_SEGMENT.size + _SECTION.size * len(Kind), _SYMBOL_TABLE.size, _DYNAMIC_TABLE.size, _VERSION.size)
_BEGIN = round_up(_HEADER.size + sum(_COMMANDS), 64)
"""Where the bytes of sections begin, in the order of their addresses."""
_MAGIC, _ARM64, _OBJECT = 0xFEEDFACF, 0x0100000C, 1
_LC_SEGMENT, _LC_SYMBOLS, _LC_DYNAMIC, _LC_VERSION = 0x19, 0x2, 0xB, 0x32
_ALL_RIGHTS, _MACOS, _MACOS_11 = 7, 1, 11 << 16
_IN_SECTION, _EXTERNAL = 0xE, 0x1
_KINDS: Mapping[Kind, tuple[bytes, bytes, int]] = {
    Kind.CODE: (b"__text", b"__TEXT", 0x80000400),
    Kind.CONSTANTS: (b"__const", b"__TEXT", 0),
    Kind.DATA: (b"__data", b"__DATA", 0),
    Kind.ZEROS: (b"__bss", b"__DATA", 1),
}
"""Section, segment, flags: instructions; zeroed."""


@dataclass(frozen=True, slots=True)
class _Type:
    """Mach-O's number of a relocation, whether it is a distance, and the logarithm of its bytes."""

    number: int
    is_distance: bool
    length: int


_BRANCH, _PAGE, _LOW, _WORD = _Type(2, True, 2), _Type(3, True, 2), _Type(4, False, 2), _Type(0, False, 3)
_TYPES: Mapping[int, _Type] = {
    257: _WORD,
    275: _PAGE,
    **dict.fromkeys((277, 278, 284, 285, 286, 299), _LOW),
    282: _BRANCH,
    283: _BRANCH,
    311: _Type(5, True, 2),
    312: _Type(6, False, 2),
}
"""By ELF's relocations of aarch64."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A section: its address in the object, and where its bytes and its relocations are in the file."""

    address: int
    data_at: int
    listed_at: int


def macho_file(parts: Merged) -> bytes:
    """The object."""
    symbols = _Symbols(parts)
    body, addresses, address = bytearray(), dict[Kind, int](), 0
    for kind, part in parts.sections.items():
        addresses[kind] = address = round_up(address, part.alignment)
        body.extend(bytes(address - len(body)) + part.data if part.data else b"")
        address += part.size
    stored = len(body)
    places: dict[Kind, _Place] = {}
    for kind, part in parts.sections.items():
        listed = b"".join(map(symbols.relocation, part.relocations))
        places[kind] = _Place(addresses[kind], _BEGIN + addresses[kind], _append(body, listed, 8))
    table, names = symbols.tables(places)
    table_at = _append(body, table, 8)
    names_at = _append(body, names, 1)
    sections = b"".join(_section(parts, kind, place) for kind, place in places.items())
    count, local = symbols.counts
    needed = sum(symbol.kind is None for symbol in parts.symbols)
    shared = count - local - needed
    spans = (0, local, local, shared, local + shared, needed)
    commands = (
        _SEGMENT.pack(
            _LC_SEGMENT, _COMMANDS[0], b"", 0, address, _BEGIN, stored, _ALL_RIGHTS, _ALL_RIGHTS, len(Kind), 0
        ),
        sections,
        _SYMBOL_TABLE.pack(_LC_SYMBOLS, _COMMANDS[1], table_at, count, names_at, len(names)),
        _DYNAMIC_TABLE.pack(_LC_DYNAMIC, _COMMANDS[2], *spans, *[0] * 12),
        _VERSION.pack(_LC_VERSION, _COMMANDS[3], _MACOS, _MACOS_11, _MACOS_11, 0),
    )
    head = _HEADER.pack(_MAGIC, _ARM64, 0, _OBJECT, len(_COMMANDS), sum(_COMMANDS), 0, 0)
    return (head + b"".join(commands)).ljust(_BEGIN, b"\0") + bytes(body)


def _append(body: bytearray, data: bytes, alignment: int) -> int:
    """Appends ``data`` to what follows the commands; returns its offset in the file."""
    body.extend(bytes(-(_BEGIN + len(body)) % alignment))
    body.extend(data)
    return _BEGIN + len(body) - len(data)


def _section(parts: Merged, kind: Kind, place: _Place) -> bytes:
    part, (name, segment, flags) = parts.sections[kind], _KINDS[kind]
    data_at = place.data_at if part.data else 0
    listed_at = place.listed_at if part.relocations else 0
    alignment = part.alignment.bit_length() - 1
    where = (place.address, part.size, data_at, alignment, listed_at, len(part.relocations))
    return _SECTION.pack(name, segment, *where, flags, 0, 0, 0)


class _Symbols:
    """The symbols of the file: made local ones first, then those of the merged object."""

    def __init__(self, parts: Merged) -> None:
        self._parts = parts
        self._made: dict[tuple[Kind, int], MergedSymbol] = {}
        wanted = (
            (parts.symbols[one.symbol], one.addend) for part in parts.sections.values() for one in part.relocations
        )
        for symbol, addend in wanted:
            if addend and symbol.kind is not None:
                at = (symbol.kind, symbol.value + addend)
                self._made[at] = MergedSymbol(f"tw_place_{len(self._made)}", *at, 0, is_global=False)
        self._numbers = {at: number for number, at in enumerate(self._made)}

    @property
    def counts(self) -> tuple[int, int]:
        """The number of symbols, and of local ones."""
        return len(self._made) + len(self._parts.symbols), len(self._made) + self._parts.locals

    def relocation(self, one: Relocation) -> bytes:
        """A relocation in Mach-O's form."""
        if one.kind not in _TYPES:
            raise InternalError(f"relocation {one.kind} of aarch64 has no counterpart in Mach-O")
        kind, symbol = _TYPES[one.kind], self._parts.symbols[one.symbol]
        if one.addend and symbol.kind is None:
            raise InternalError(f"a relocation names {symbol.name!r} + {one.addend}, which is defined elsewhere")
        number = (
            self._numbers[symbol.kind, symbol.value + one.addend]
            if one.addend and symbol.kind is not None
            else len(self._made) + one.symbol
        )
        bits = number | kind.is_distance << 24 | kind.length << 25 | 1 << 27 | kind.number << 28
        return struct.pack("<II", one.offset, bits)

    def tables(self, places: Mapping[Kind, _Place]) -> tuple[bytes, bytes]:
        """The table of symbols, and that of their names."""
        table, names = bytearray(), bytearray(b"\0")
        for number, symbol in enumerate((*self._made.values(), *self._parts.symbols)):
            sort = (_EXTERNAL if symbol.is_global else 0) | (0 if symbol.kind is None else _IN_SECTION)
            section = 0 if symbol.kind is None else 1 + list(Kind).index(symbol.kind)
            value = 0 if symbol.kind is None else places[symbol.kind].address + symbol.value
            table += _SYMBOL.pack(len(names), sort, section, 0, value)
            names += b"_" + (symbol.name or f"tw_section_{number}").encode() + b"\0"
        return bytes(table), bytes(names)

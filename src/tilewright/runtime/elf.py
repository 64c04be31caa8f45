"""ELF64 relocatable file (``.o``) -> ``ObjectFile``.

The file is untrusted, so every offset, size, index, count and string in it is checked before use: a damaged file only
raises ``BadArtifact`` with the place, in time and memory bounded by its size. Instructions are not checked: running
code requires trust. Source: System V ABI, edition 4.1, chapters 4 and 5; the processor supplements give the relocation
numbers (``relocations``).
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.base.errors import BadArtifact
from tilewright.runtime.objectfile import (
    MAX_IMAGE,
    Binding,
    Machine,
    ObjectFile,
    Place,
    Relocation,
    Section,
    Segment,
    Symbol,
)

_MACHINES = {62: Machine.X86_64, 183: Machine.AARCH64, 243: Machine.RISCV64}
_RELOCATABLE = 1
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")

_PROGBITS, _SYMTAB, _STRTAB, _RELA_TABLE, _NOTE, _NOBITS, _REL_TABLE = 1, 2, 3, 4, 7, 8, 9
_X86_UNWIND = 0x70000001
_CONSTRUCTORS = (14, 15, 16)
_OLD_CONSTRUCTORS = (".ctors", ".dtors")
_WRITE, _ALLOC, _EXECUTE, _THREAD_LOCAL, _COMPRESSED = 0x1, 0x2, 0x4, 0x400, 0x800
_UNDEFINED, _RESERVED, _ABSOLUTE, _COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2
_BINDINGS = {0: Binding.LOCAL, 1: Binding.GLOBAL, 2: Binding.WEAK}
_TLS_SYMBOL, _INDIRECT_FUNCTION = 6, 10

_MAX_ALIGNMENT = 4096
_MAX_RECORDS = 1 << 20
"""Maximum symbols of an object, and relocations: a hundred times those of the largest kernels."""
_MAX_NAME = 4096
"""Maximum bytes. Names may share bytes of a table, so that a small file could have any amount of text."""


@dataclass(frozen=True, slots=True)
class _Header:
    """A section header, as in the file, with its name."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _File:
    """The bytes, with checked access. ``fail`` creates the error; callers raise it."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name

    def fail(self, problem: str) -> BadArtifact:
        return BadArtifact(f"{self.name}: {problem}; the object code is damaged or not made by Tilewright")

    def slice(self, offset: int, size: int, what: str) -> bytes:
        if offset + size > len(self.data):
            raise self.fail(f"{what} at {offset}, {size} bytes long, ends after the file of {len(self.data)} bytes")
        return self.data[offset : offset + size]

    def string(self, table: bytes, offset: int, what: str) -> str:
        end = table.find(b"\0", offset, offset + _MAX_NAME)
        if offset >= len(table) or end < 0:
            raise self.fail(f"the name of {what} is outside the string table, or longer than {_MAX_NAME} bytes")
        return table[offset:end].decode("utf-8", errors="backslashreplace")

    def records(self, layout: struct.Struct, header: _Header) -> Iterator[tuple[int, ...]]:
        if header.entry_size != layout.size or header.size % layout.size:
            raise self.fail(f"section {header.name!r} is no table of {layout.size}-byte entries")
        if header.size // layout.size > _MAX_RECORDS:
            raise self.fail(f"section {header.name!r} has more than {_MAX_RECORDS} entries")
        return layout.iter_unpack(self.slice(header.offset, header.size, f"section {header.name!r}"))


def parse_elf(data: bytes, name: str = "object") -> ObjectFile:
    """Parse and check a whole object; ``name`` is for messages. Raises ``BadArtifact``."""
    file = _File(data, name)
    machine, headers = _headers(file)
    loaded = [i for i, header in enumerate(headers) if _is_loaded(file, header)]
    place_of = {section: place for place, section in enumerate(loaded)}
    symbols = _symbols(file, headers, place_of)
    relocations = _relocations(file, headers, len(symbols))
    if sum(headers[i].size + headers[i].alignment for i in loaded) > MAX_IMAGE:
        raise file.fail(f"its sections need more than {MAX_IMAGE} bytes")
    sections = tuple(_section(file, headers[i], tuple(relocations.get(i, ()))) for i in loaded)
    return ObjectFile(name, machine, sections, symbols)


def _headers(file: _File) -> tuple[Machine, list[_Header]]:
    """The file header's facts and the section headers, named."""
    start = file.slice(0, _HEADER.size, "the ELF header")
    identity = start[:16]
    fields: tuple[int, ...] = _HEADER.unpack(start)
    kind, machine, table, entry_size, count, names = *fields[:2], fields[5], *fields[10:13]
    if identity[:4] != b"\x7fELF":
        raise file.fail("it is no ELF file")
    if identity[4:7] != b"\x02\x01\x01" or kind != _RELOCATABLE:
        raise file.fail("it is no 64-bit little-endian relocatable ELF file")
    if machine not in _MACHINES:
        known = ", ".join(m.value for m in Machine)
        raise file.fail(f"its machine has the number {machine}; known: {known}")
    if entry_size != _SECTION.size or not 0 < count < _RESERVED or names >= count:
        raise file.fail("its section table is malformed")
    raw: list[tuple[int, ...]] = list(
        _SECTION.iter_unpack(file.slice(table, count * _SECTION.size, "the section table"))
    )
    strings = _strings(file, raw[names][1], raw[names][4], raw[names][5])
    return _MACHINES[machine], [
        _Header(file.string(strings, r[0], f"section {i}"), r[1], r[2], *r[4:]) for i, r in enumerate(raw)
    ]


def _strings(file: _File, kind: int, offset: int, size: int) -> bytes:
    if kind != _STRTAB:
        raise file.fail("a string table is missing")
    return file.slice(offset, size, "a string table")


def _is_loaded(file: _File, header: _Header) -> bool:
    """Whether a section is loaded. Raises for one that must be, but can't."""
    if not header.flags & _ALLOC or header.kind in (_NOTE, _X86_UNWIND) or header.name == ".eh_frame":
        return False
    if header.kind in _CONSTRUCTORS or header.name.startswith(_OLD_CONSTRUCTORS):
        raise file.fail(f"section {header.name!r} holds constructors or destructors, which images may not have")
    if header.flags & (_THREAD_LOCAL | _COMPRESSED):
        raise file.fail(f"section {header.name!r} is thread-local or compressed, which images may not have")
    if header.kind not in (_PROGBITS, _NOBITS):
        raise file.fail(f"section {header.name!r} has the unknown type {header.kind}")
    if header.flags & _WRITE and header.flags & _EXECUTE:
        raise file.fail(f"section {header.name!r} is writable and executable")
    alignment = header.alignment
    if alignment > _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise file.fail(
            f"section {header.name!r} has alignment {alignment}; it must be a power of 2 up to {_MAX_ALIGNMENT}"
        )
    return True


def _section(file: _File, header: _Header, relocations: tuple[Relocation, ...]) -> Section:
    segment = Segment.CODE if header.flags & _EXECUTE else Segment.DATA if header.flags & _WRITE else Segment.CONSTANTS
    stored = 0 if header.kind == _NOBITS else header.size
    data = file.slice(header.offset, stored, f"section {header.name!r}")
    return Section(header.name, segment, max(1, header.alignment), header.size, data, relocations)


def _symbols(file: _File, headers: list[_Header], place_of: dict[int, int]) -> tuple[Symbol, ...]:
    tables = [header for header in headers if header.kind == _SYMTAB]
    if len(tables) != 1:
        raise file.fail(f"it has {len(tables)} symbol tables; it must have one")
    table = tables[0]
    if table.link >= len(headers):
        raise file.fail("its symbol table names a string table that is not there")
    link = headers[table.link]
    strings = _strings(file, link.kind, link.offset, link.size)
    found: list[Symbol] = []
    for i, (name_at, info, _, section, value, size) in enumerate(file.records(_SYMBOL, table)):
        name = file.string(strings, name_at, f"symbol {i}")
        binding = _BINDINGS.get(info >> 4)
        if binding is None or info & 15 in (_TLS_SYMBOL, _INDIRECT_FUNCTION):
            raise file.fail(f"symbol {name!r} is of a kind that images may not have ({info:#x})")
        place = _place(file, name, section, len(headers), place_of)
        if isinstance(place, int) and value + size > headers[section].size:
            raise file.fail(f"symbol {name!r} is outside its section {headers[section].name!r}")
        if place is Place.ABSOLUTE and binding is not Binding.LOCAL:
            raise file.fail(f"symbol {name!r} is a fixed address, which images may not define")
        found.append(Symbol(name, binding, place, value, size))
    return tuple(found)


def _place(file: _File, name: str, section: int, count: int, place_of: dict[int, int]) -> int | Place:
    if section == _UNDEFINED:
        return Place.UNDEFINED
    if section == _ABSOLUTE:
        return Place.ABSOLUTE
    if section >= count:
        what = "a common block" if section == _COMMON else f"section {section}, which is not there"
        raise file.fail(f"symbol {name!r} is in {what}")
    return place_of.get(section, Place.DROPPED)


def _relocations(file: _File, headers: list[_Header], symbols: int) -> dict[int, list[Relocation]]:
    """Relocations by number of the patched section, without those of sections that are not loaded."""
    found: dict[int, list[Relocation]] = {}
    if sum(header.size for header in headers if header.kind == _RELA_TABLE) > _MAX_RECORDS * _RELA.size:
        raise file.fail(f"it has more than {_MAX_RECORDS} relocations")
    for header in headers:
        if header.kind not in (_RELA_TABLE, _REL_TABLE):
            continue
        if header.info >= len(headers):
            raise file.fail(f"section {header.name!r} patches section {header.info}, which is not there")
        if not _is_loaded(file, headers[header.info]):
            continue
        if header.kind == _REL_TABLE:
            raise file.fail(f"section {header.name!r} has relocations without addends, which these machines do not use")
        into = found.setdefault(header.info, [])
        for offset, info, addend in file.records(_RELA, header):
            symbol = info >> 32
            if symbol >= symbols:
                raise file.fail(
                    f"a relocation at {offset} of {headers[header.info].name!r} names symbol {symbol} of {symbols}"
                )
            into.append(Relocation(offset, info & 0xFFFFFFFF, symbol, addend))
    return found

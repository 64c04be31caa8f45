"""Objects -> one relocatable ELF object, with few global names: what ``ld -r`` and ``objcopy`` would make.

The objects' sections are put together by kind, their relocations stay as they are, and all names except the kept ones
become local, so that a program can have several models. Source: System V ABI, edition 4.1, chapter 4.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum

from tilewright.backend.shipping.executable_file import IDENTITY, MACHINES
from tilewright.base.errors import InternalError
from tilewright.runtime.linker import Key
from tilewright.runtime.memory import round_up
from tilewright.runtime.objectfile import Binding, Machine, ObjectFile, Place, Section, Segment, Symbol

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _STRTAB, _RELA_TABLE, _NOBITS = 1, 2, 3, 4, 8
_WRITE, _ALLOC, _EXECUTE, _INFO = 0x1, 0x2, 0x4, 0x40
_FUNCTION, _GLOBAL = 2, 1 << 4


class _Kind(Enum):
    """The sections of the result: name, type and flags."""

    CODE = (".text", _PROGBITS, _ALLOC | _EXECUTE)
    CONSTANTS = (".rodata", _PROGBITS, _ALLOC)
    DATA = (".data", _PROGBITS, _ALLOC | _WRITE)
    ZEROS = (".bss", _NOBITS, _ALLOC | _WRITE)

    @staticmethod
    def of(section: Section) -> "_Kind":
        """The kind that ``section`` goes to."""
        if section.segment is Segment.DATA and not section.data:
            return _Kind.ZEROS
        return _Kind[section.segment.name]


@dataclass(slots=True)
class _Merged:
    """A section of the result while it is made."""

    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    alignment: int = 1

    def add(self, section: Section) -> int:
        """Append ``section``; returns its offset."""
        at = round_up(self.size, section.alignment)
        if section.data:
            self.data.extend(bytes(at - len(self.data)))
            self.data.extend(section.data)
            self.data.extend(bytes(section.size - len(section.data)))
        self.size = at + section.size
        self.alignment = max(self.alignment, section.alignment)
        return at


def relocatable_file(objects: Sequence[ObjectFile], machine: Machine, keep: Set[str], flags: int) -> bytes:
    """One object of all ``objects``, in which only the names in ``keep`` are global. ``flags``: of the processor."""
    merged = {kind: _Merged() for kind in _Kind}
    places = {
        (file, index): (_Kind.of(section), merged[_Kind.of(section)].add(section))
        for file, item in enumerate(objects)
        for index, section in enumerate(item.sections)
    }
    symbols = _Symbols.of(objects, places, keep)
    relocations = {kind: bytearray() for kind in _Kind}
    for (file, index), (kind, at) in places.items():
        for one in objects[file].sections[index].relocations:
            info = symbols.number((file, one.symbol)) << 32 | one.kind
            relocations[kind] += _RELA.pack(at + one.offset, info, one.addend)
    return _file(merged, relocations, symbols, machine, flags)


@dataclass(frozen=True, slots=True)
class _Symbols:
    """The symbol table: entries, names, the number of local ones, and the entry of each symbol of the objects."""

    table: bytes
    names: bytes
    locals: int
    numbers: Mapping[Key, int]

    def number(self, key: Key) -> int:
        """The entry of a symbol that a relocation names."""
        if key not in self.numbers:
            raise InternalError(f"a relocation names symbol {key}, which is in no section that is kept")
        return self.numbers[key]

    @staticmethod
    def of(objects: Sequence[ObjectFile], places: Mapping[Key, tuple[_Kind, int]], keep: Set[str]) -> "_Symbols":
        """Local ones first, as ELF wants them."""
        defined = [key for key, symbol in _all(objects) if isinstance(symbol.place, int)]
        kept = [key for key in defined if _is_kept(_symbol(objects, key), keep)]
        inner = [key for key in defined if not _is_kept(_symbol(objects, key), keep)]
        order = [*inner, *kept]
        numbers = {key: 1 + i for i, key in enumerate(order)}
        by_name = {_symbol(objects, key).name: key for key in order if _symbol(objects, key).binding is Binding.GLOBAL}
        names = _Names()
        table = bytearray(_SYMBOL.size)
        for key in order:
            table += _entry(objects, key, places, names, is_global=key in kept)
        count = 1 + len(order)
        missing: dict[str, int] = {}
        for key, symbol in _all(objects):
            if symbol.place is Place.UNDEFINED and symbol.name:
                if symbol.name in by_name:
                    numbers[key] = numbers[by_name[symbol.name]]
                    continue
                if symbol.name not in missing:
                    missing[symbol.name] = count + len(missing)
                    table += _SYMBOL.pack(names.at(symbol.name), _GLOBAL, 0, 0, 0, 0)
                numbers[key] = missing[symbol.name]
        return _Symbols(bytes(table), bytes(names.data), 1 + len(inner), numbers)


def _all(objects: Sequence[ObjectFile]) -> Iterable[tuple[Key, Symbol]]:
    for file, item in enumerate(objects):
        for index, symbol in enumerate(item.symbols):
            yield (file, index), symbol


def _symbol(objects: Sequence[ObjectFile], key: Key) -> Symbol:
    return objects[key[0]].symbols[key[1]]


def _is_kept(symbol: Symbol, keep: Set[str]) -> bool:
    return symbol.binding is Binding.GLOBAL and symbol.name in keep


def _entry(
    objects: Sequence[ObjectFile],
    key: Key,
    places: Mapping[Key, tuple[_Kind, int]],
    names: "_Names",
    *,
    is_global: bool,
) -> bytes:
    symbol = _symbol(objects, key)
    if not isinstance(symbol.place, int):
        raise InternalError(f"symbol {symbol.name!r} is in no section")
    kind, at = places[key[0], symbol.place]
    info = (_GLOBAL if is_global else 0) | (_FUNCTION if is_global and kind is _Kind.CODE else 0)
    section = 1 + list(_Kind).index(kind)
    return _SYMBOL.pack(names.at(symbol.name), info, 0, section, at + symbol.value, symbol.size)


class _Names:
    """A string table while it is made."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")

    def at(self, name: str) -> int:
        """The offset of ``name``, which is appended."""
        if not name:
            return 0
        self.data += name.encode() + b"\0"
        return len(self.data) - len(name.encode()) - 1


def _file(
    merged: Mapping[_Kind, _Merged],
    relocations: Mapping[_Kind, bytearray],
    symbols: _Symbols,
    machine: Machine,
    flags: int,
) -> bytes:
    """Header, the contents of all sections, and the section table at the end."""
    body = bytearray(_HEADER.size)
    headers = [_SECTION.pack(*[0] * 10)]
    names = _Names()
    table_at = 1 + 2 * len(_Kind) + 1  # after the sections, their relocations, and the note

    def append(name: str, kind: int, data: bytes, size: int, alignment: int, rest: _Rest) -> None:
        body.extend(bytes(round_up(len(body), max(alignment, 1)) - len(body)))
        place = len(body)
        body.extend(data)
        headers.append(
            _SECTION.pack(names.at(name), kind, rest.flags, 0, place, size, rest.link, rest.info, alignment, rest.entry)
        )

    for kind, one in merged.items():
        name, type_, access = kind.value
        append(name, type_, bytes(one.data), one.size, one.alignment, _Rest(access))
    for number, (kind, data) in enumerate(relocations.items(), 1):
        rest = _Rest(_INFO, table_at, number, _RELA.size)
        append(f".rela{kind.value[0]}", _RELA_TABLE, bytes(data), len(data), 8, rest)
    append(".note.GNU-stack", _PROGBITS, b"", 0, 1, _Rest())
    append(".symtab", _SYMTAB, symbols.table, len(symbols.table), 8, _Rest(0, table_at + 1, symbols.locals, 24))
    append(".strtab", _STRTAB, symbols.names, len(symbols.names), 1, _Rest())
    names_at = names.at(".shstrtab")
    place = len(body)
    body.extend(names.data)
    headers.append(_SECTION.pack(names_at, _STRTAB, 0, 0, place, len(names.data), 0, 0, 1, 0))
    body.extend(bytes(round_up(len(body), 8) - len(body)))
    body[: _HEADER.size] = _HEADER.pack(
        IDENTITY, 1, MACHINES[machine], 1, 0, 0, len(body), flags, _HEADER.size, 0, 0, _SECTION.size, len(headers),
        len(headers) - 1,
    )  # fmt: skip
    return bytes(body) + b"".join(headers)


@dataclass(frozen=True, slots=True)
class _Rest:
    """Fields of a section header that most leave empty."""

    flags: int = 0
    link: int = 0
    info: int = 0
    entry: int = 0

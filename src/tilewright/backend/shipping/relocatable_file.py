"""A merged object as relocatable ELF. Source: System V ABI, edition 4.1, chapter 4."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.backend.shipping.executable_file import IDENTITY, MACHINES
from tilewright.backend.shipping.merged import Kind, Merged
from tilewright.runtime.memory import round_up
from tilewright.runtime.objectfile import Machine

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_PROGBITS, _SYMTAB, _STRTAB, _RELA_TABLE, _NOBITS = 1, 2, 3, 4, 8
_WRITE, _ALLOC, _EXECUTE, _INFO = 0x1, 0x2, 0x4, 0x40
_FUNCTION, _GLOBAL = 2, 1 << 4
_KINDS: Mapping[Kind, tuple[str, int, int]] = {
    Kind.CODE: (".text", _PROGBITS, _ALLOC | _EXECUTE),
    Kind.CONSTANTS: (".rodata", _PROGBITS, _ALLOC),
    Kind.DATA: (".data", _PROGBITS, _ALLOC | _WRITE),
    Kind.ZEROS: (".bss", _NOBITS, _ALLOC | _WRITE),
}
"""Names, types and flags."""


def relocatable_file(parts: Merged, machine: Machine, flags: int) -> bytes:
    """The object: header, the contents of all sections, and the section table. ``flags``: of the processor."""
    file = _File()
    table_at = 1 + 2 * len(Kind) + 1  # after the sections, their relocations, and the note
    for kind, section in parts.sections.items():
        name, type_, access = _KINDS[kind]
        file.append(name, type_, bytes(section.data), section.size, section.alignment, _Rest(access))
    for number, (kind, section) in enumerate(parts.sections.items(), 1):
        data = b"".join(_RELA.pack(r.offset, 1 + r.symbol << 32 | r.kind, r.addend) for r in section.relocations)
        rest = _Rest(_INFO, table_at, number, _RELA.size)
        file.append(f".rela{_KINDS[kind][0]}", _RELA_TABLE, data, len(data), 8, rest)
    file.append(".note.GNU-stack", _PROGBITS, b"", 0, 1, _Rest())
    names = _Names()
    table = _symbols(parts, names)
    file.append(".symtab", _SYMTAB, table, len(table), 8, _Rest(0, table_at + 1, 1 + parts.locals, _SYMBOL.size))
    file.append(".strtab", _STRTAB, bytes(names.data), len(names.data), 1, _Rest())
    return file.finished(machine, flags)


def _symbols(parts: Merged, names: "_Names") -> bytes:
    """The symbol table. Number 0 is no symbol."""
    table = bytearray(_SYMBOL.size)
    for symbol in parts.symbols:
        is_function = symbol.is_global and symbol.kind is Kind.CODE
        info = (_GLOBAL if symbol.is_global else 0) | (_FUNCTION if is_function else 0)
        section = 0 if symbol.kind is None else 1 + list(Kind).index(symbol.kind)
        table += _SYMBOL.pack(names.at(symbol.name), info, 0, section, symbol.value, symbol.size)
    return bytes(table)


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


@dataclass(frozen=True, slots=True)
class _Rest:
    """Fields of a section header that most leave empty."""

    flags: int = 0
    link: int = 0
    info: int = 0
    entry: int = 0


class _File:
    """A file while it is made."""

    def __init__(self) -> None:
        self._body = bytearray(_HEADER.size)
        self._headers = [_SECTION.pack(*[0] * 10)]
        self._names = _Names()

    def append(self, name: str, kind: int, data: bytes, size: int, alignment: int, rest: _Rest) -> None:
        """Append a section."""
        self._body.extend(bytes(round_up(len(self._body), max(alignment, 1)) - len(self._body)))
        fields = (self._names.at(name), kind, rest.flags, 0, len(self._body), size)
        self._headers.append(_SECTION.pack(*fields, rest.link, rest.info, alignment, rest.entry))
        self._body.extend(data)

    def finished(self, machine: Machine, flags: int) -> bytes:
        """The file, with the names of its sections and the table of them at the end."""
        at = self._names.at(".shstrtab")
        place, names = len(self._body), bytes(self._names.data)
        self._body.extend(names)
        self._headers.append(_SECTION.pack(at, _STRTAB, 0, 0, place, len(names), 0, 0, 1, 0))
        self._body.extend(bytes(round_up(len(self._body), 8) - len(self._body)))
        self._body[: _HEADER.size] = _HEADER.pack(
            IDENTITY, 1, MACHINES[machine], 1, 0, 0, len(self._body), flags, _HEADER.size, 0, 0, _SECTION.size,
            len(self._headers), len(self._headers) - 1,
        )  # fmt: skip
        return bytes(self._body) + b"".join(self._headers)

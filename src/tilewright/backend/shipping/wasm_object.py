"""Reads a relocatable WebAssembly object of LLVM: functions, data, symbols, and where code and data refer to symbols.

Source: WebAssembly core specification 2.0, chapter 5; tool-conventions, ``Linking.md``. The object is the compiler's
own, not untrusted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tilewright.backend.shipping.wasm_numbers import Reader
from tilewright.base.errors import InternalError

CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA, COUNT = range(13)
MAGIC = b"\0asm\x01\0\0\0"
I32, I64, I32_CONST, I64_CONST, END = 0x7F, 0x7E, 0x41, 0x42, 0x0B
_SEGMENTS, _SYMBOLS = 5, 8
_LOCAL, _UNDEFINED, _NAMED = 0x02, 0x10, 0x40


class Sort(Enum):
    """What a symbol names."""

    FUNCTION = 0
    DATA = 1
    GLOBAL = 2
    SECTION = 3
    TAG = 4
    TABLE = 5


@dataclass(frozen=True, slots=True)
class Symbol:
    """``index``: of a function among those that the object defines, or of a data segment; None: defined elsewhere.

    ``offset``: in the segment.
    """

    sort: Sort
    name: str
    index: int | None
    offset: int = 0
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class Relocation:
    """At ``offset`` of the contents of a section is a number that depends on a symbol, or (``TYPE_INDEX``) a type."""

    kind: int
    offset: int
    index: int
    addend: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """Data with an alignment. ``at``: the offset of its bytes in the contents of its section."""

    data: bytes
    alignment: int
    at: int


@dataclass(frozen=True, slots=True)
class WasmObject:
    """What a linker takes from an object. Offsets of relocations are those in the sections."""

    types: tuple[bytes, ...]
    functions: tuple[int, ...]
    """The type of each function that it defines."""
    code: bytes
    """The contents of its code section."""
    bodies_at: int
    """Where in ``code`` the first function begins: after their number."""
    segments: tuple[Segment, ...]
    symbols: tuple[Symbol, ...]
    in_code: tuple[Relocation, ...]
    in_data: tuple[Relocation, ...]


TYPE_INDEX = 6
_WITH_ADDEND = (3, 4, 5, 8, 9, 11, 14, 15, 16, 17, 21, 22, 23, 25)


def read_object(data: bytes) -> WasmObject:
    """The object."""
    sections: dict[int, bytes] = {}
    customs: dict[str, Reader] = {}
    for kind, body in _sections(data):
        if kind == CUSTOM:
            reader = Reader(body)
            customs[reader.name()] = reader
        else:
            sections[kind] = body
    imported = _imported_functions(Reader(sections.get(IMPORT, b"\0")))
    alignments, symbols = _linking(customs["linking"], imported)
    code = sections.get(CODE, b"\0")
    start = Reader(code)
    start.unsigned()
    return WasmObject(
        _types(Reader(sections.get(TYPE, b"\0"))),
        _numbers(Reader(sections.get(FUNCTION, b"\0"))),
        code,
        start.at,
        _segments(Reader(sections.get(DATA, b"\0")), alignments),
        symbols,
        _relocations(customs.get("reloc.CODE")),
        _relocations(customs.get("reloc.DATA")),
    )


def _sections(data: bytes) -> Iterator[tuple[int, bytes]]:
    reader = Reader(data, len(MAGIC))
    while reader.more:
        kind = reader.take(1)[0]
        yield kind, reader.take(reader.unsigned())


def _types(reader: Reader) -> tuple[bytes, ...]:
    """The types of functions, as they are encoded: parameters and results."""
    found: list[bytes] = []
    for _ in range(reader.unsigned()):
        begin = reader.at
        reader.take(1)
        reader.take(reader.unsigned())
        reader.take(reader.unsigned())
        found.append(reader.data[begin : reader.at])
    return tuple(found)


def _numbers(reader: Reader) -> tuple[int, ...]:
    return tuple(reader.unsigned() for _ in range(reader.unsigned()))


def _imported_functions(reader: Reader) -> list[str]:
    """Their names, in order. All other imports (memory, table, stack pointer) are those of every module."""
    found: list[str] = []
    for _ in range(reader.unsigned()):
        reader.name()
        name, kind = reader.name(), reader.take(1)[0]
        if kind == 0:
            found.append(name)
            reader.unsigned()
        elif kind == 3:
            reader.take(2)
        else:
            reader.take(1 if kind == 1 else 0)
            has_most = reader.unsigned() & 1
            for _ in range(1 + has_most):
                reader.unsigned()
    return found


def _segments(reader: Reader, alignments: tuple[int, ...]) -> tuple[Segment, ...]:
    found: list[Segment] = []
    for _, alignment in zip(range(reader.unsigned()), alignments, strict=True):
        if reader.take(1) != b"\0" or reader.take(1)[0] not in (I32_CONST, I64_CONST):
            raise InternalError("a data segment of a WebAssembly object has no plain address")
        reader.signed()
        reader.take(1)
        size = reader.unsigned()
        found.append(Segment(reader.take(size), alignment, reader.at - size))
    return tuple(found)


def _linking(reader: Reader, imported: list[str]) -> tuple[tuple[int, ...], tuple[Symbol, ...]]:
    """The alignments of data segments, and the symbols."""
    reader.unsigned()
    alignments: list[int] = []
    symbols: tuple[Symbol, ...] = ()
    while reader.more:
        kind = reader.take(1)[0]
        body = Reader(reader.take(reader.unsigned()))
        if kind == _SEGMENTS:
            for _ in range(body.unsigned()):
                body.name()
                alignments.append(1 << body.unsigned())
                body.unsigned()
        elif kind == _SYMBOLS:
            symbols = tuple(_symbol(body, imported) for _ in range(body.unsigned()))
    return tuple(alignments), symbols


def _symbol(body: Reader, imported: list[str]) -> Symbol:
    sort, flags = Sort(body.take(1)[0]), body.unsigned()
    is_undefined, is_local = bool(flags & _UNDEFINED), bool(flags & _LOCAL)
    if sort is Sort.DATA:
        name = body.name()
        if is_undefined:
            return Symbol(sort, name, None)
        segment, offset = body.unsigned(), body.unsigned()
        body.unsigned()
        return Symbol(sort, name, segment, offset, is_local)
    index = body.unsigned()
    if sort is Sort.SECTION:
        return Symbol(sort, "", index)
    name = body.name() if flags & _NAMED or not is_undefined else ""
    if sort is not Sort.FUNCTION:
        return Symbol(sort, name, None)
    if is_undefined:
        return Symbol(sort, name or imported[index], None)
    return Symbol(sort, name, index - len(imported), is_local=is_local)


def _relocations(reader: Reader | None) -> tuple[Relocation, ...]:
    if reader is None:
        return ()
    reader.unsigned()
    return tuple(_relocation(reader) for _ in range(reader.unsigned()))


def _relocation(reader: Reader) -> Relocation:
    kind, offset, index = reader.take(1)[0], reader.unsigned(), reader.unsigned()
    return Relocation(kind, offset, index, reader.signed() if kind in _WITH_ADDEND else 0)

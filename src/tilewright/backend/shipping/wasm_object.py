"""Reads a relocatable WebAssembly object that imports no function, and moves its data to another address.

LLVM lays out one object as if it were a whole module: indices of functions, types and table entries are final, and so
are addresses, if data begin at address 0. So "linking" is to add a number to the addresses. Source: WebAssembly core
specification 2.0, chapter 5; tool-conventions, ``Linking.md``. The object is the compiler's own, not untrusted.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.base.errors import InternalError, Unsupported

CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA, COUNT = range(13)
MAGIC = b"\0asm\x01\0\0\0"
I32, I32_CONST, END = 0x7F, 0x41, 0x0B
_SYMBOLS = 8
_ADDRESS_LEB, _ADDRESS_SLEB, _ADDRESS_I32 = 3, 4, 5
_FINAL = (0, 1, 2, 6, 7, 20)
"""Relocations of indices: functions, table entries, types, globals, tables."""


@dataclass(slots=True)
class Reader:
    """Numbers and names, one after the other."""

    data: bytes
    at: int = 0

    def unsigned(self) -> int:
        """An unsigned LEB128."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def signed(self) -> int:
        """A signed LEB128."""
        begin = self.at
        value = self.unsigned()
        bits = 7 * (self.at - begin)
        return value - (1 << bits) if value >> (bits - 1) else value

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        self.at += size
        return self.data[self.at - size : self.at]

    def name(self) -> str:
        """A text after its length."""
        return self.take(self.unsigned()).decode()

    @property
    def more(self) -> bool:
        """Whether there are bytes left."""
        return self.at < len(self.data)


@dataclass(frozen=True, slots=True)
class WasmObject:
    """What a module takes over from an object. ``entries``: the size of its table of functions."""

    types: bytes
    functions: bytes
    elements: bytes
    code: bytes
    data: tuple[tuple[int, bytes], ...]
    """Pieces of data by address."""
    entries: int
    indices: dict[str, int]
    """The index of each function by name."""

    @property
    def end(self) -> int:
        """The address where its data end."""
        return max((at + len(piece) for at, piece in self.data), default=0)


def read_object(data: bytes, base: int) -> WasmObject:
    """The object, with its data at ``base`` and after. Raises ``Unsupported`` if it calls functions of others."""
    sections: dict[int, bytes] = {}
    customs: dict[str, Reader] = {}
    for kind, body in _sections(data):
        if kind == CUSTOM:
            reader = Reader(body)
            customs[reader.name()] = reader
        else:
            sections[kind] = body
    _refuse_functions(Reader(sections[IMPORT]))
    code = _moved(sections[CODE], customs.get("reloc.CODE"), base)
    elements = sections.get(ELEMENT, b"\0")
    pieces = _pieces(_moved(sections[DATA], customs.get("reloc.DATA"), base)) if DATA in sections else ()
    return WasmObject(
        sections[TYPE],
        sections[FUNCTION],
        elements,
        code,
        tuple((base + at, piece) for at, piece in pieces),
        _entries(Reader(elements)),
        _indices(customs["linking"]),
    )


def _sections(data: bytes) -> Iterator[tuple[int, bytes]]:
    reader = Reader(data, len(MAGIC))
    while reader.more:
        kind = reader.take(1)[0]
        yield kind, reader.take(reader.unsigned())


def _refuse_functions(reader: Reader) -> None:
    """Raises ``Unsupported`` if there are functions among the imports; all else the module defines."""
    functions: list[str] = []
    for _ in range(reader.unsigned()):
        reader.name()
        name, kind = reader.name(), reader.take(1)[0]
        if kind == 0:
            functions.append(name)
            reader.unsigned()
        elif kind == 3:
            reader.take(2)
        else:
            reader.take(1 if kind == 1 else 0)
            has_most = reader.unsigned() & 1
            for _ in range(1 + has_most):
                reader.unsigned()
    if functions:
        raise Unsupported(
            f"the model calls {', '.join(sorted(functions))} of the C library, which a WebAssembly module has not: "
            "leave out the operators that need it, or emit an object for a processor and link it"
        )


def _entries(reader: Reader) -> int:
    """The size of a table that holds all elements."""
    most = 0
    for _ in range(reader.unsigned()):
        if reader.take(2) != bytes((0, I32_CONST)):
            raise InternalError("a table of a WebAssembly object has no plain elements")
        first = reader.signed()
        reader.take(1)
        indices = [reader.unsigned() for _ in range(reader.unsigned())]
        most = max(most, first + len(indices))
    return most


def _pieces(body: bytes) -> tuple[tuple[int, bytes], ...]:
    reader = Reader(body)
    found: list[tuple[int, bytes]] = []
    for _ in range(reader.unsigned()):
        if reader.take(2) != bytes((0, I32_CONST)):
            raise InternalError("a data segment of a WebAssembly object has no plain address")
        at = reader.signed()
        reader.take(1)
        found.append((at, reader.take(reader.unsigned())))
    return tuple(found)


def _indices(reader: Reader) -> dict[str, int]:
    """The functions that the symbol table of the section "linking" names."""
    reader.unsigned()
    found: dict[str, int] = {}
    while reader.more:
        kind, size = reader.take(1)[0], reader.unsigned()
        body = Reader(reader.take(size))
        if kind != _SYMBOLS:
            continue
        for _ in range(body.unsigned()):
            sort, flags = body.take(1)[0], body.unsigned()
            is_undefined, is_named = flags & 0x10, flags & 0x40
            if sort == 1:
                body.name()
                if not is_undefined:
                    _ = body.unsigned(), body.unsigned(), body.unsigned()
                continue
            index = body.unsigned()
            if sort != 3 and (is_named or not is_undefined):
                name = body.name()
                if sort == 0:
                    found[name] = index
    return found


def _moved(body: bytes, relocations: Reader | None, base: int) -> bytes:
    """A section whose addresses are ``base`` higher."""
    if relocations is None:
        return body
    moved = bytearray(body)
    relocations.unsigned()
    for _ in range(relocations.unsigned()):
        kind, at = relocations.take(1)[0], relocations.unsigned()
        relocations.unsigned()
        if kind in _FINAL:
            continue
        relocations.signed()
        if kind == _ADDRESS_I32:
            moved[at : at + 4] = ((int.from_bytes(moved[at : at + 4], "little") + base) % (1 << 32)).to_bytes(
                4, "little"
            )
        elif kind in (_ADDRESS_LEB, _ADDRESS_SLEB):
            reader = Reader(bytes(moved[at : at + 5]))
            value = reader.signed() if kind == _ADDRESS_SLEB else reader.unsigned()
            moved[at : at + 5] = padded(value + base)
        else:
            raise InternalError(f"a WebAssembly object has the relocation {kind}, which is not known")
    return bytes(moved)


def padded(value: int) -> bytes:
    """An address of less than 2 GiB as LEB128 of five bytes, signed or not."""
    return bytes((value >> 7 * i & 127) | (128 if i < 4 else 0) for i in range(5))


def unsigned(value: int) -> bytes:
    """An unsigned LEB128."""
    found = bytearray()
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def signed(value: int) -> bytes:
    """A signed LEB128."""
    found = bytearray()
    while not -64 <= value < 64:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value & 127)
    return bytes(found)

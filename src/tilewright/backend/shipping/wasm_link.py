"""Links WebAssembly objects: one list of functions, one memory from a base address on, one table.

All three are numbered here; the objects' code and data are copied, with the numbers patched in. Source:
tool-conventions, ``Linking.md``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from tilewright.backend.shipping.wasm_numbers import padded
from tilewright.backend.shipping.wasm_object import TYPE_INDEX, Relocation, Sort, Symbol, WasmObject
from tilewright.base.errors import InternalError
from tilewright.runtime.memory import round_up


class _What(Enum):
    """What a number in code or data is."""

    FUNCTION = "index of a function"
    SLOT = "index in the table of functions"
    ADDRESS = "address of data"
    TYPE = "index of a type"
    ONLY = "index of the stack pointer, or of the table"


@dataclass(frozen=True, slots=True)
class _Field:
    """A number of ``size`` bytes: LEB128, or little endian."""

    what: _What
    size: int
    is_leb: bool = True


_FIELDS: Mapping[int, _Field] = {
    0: _Field(_What.FUNCTION, 5),
    1: _Field(_What.SLOT, 5),
    2: _Field(_What.SLOT, 4, is_leb=False),
    3: _Field(_What.ADDRESS, 5),
    4: _Field(_What.ADDRESS, 5),
    5: _Field(_What.ADDRESS, 4, is_leb=False),
    TYPE_INDEX: _Field(_What.TYPE, 5),
    7: _Field(_What.ONLY, 5),
    14: _Field(_What.ADDRESS, 10),
    15: _Field(_What.ADDRESS, 10),
    16: _Field(_What.ADDRESS, 8, is_leb=False),
    18: _Field(_What.SLOT, 10),
    19: _Field(_What.SLOT, 8, is_leb=False),
    20: _Field(_What.ONLY, 5),
}
"""By the number of a relocation."""

_Key = tuple[int, int]
"""Number of an object, and of a function, data segment or symbol in it."""


@dataclass(frozen=True, slots=True)
class WasmImage:
    """What objects give a module."""

    types: tuple[bytes, ...]
    functions: tuple[int, ...]
    """The type of each function."""
    bodies: bytes
    """The code of all functions, one after the other."""
    data: tuple[tuple[int, bytes], ...]
    """Pieces of data by address."""
    slots: tuple[int, ...]
    """The functions in its table, from 1 on."""
    names: Mapping[str, int]
    """The index of each global function."""


def missing(objects: Sequence[WasmObject]) -> set[str]:
    """Functions and data that some object uses and none defines."""
    used = {
        symbol.name
        for item in objects
        for symbol in item.symbols
        if symbol.index is None and symbol.sort in (Sort.FUNCTION, Sort.DATA)
    }
    return used - _definitions(objects).keys()


def data_end(objects: Sequence[WasmObject], base: int) -> int:
    """The address after the objects' data, which begin at ``base``."""
    return _placed(objects, base)[1]


def link(objects: Sequence[WasmObject], base: int, others: Mapping[str, int]) -> WasmImage:
    """The objects together, with their data at ``base`` and after. ``others``: addresses of data that none defines."""
    links = _Links.of(objects, base, others)
    bodies, data = bytearray(), list[tuple[int, bytes]]()
    for file, item in enumerate(objects):
        bodies += links.patched(file, item.code, 0, item.in_code)[item.bodies_at :]
        for number, segment in enumerate(item.segments):
            end = segment.at + len(segment.data)
            within = [one for one in item.in_data if segment.at <= one.offset < end]
            data.append((links.places[file, number], links.patched(file, segment.data, segment.at, within)))
    functions = tuple(links.types[item.types[kind]] for item in objects for kind in item.functions)
    names = {
        name: links.functions[key[0], symbol.index]
        for name, key in links.definitions.items()
        if (symbol := objects[key[0]].symbols[key[1]]).sort is Sort.FUNCTION and symbol.index is not None
    }
    return WasmImage(tuple(links.types), functions, bytes(bodies), tuple(data), tuple(links.slots), names)


def _definitions(objects: Sequence[WasmObject]) -> dict[str, _Key]:
    """The symbol of each global name that is defined."""
    return {
        symbol.name: (file, number)
        for file, item in enumerate(objects)
        for number, symbol in enumerate(item.symbols)
        if symbol.index is not None and not symbol.is_local and symbol.sort in (Sort.FUNCTION, Sort.DATA)
    }


def _placed(objects: Sequence[WasmObject], base: int) -> tuple[dict[_Key, int], int]:
    """The address of each data segment, and the end."""
    places: dict[_Key, int] = {}
    end = base
    for file, item in enumerate(objects):
        for number, segment in enumerate(item.segments):
            places[file, number] = round_up(end, segment.alignment)
            end = places[file, number] + len(segment.data)
    return places, end


@dataclass(frozen=True, slots=True)
class _Links:
    """The numbers of everything in the module."""

    objects: Sequence[WasmObject]
    types: Mapping[bytes, int]
    functions: Mapping[_Key, int]
    places: Mapping[_Key, int]
    definitions: Mapping[str, _Key]
    others: Mapping[str, int]
    slots: dict[int, int] = field(default_factory=dict[int, int])
    """The place in the table of each function that needs one: given at its first use."""

    @staticmethod
    def of(objects: Sequence[WasmObject], base: int, others: Mapping[str, int]) -> "_Links":
        kinds = dict.fromkeys(kind for item in objects for kind in item.types)
        keys = [(file, number) for file, item in enumerate(objects) for number in range(len(item.functions))]
        return _Links(
            objects,
            {kind: number for number, kind in enumerate(kinds)},
            {key: number for number, key in enumerate(keys)},
            _placed(objects, base)[0],
            _definitions(objects),
            others,
        )

    def patched(self, file: int, data: bytes, begin: int, relocations: Iterable[Relocation]) -> bytes:
        """``data``, which begins at ``begin`` of its section, with the numbers of ``relocations`` in it."""
        made = bytearray(data)
        for one in relocations:
            known = _FIELDS.get(one.kind)
            if known is None:
                raise InternalError(f"a WebAssembly object has the relocation {one.kind}, which is not known")
            value, at = self._value(file, one, known.what), one.offset - begin
            wide = padded(value, known.size) if known.is_leb else value.to_bytes(known.size, "little")
            made[at : at + known.size] = wide
        return bytes(made)

    def _value(self, file: int, relocation: Relocation, what: _What) -> int:
        match what:
            case _What.TYPE:
                return self.types[self.objects[file].types[relocation.index]]
            case _What.ONLY:
                return 0
            case _What.FUNCTION:
                return self._function(file, relocation.index)
            case _What.SLOT:
                return self.slots.setdefault(self._function(file, relocation.index), 1 + len(self.slots))
            case _What.ADDRESS:
                return self._address(file, relocation.index) + relocation.addend

    def _function(self, file: int, number: int) -> int:
        home, symbol = self._defined(file, number)
        if symbol.index is None:
            raise InternalError(f"no WebAssembly object defines {symbol.name!r}")
        return self.functions[home, symbol.index]

    def _address(self, file: int, number: int) -> int:
        home, symbol = self._defined(file, number)
        if symbol.index is None:
            return self.others[symbol.name]
        return self.places[home, symbol.index] + symbol.offset

    def _defined(self, file: int, number: int) -> tuple[int, Symbol]:
        """The symbol that the symbol ``number`` of an object stands for, and the object that has it."""
        symbol = self.objects[file].symbols[number]
        if symbol.index is not None or symbol.name not in self.definitions:
            return file, symbol
        home, there = self.definitions[symbol.name]
        return home, self.objects[home].symbols[there]

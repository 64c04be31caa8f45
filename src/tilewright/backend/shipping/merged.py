"""Objects -> the parts of one relocatable object, in no format yet: what ``ld -r`` and ``objcopy`` would put together.

The objects' sections are put together by kind, their relocations stay as they are, and all names except the kept ones
become local, so that a program can have several models.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum

from tilewright.base.errors import InternalError
from tilewright.runtime.linker import Key
from tilewright.runtime.memory import round_up
from tilewright.runtime.objectfile import Binding, ObjectFile, Place, Relocation, Section, Segment, Symbol


class Kind(Enum):
    """The sections of the result."""

    CODE = "code"
    CONSTANTS = "constants"
    DATA = "data"
    ZEROS = "zeros"

    @staticmethod
    def of(section: Section) -> "Kind":
        """The kind that ``section`` goes to."""
        if section.segment is Segment.DATA and not section.data:
            return Kind.ZEROS
        return Kind[section.segment.name]


@dataclass(slots=True)
class MergedSection:
    """A section of the result. Relocations: with the numbers of ``Merged.symbols``."""

    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    alignment: int = 1
    relocations: list[Relocation] = field(default_factory=list[Relocation])

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


@dataclass(frozen=True, slots=True)
class MergedSymbol:
    """``kind``: the section, at ``value`` in it; None: it is defined elsewhere."""

    name: str
    kind: Kind | None
    value: int
    size: int
    is_global: bool


@dataclass(frozen=True, slots=True)
class Merged:
    """The sections and the symbols of one object: local symbols first, then global ones, then those it needs."""

    sections: Mapping[Kind, MergedSection]
    symbols: tuple[MergedSymbol, ...]

    @property
    def locals(self) -> int:
        """The number of local symbols."""
        return sum(not symbol.is_global for symbol in self.symbols)


def merged(objects: Sequence[ObjectFile], keep: Set[str]) -> Merged:
    """All ``objects`` as one, in which only the names in ``keep`` are global."""
    sections = {kind: MergedSection() for kind in Kind}
    places = {
        (file, index): (Kind.of(section), sections[Kind.of(section)].add(section))
        for file, item in enumerate(objects)
        for index, section in enumerate(item.sections)
    }
    symbols, numbers = _symbols(objects, places, keep)
    for (file, index), (kind, at) in places.items():
        for one in objects[file].sections[index].relocations:
            if (file, one.symbol) not in numbers:
                raise InternalError(
                    f"a relocation names symbol {one.symbol} of {objects[file].name}, which is not kept"
                )
            moved = Relocation(at + one.offset, one.kind, numbers[file, one.symbol], one.addend)
            sections[kind].relocations.append(moved)
    return Merged(sections, symbols)


def _symbols(
    objects: Sequence[ObjectFile], places: Mapping[Key, tuple[Kind, int]], keep: Set[str]
) -> tuple[tuple[MergedSymbol, ...], dict[Key, int]]:
    """The symbols, and the number of each symbol of the objects among them."""
    defined = [(key, symbol) for key, symbol in _all(objects) if isinstance(symbol.place, int)]
    order = sorted(defined, key=lambda pair: _is_kept(pair[1], keep))
    numbers = {key: number for number, (key, _) in enumerate(order)}
    by_name = {symbol.name: key for key, symbol in order if symbol.binding is Binding.GLOBAL}
    made = [_moved(key, symbol, places, keep) for key, symbol in order]
    missing: dict[str, int] = {}
    for key, symbol in _all(objects):
        if symbol.place is Place.UNDEFINED and symbol.name:
            if symbol.name in by_name:
                numbers[key] = numbers[by_name[symbol.name]]
                continue
            if symbol.name not in missing:
                missing[symbol.name] = len(made)
                made.append(MergedSymbol(symbol.name, None, 0, 0, is_global=True))
            numbers[key] = missing[symbol.name]
    return tuple(made), numbers


def _moved(key: Key, symbol: Symbol, places: Mapping[Key, tuple[Kind, int]], keep: Set[str]) -> MergedSymbol:
    if not isinstance(symbol.place, int):
        raise InternalError(f"symbol {symbol.name!r} is in no section")
    kind, at = places[key[0], symbol.place]
    return MergedSymbol(symbol.name, kind, at + symbol.value, symbol.size, _is_kept(symbol, keep))


def _all(objects: Sequence[ObjectFile]) -> Iterable[tuple[Key, Symbol]]:
    for file, item in enumerate(objects):
        for index, symbol in enumerate(item.symbols):
            yield (file, index), symbol


def _is_kept(symbol: Symbol, keep: Set[str]) -> bool:
    return symbol.binding is Binding.GLOBAL and symbol.name in keep

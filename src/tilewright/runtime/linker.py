"""Links objects to the bytes of one image: layout and relocations.

``plan`` decides the layout; ``link`` fills memory for a given base address. Nothing here is mapped, protected or run,
so that tests can safely use damaged files. The parts of the layout, each on pages of its own:

    code       the code sections of all objects, then stubs for imported functions that are called
    constants  the constant sections, then the table of addresses (for stubs and for references through the table)
    data       the writable sections
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.errors import BadArtifact
from tilewright.runtime.memory import PAGE, round_up
from tilewright.runtime.objectfile import MAX_IMAGE, Binding, Machine, ObjectFile, Place, Relocation, Section, Segment
from tilewright.runtime.relocations import STUB_BYTES, Rule, Via, rule, stub

_ENTRY_BYTES = 8

Key = tuple[int, int]
"""Number of an object in the image, and index of a section or symbol in that object."""


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes ``start .. start + size`` of an image."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The layout of an image: byte offsets of its parts, sections, table entries and stubs (the last two by symbol).

    ``definitions``: the symbol of each global name; ``imports`` the addresses of the others.
    """

    machine: Machine
    objects: tuple[ObjectFile, ...]
    size: int
    parts: Mapping[Segment, Span]
    sections: Mapping[Key, int]
    entries: Mapping[Key, int]
    stubs: Mapping[Key, int]
    definitions: Mapping[str, Key]
    imports: Mapping[str, int]

    def address(self, key: Key, base: int) -> int:
        """Address of a symbol in an image at ``base``. Raises ``BadArtifact`` if its section is not loaded."""
        item = self.objects[key[0]]
        symbol = item.symbols[key[1]]
        if symbol.binding is not Binding.LOCAL and self.definitions.get(symbol.name, key) != key:
            return self.address(self.definitions[symbol.name], base)
        match symbol.place:
            case Place.UNDEFINED:
                return self.imports.get(symbol.name, 0)  # 0: an undefined weak name; `plan` has checked the rest
            case Place.ABSOLUTE:
                raise BadArtifact(f"{item.name}: code refers to {symbol.name!r}, a fixed address")
            case Place.DROPPED:
                raise BadArtifact(f"{item.name}: code refers to {symbol.name!r} in a section that is not loaded")
            case int(section):
                return base + self.sections[key[0], section] + symbol.value


def undefined(objects: Sequence[ObjectFile]) -> set[str]:
    """Names that some object uses and none defines: the imports."""
    used = {s.name for o in objects for s in o.symbols if s.place is Place.UNDEFINED and s.name}
    return used - _definitions(objects).keys()


def plan(objects: Sequence[ObjectFile], machine: Machine, imports: Mapping[str, int], page: int = PAGE) -> Plan:
    """Lay out objects for ``machine``; undefined names are taken from ``imports``. ``page``: bytes of a page.

    Raises ``BadArtifact`` for another machine, a name that is missing or defined twice, an unknown relocation, or an
    image that is too large.
    """
    for item in objects:
        if item.machine is not machine:
            raise BadArtifact(f"{item.name} is code for {item.machine.value}; this machine is {machine.value}")
    definitions = _definitions(objects)
    _check_names(objects, definitions, imports)
    called, listed = _indirect(objects, machine, definitions)
    end, parts = 0, dict[Segment, Span]()
    sections, stubs, entries = dict[Key, int](), dict[Key, int](), dict[Key, int]()
    for segment in Segment:
        start = end = round_up(end, page)
        for key, section in _sections(objects, segment):
            sections[key] = round_up(end, section.alignment)
            end = sections[key] + section.size
        if segment is Segment.CODE:
            end = _table(stubs, called, end, STUB_BYTES)
        elif segment is Segment.CONSTANTS:
            end = _table(entries, listed, end, _ENTRY_BYTES)
        parts[segment] = Span(start, end - start)
    if end > MAX_IMAGE:
        raise BadArtifact(f"the image needs {end} bytes, more than {MAX_IMAGE}")
    return Plan(machine, tuple(objects), end, parts, sections, entries, stubs, definitions, imports)


def link(layout: Plan, memory: memoryview, base: int) -> None:
    """Write an image into ``memory`` (zeroed, at least ``layout.size`` bytes), to run at address ``base``.

    Raises ``BadArtifact`` if a relocation lies outside its section or its value does not fit.
    """
    for key, entry in layout.entries.items():
        memory[entry : entry + _ENTRY_BYTES] = struct.pack("<Q", layout.address(key, base) % (1 << 64))
    for key, place in layout.stubs.items():
        memory[place : place + STUB_BYTES] = stub(layout.machine, base + place, base + layout.entries[key])
    for (file, index), start in layout.sections.items():
        section = layout.objects[file].sections[index]
        memory[start : start + len(section.data)] = section.data
        for relocation in section.relocations:
            if relocation.kind:
                _relocate(layout, memory, base, (file, index), relocation)


def _definitions(objects: Sequence[ObjectFile]) -> dict[str, Key]:
    """The symbol behind each global name: the strong one if there is one, else the first weak one."""
    found: dict[str, Key] = {}
    strong: set[str] = set()
    for file, item in enumerate(objects):
        for index, symbol in enumerate(item.symbols):
            if symbol.binding is Binding.LOCAL or symbol.place is Place.UNDEFINED:
                continue
            if symbol.binding is Binding.GLOBAL:
                if symbol.name in strong:
                    first = objects[found[symbol.name][0]].name
                    raise BadArtifact(f"{symbol.name!r} is defined in {first} and in {item.name}; rename one")
                strong.add(symbol.name)
                found[symbol.name] = (file, index)
            else:
                found.setdefault(symbol.name, (file, index))
    return found


def _check_names(objects: Sequence[ObjectFile], definitions: Mapping[str, Key], imports: Mapping[str, int]) -> None:
    for item in objects:
        for symbol in item.symbols[1:]:  # number 0 is "no symbol"
            known = symbol.name in definitions or symbol.name in imports or symbol.binding is Binding.WEAK
            if symbol.place is Place.UNDEFINED and not known:
                raise BadArtifact(
                    f"{item.name} needs {symbol.name!r}, which neither the image nor this process offers; "
                    "images may import a closed list of C functions (runtime/imports.py)"
                )


def _sections(objects: Sequence[ObjectFile], segment: Segment) -> Iterator[tuple[Key, Section]]:
    for file, item in enumerate(objects):
        for index, section in enumerate(item.sections):
            if section.segment is segment:
                yield (file, index), section


def _indirect(
    objects: Sequence[ObjectFile], machine: Machine, definitions: Mapping[str, Key]
) -> tuple[dict[Key, None], dict[Key, None]]:
    """Symbols that need a stub, and those that need a table entry (also each stub), in order of first use."""
    called: dict[Key, None] = {}
    listed: dict[Key, None] = {}
    for file, item in enumerate(objects):
        for section in item.sections:
            for relocation in section.relocations:
                if not relocation.kind:
                    continue
                via = _rule(machine, item, section, relocation).via
                symbol = item.symbols[relocation.symbol]
                imported = symbol.place is Place.UNDEFINED and symbol.name not in definitions
                if via is Via.CALL and imported:
                    called[file, relocation.symbol] = None
                if via is Via.TABLE or (via is Via.CALL and imported):
                    listed[file, relocation.symbol] = None
    return called, listed


def _table(into: dict[Key, int], keys: Mapping[Key, None], end: int, unit: int) -> int:
    """Give each key ``unit`` bytes after ``end``; returns the new end."""
    if not keys:
        return end
    end = round_up(end, unit)
    for key in keys:
        into[key] = end
        end += unit
    return end


def _rule(machine: Machine, item: ObjectFile, section: Section, relocation: Relocation) -> Rule:
    found = rule(machine, relocation.kind)
    if found is None:
        raise BadArtifact(
            f"{item.name}: relocation type {relocation.kind} for {item.symbols[relocation.symbol].name!r} in "
            f"{section.name!r} is not known on {machine.value}; compile with reloc='pic', codemodel='small'"
        )
    return found


def _relocate(layout: Plan, memory: memoryview, base: int, where: Key, relocation: Relocation) -> None:
    item = layout.objects[where[0]]
    section = item.sections[where[1]]
    how = _rule(layout.machine, item, section, relocation)
    name = item.symbols[relocation.symbol].name
    if relocation.offset + how.width > len(section.data):
        raise BadArtifact(f"{item.name}: {how.name} for {name!r} lies outside {section.name!r}; the file is damaged")
    start = layout.sections[where] + relocation.offset
    place = memory[start : start + how.width]
    if how.via is Via.UPPER:
        target, origin = _upper(layout, base, (where[0], relocation.symbol))
    else:
        target = _target(layout, base, (where[0], relocation.symbol), how) + relocation.addend
        origin = base + start
    bits = how.encode(target, origin, int.from_bytes(place, "little"))
    if bits is None:
        raise BadArtifact(f"{item.name}: {how.name} for {name!r} in {section.name!r} can't reach {target:#x}")
    place[:] = bits.to_bytes(how.width, "little")


def _target(layout: Plan, base: int, symbol: Key, how: Rule) -> int:
    if how.via is Via.TABLE:
        return base + layout.entries[symbol]
    if how.via is Via.CALL and symbol in layout.stubs:
        return base + layout.stubs[symbol]
    return layout.address(symbol, base)


def _upper(layout: Plan, base: int, label: Key) -> tuple[int, int]:
    """RISC-V: the target of the instruction at ``label``, which has a relocation for the upper bits; its address."""
    item = layout.objects[label[0]]
    symbol = item.symbols[label[1]]
    if isinstance(symbol.place, int):
        section = item.sections[symbol.place]
        other = section.first_at.get(symbol.value)
        how = None if other is None else _rule(layout.machine, item, section, other)
        if other is not None and how is not None and how.via in (Via.SYMBOL, Via.TABLE):
            target = _target(layout, base, (label[0], other.symbol), how) + other.addend
            return target, base + layout.sections[label[0], symbol.place] + symbol.value
    raise BadArtifact(f"{item.name}: {symbol.name!r} is to be where upper bits are, and is not; the file is damaged")

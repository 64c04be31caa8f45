"""Loads objects as code into this process: parse, lay out, map, relocate, protect.

It needs no linker, C compiler or llvmlite, only NumPy and the standard library. Pages are writable or executable, never
both. Another object format (Mach-O, COFF) is another parser in ``_PARSERS`` with its relocation table; another system,
another file in ``system``.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.errors import BadArtifact
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.imports import process_imports
from tilewright.runtime.linker import Key, Plan, link, plan, undefined
from tilewright.runtime.memory import Pages
from tilewright.runtime.objectfile import INSTRUCTION_BYTES, ObjectFile, Place, Segment, host_machine
from tilewright.runtime.system import here
from tilewright.runtime.system.api import Access, OperatingSystem

_PARSERS: Mapping[bytes, Callable[[bytes, str], ObjectFile]] = {b"\x7fELF": parse_elf}
_ACCESS = {Segment.CODE: Access.EXECUTE, Segment.CONSTANTS: Access.READ, Segment.DATA: Access.WRITE}


@dataclass(frozen=True, slots=True)
class _Defined:
    """A symbol in memory. ``left``: bytes from there to its section's end. ``is_code``: whether it is code."""

    address: int
    left: int
    is_code: bool


def _defined(layout: Plan, key: Key, base: int) -> _Defined | None:
    """The definition of a global name; None if it is in no loaded section."""
    item = layout.objects[key[0]]
    symbol = item.symbols[key[1]]
    if isinstance(symbol.place, Place):
        return None
    section = item.sections[symbol.place]
    starts_instruction = symbol.value < len(section.data) and not symbol.value % INSTRUCTION_BYTES[layout.machine]
    is_code = section.segment is Segment.CODE and starts_instruction
    return _Defined(layout.address(key, base), section.size - symbol.value, is_code)


class LoadedImage:
    """Machine code in memory, callable. Unmapped when this object is freed: keep it while its code may run."""

    def __init__(self, layout: Plan, system: OperatingSystem | None = None) -> None:
        self._pages = Pages(layout.size, for_code=True, system=system)
        base = self._pages.address
        with self._pages.written() as memory:
            link(layout, memory, base)
        for segment, span in layout.parts.items():
            self._pages.protect(span.start, span.size, _ACCESS[segment])
        self._symbols = {
            name: found for name, key in layout.definitions.items() if (found := _defined(layout, key, base))
        }

    @property
    def size(self) -> int:
        """Bytes of memory that the image takes."""
        return self._pages.size

    def symbol(self, name: str) -> int:
        """Address of a global function. Raises ``BadArtifact`` if the image has no code of that name."""
        found = self._named(name)
        if not found.is_code:
            raise BadArtifact(f"symbol {name!r} of the image is no function: there is no instruction at its address")
        return found.address

    def constant(self, name: str, size: int) -> bytes:
        """The first ``size`` bytes of a global constant. Raises ``BadArtifact`` if the image has fewer there."""
        found = self._named(name)
        if found.is_code or found.left < size:
            raise BadArtifact(f"symbol {name!r} of the image is no constant of {size} bytes")
        return ctypes.string_at(found.address, size)

    def _named(self, name: str) -> _Defined:
        if name not in self._symbols:
            raise BadArtifact(f"the image has no symbol {name!r}; it has {', '.join(sorted(self._symbols)) or 'none'}")
        return self._symbols[name]

    def __contains__(self, name: object) -> bool:
        return name in self._symbols


def load_image(
    objects: Sequence[bytes], imports: Mapping[str, int] | None = None, system: OperatingSystem | None = None
) -> LoadedImage:
    """Link relocatable objects to each other and to this process, and map the result.

    ``imports`` maps names to addresses and comes before those of ``system``, by default this one. Raises
    ``BadArtifact`` for a damaged object, one for another machine, or a name that nobody defines.
    """
    parsed = [_parse(data, f"object {i}") for i, data in enumerate(objects)]
    own = process_imports(undefined(parsed), system or here())
    return LoadedImage(plan(parsed, host_machine(), {**own, **(imports or {})}), system)


def _parse(data: bytes, name: str) -> ObjectFile:
    parser = _PARSERS.get(bytes(data[:4]))
    if parser is None:
        raise BadArtifact(
            f"{name}: {len(data)} bytes that start with {bytes(data[:4])!r} are no known object format (ELF)"
        )
    return parser(data, name)

"""Objects -> a static ELF executable for Linux, without a linker: fixed addresses, one segment for each protection.

Source: System V ABI, edition 4.1, chapters 4 and 5. The constants of a model are a segment of their own after the
image, mapped from the file, so they take no time to load.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import InternalError
from tilewright.runtime.linker import Plan, link, plan
from tilewright.runtime.memory import round_up
from tilewright.runtime.objectfile import Machine, ObjectFile, Segment

MACHINES: Mapping[Machine, int] = {Machine.X86_64: 62, Machine.AARCH64: 183, Machine.RISCV64: 243}
_PAGES: Mapping[Machine, int] = {Machine.X86_64: 1 << 12, Machine.AARCH64: 1 << 16, Machine.RISCV64: 1 << 12}
"""The largest pages that kernels have: segments are that far apart."""
_BASE = 1 << 22
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOADED, _STACK = 1, 0x6474E551
_EXECUTE, _WRITE, _READ = 1, 2, 4
_FLAGS = {Segment.CODE: _READ | _EXECUTE, Segment.CONSTANTS: _READ, Segment.DATA: _READ | _WRITE}
IDENTITY = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")


@dataclass(frozen=True, slots=True)
class Constants:
    """What follows the image: bytes, and their name."""

    name: str
    data: bytes


def executable_file(
    objects: Sequence[ObjectFile], machine: Machine, start: str, constants: Constants, flags: int
) -> bytes:
    """The file, which starts at the function ``start``. ``flags``: those of the processor.

    Raises ``BadArtifact`` if a name is missing.
    """
    page = _PAGES[machine]
    layout = plan(objects, machine, {constants.name: 0}, page)
    image_at = _BASE + page
    data_at = image_at + round_up(layout.size, page)
    layout = replace(layout, imports={constants.name: data_at})
    image = bytearray(layout.size)
    with memoryview(image) as view:
        link(layout, view, image_at)
    segments = [
        *(_mapped(_FLAGS[kind], image_at + part.start, part.size) for kind, part in layout.parts.items() if part.size),
        *([_mapped(_READ, data_at, len(constants.data))] if constants.data else []),
        (_STACK, _READ | _WRITE, 0, 0, 0, 0, 0, 16),
    ]
    aligned = [(*fields[:-1], page) if fields[0] == _LOADED else fields for fields in segments]
    table = b"".join(_SEGMENT.pack(*fields) for fields in aligned)
    head = _HEADER.pack(
        IDENTITY, 2, MACHINES[machine], 1, _address(layout, start, image_at), _HEADER.size, 0, flags, _HEADER.size,
        _SEGMENT.size, len(segments), 0, 0, 0,
    )  # fmt: skip
    whole = (head + table).ljust(page, b"\0") + bytes(image)
    return whole.ljust(data_at - _BASE, b"\0") + constants.data if constants.data else whole


def _mapped(access: int, address: int, size: int) -> tuple[int, ...]:
    return _LOADED, access, address - _BASE, address, address, size, size, 0


def _address(layout: Plan, name: str, base: int) -> int:
    if name not in layout.definitions:
        raise InternalError(f"the program has no {name}")
    return layout.address(layout.definitions[name], base)

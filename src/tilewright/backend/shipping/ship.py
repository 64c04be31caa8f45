"""A compiled model in forms that need neither Python nor Tilewright: ``shipped`` makes the files.

artifact's objects + constants -> program | object + header            (x86_64, aarch64, riscv64)
artifact's one object + constants -> module + loader                    (wasm32)
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.cpu.support import support_text
from tilewright.backend.shipping.executable_file import Memory, executable_file
from tilewright.backend.shipping.freestanding_text import FUNCTIONS
from tilewright.backend.shipping.header_text import header_text
from tilewright.backend.shipping.interface import Interface
from tilewright.backend.shipping.machine_code import START, SYSTEM, start_object, system_object
from tilewright.backend.shipping.program_text import MEMORY, memory_bytes, program_text
from tilewright.backend.shipping.relocatable_file import relocatable_file
from tilewright.backend.shipping.run_text import CONSTANTS, run_text
from tilewright.backend.shipping.wasm_module import loader_text, wasm_module
from tilewright.base.errors import BadInput, Unsupported
from tilewright.base.form import Form
from tilewright.kernels.tile_products import known_tile_product
from tilewright.runtime import abi
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.linker import undefined
from tilewright.runtime.objectfile import Binding, Machine, ObjectFile, Place, Section, Segment, Symbol
from tilewright.target.target import Architecture, Target

_FREE = (CONSTANTS, MEMORY)


@dataclass(frozen=True, slots=True)
class File:
    """A file: its suffix, if it has not the name that was asked for, and its contents."""

    data: bytes
    suffix: str | None = None
    is_executable: bool = False


def shipped(parts: Artifact, form: Form, prefix: str) -> tuple[File, ...]:
    """The files for ``form``; names in C begin with ``prefix``.

    Raises ``BadInput`` if the target's architecture has no such form, or ``prefix`` is no name in C; ``Unsupported`` if
    shapes are known at run time only, or the code needs a function that is not there.
    """
    target = Target.parse(parts.build.target)
    if (target.arch is Architecture.WASM32) is not (form is Form.WASM):
        wanted = "wasm32" if form is Form.WASM else "x86_64, aarch64 or riscv64"
        raise BadInput(f"emit={form.value} is for the target {wanted}, and this is compiled for {target.arch.value}")
    interface = Interface.of(parts, prefix)
    match form:
        case Form.WASM:
            return (File(wasm_module(parts, interface)), File(loader_text().encode(), ".js"))
        case Form.PROGRAM:
            return (File(_program(parts, target, interface), is_executable=True),)
        case Form.OBJECT:
            objects = _model(parts, target, interface)
            constants = _constants(interface.constant_data(parts), objects[0].machine)
            data = relocatable_file(
                (*objects, constants), objects[0].machine, {f"{prefix}_run"}, _flags(parts.objects[0])
            )
            return (File(data), File(_header(interface, parts, objects), ".h"))
        case Form.HEADER:
            return (File(_header(interface, parts, _model(parts, target, interface))),)


def _header(interface: Interface, parts: Artifact, objects: Sequence[ObjectFile]) -> bytes:
    return header_text(interface, parts, sorted(undefined(objects) - {CONSTANTS})).encode()


def _model(parts: Artifact, target: Target, interface: Interface) -> list[ObjectFile]:
    """The model's objects with support functions that know no threads, and ``PREFIX_run``."""
    parsed = [parse_elf(data, f"object {number}") for number, data in enumerate(parts.objects)]
    has_tiles = any(known_tile_product(symbol.name) for item in parsed for symbol in item.symbols)
    texts = (support_text(target.arch.value, threads=False), run_text(interface, asks_for_tiles=has_tiles))
    system = [system_object(parsed[0].machine)] if has_tiles else []
    return [*(one for one in parsed if not _defines(one, abi.ENTER)), *_compiled(texts, target), *system]


def _compiled(texts: Iterable[str], target: Target) -> list[ObjectFile]:
    return [parse_elf(compile_object(text, target)) for text in texts]


def _defines(item: ObjectFile, name: str) -> bool:
    return any(symbol.name == name and isinstance(symbol.place, int) for symbol in item.symbols)


def _program(parts: Artifact, target: Target, interface: Interface) -> bytes:
    objects = [*_model(parts, target, interface), *_compiled([program_text(interface, target.arch)], target)]
    objects.append(start_object(objects[0].machine))
    if not any(_defines(item, SYSTEM) for item in objects):
        objects.append(system_object(objects[0].machine))
    objects = _with_functions(objects, target)
    memory = Memory(CONSTANTS, interface.constant_data(parts), MEMORY, memory_bytes(interface))
    return executable_file(objects, objects[0].machine, START, memory, _flags(parts.objects[0]))


def freestanding(parts: Artifact, prefix: str) -> tuple[Interface, list[ObjectFile]]:
    """The model as objects that need only its constants, under the name ``CONSTANTS``: ``PREFIX_run`` is the call.

    Raises as ``shipped`` does for a program.
    """
    target, interface = Target.parse(parts.build.target), Interface.of(parts, prefix)
    return interface, _with_functions(_model(parts, target, interface), target)


def _with_functions(objects: Sequence[ObjectFile], target: Target) -> list[ObjectFile]:
    """``objects``, and the functions of the C library that they call."""
    whole = list(objects)
    while missing := undefined(whole) - {*_FREE}:
        unknown = missing - FUNCTIONS.keys()
        if unknown:
            raise Unsupported(
                f"the model calls {', '.join(sorted(unknown))} of the C library, which a program has not: emit an "
                "object and link it, or save an artifact"
            )
        whole += _compiled((FUNCTIONS[name] for name in sorted(missing)), target)
    return whole


def _flags(data: bytes) -> int:
    """The processor's flags of an ELF file: on RISC-V, by which registers numbers are passed."""
    return struct.unpack_from("<I", data, 48)[0]


def _constants(data: bytes, machine: Machine) -> ObjectFile:
    """An object that has ``data`` under the name ``tw_constants``."""
    section = Section(".rodata", Segment.CONSTANTS, abi.ALIGNMENT, len(data), data, ())
    symbols = (
        Symbol("", Binding.LOCAL, Place.UNDEFINED, 0),
        Symbol(CONSTANTS, Binding.GLOBAL, 0, 0, len(data)),
    )
    return ObjectFile("constants", machine, (section,), symbols)

"""A compiled model in forms that need neither Python nor Tilewright: ``shipped`` makes the files.

artifact's objects + constants -> program | object + header            (x86_64, aarch64, riscv64)
artifact's objects + constants -> module + loader | page                (wasm32, wasm64)
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.cpu.processors import PROCESSORS
from tilewright.backend.cpu.support import support_text
from tilewright.backend.shipping.coff_file import coff_file
from tilewright.backend.shipping.executable_file import Constants, executable_file
from tilewright.backend.shipping.freestanding_text import FUNCTIONS
from tilewright.backend.shipping.header_text import header_text
from tilewright.backend.shipping.host_text import host_text
from tilewright.backend.shipping.interface import Interface
from tilewright.backend.shipping.machine_code import START, SYSTEM, spawn_object, start_object, system_object
from tilewright.backend.shipping.macho_file import macho_file
from tilewright.backend.shipping.merged import merged
from tilewright.backend.shipping.page_text import page_text
from tilewright.backend.shipping.program_text import program_text
from tilewright.backend.shipping.relocatable_file import relocatable_file
from tilewright.backend.shipping.run_text import CONSTANTS, c_names, c_text, run_text
from tilewright.backend.shipping.threads_text import pool_without_clock
from tilewright.backend.shipping.wasm_module import THREADS, loader_text, wasm_module
from tilewright.base.errors import BadInput, Unsupported
from tilewright.base.form import Form
from tilewright.base.processors import WASM
from tilewright.kernels.tile_products import known_tile_product
from tilewright.runtime import abi
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.elf import parse_elf
from tilewright.runtime.linker import undefined
from tilewright.runtime.objectfile import Binding, Machine, ObjectFile, Place, Section, Segment, Symbol
from tilewright.target.target import System, Target

_REGION = "tw_parallel_for"


@dataclass(frozen=True, slots=True)
class File:
    """A file: its suffix, if it has not the name that was asked for, and its contents."""

    data: bytes
    suffix: str | None = None
    is_executable: bool = False


def shipped(parts: Artifact, form: Form, prefix: str) -> tuple[File, ...]:
    """The files for ``form``; names in C begin with ``prefix``.

    Raises ``BadInput`` if the target's architecture has no such form, or ``prefix`` is no name in C; ``Unsupported`` if
    the code needs a function that is not there.
    """
    target = Target.parse(parts.build.target)
    known = _forms(target)
    if form not in known:
        names = ", ".join(one.value for one in known)
        raise BadInput(f"emit={form.value} is not for {target.platform}, which this is compiled for; there: {names}")
    interface = Interface.of(parts, prefix)
    match form:
        case Form.WASM:
            return (File(wasm_module(parts, interface)), File(loader_text().encode(), ".js"))
        case Form.PAGE:
            return (File(_page(parts, target, interface)),)
        case Form.PROGRAM:
            return (File(_program(parts, target, interface), is_executable=True),)
        case Form.OBJECT:
            objects = _library(parts, target, interface)
            return (File(_object(parts, target, interface, objects)), File(_header(interface, parts, objects), ".h"))
        case Form.HEADER:
            return (File(_header(interface, parts, _library(parts, target, interface))),)


def _forms(target: Target) -> tuple[Form, ...]:
    """The forms for a target."""
    if target.arch in WASM:
        return Form.WASM, Form.PAGE
    others = (Form.OBJECT, Form.HEADER)
    return (Form.PROGRAM, *others) if target.system is System.LINUX else others


def _object(parts: Artifact, target: Target, interface: Interface, objects: Sequence[ObjectFile]) -> bytes:
    """One object in the format of the target's system."""
    machine = objects[0].machine
    constants = _constants(interface.constant_data(parts), machine)
    whole = merged((*objects, constants), c_names(interface))
    match target.system:
        case System.LINUX:
            return relocatable_file(whole, machine, _flags(parts.objects[0]))
        case System.WINDOWS:
            return coff_file(whole)
        case System.MACOS:
            return macho_file(whole)


def _page(parts: Artifact, target: Target, interface: Interface) -> bytes:
    if target.has(THREADS):
        raise BadInput(f"a page that is a file has no threads, and this is compiled for {target}: leave {THREADS} out")
    return page_text(wasm_module(parts, interface), interface.prefix).encode()


def _header(interface: Interface, parts: Artifact, objects: Sequence[ObjectFile]) -> bytes:
    return header_text(interface, parts, sorted(undefined(objects) - {CONSTANTS})).encode()


def _library(parts: Artifact, target: Target, interface: Interface) -> list[ObjectFile]:
    """The model with its functions in C, whose parallel regions run on threads of the caller."""
    regions = host_text(PROCESSORS[target.arch.value])
    return [*_model(parts, target, interface, regions), *_compiled([c_text(interface)], target)]


def _model(parts: Artifact, target: Target, interface: Interface, regions: str) -> list[ObjectFile]:
    """The model's objects with support functions for ``regions``, and ``run_text``."""
    parsed = [parse_elf(data, f"object {number}") for number, data in enumerate(parts.objects)]
    has_tiles = any(known_tile_product(symbol.name) for item in parsed for symbol in item.symbols)
    support = support_text(target.arch.value, threads=False, regions=regions)
    texts = (support, run_text(interface, asks_for_tiles=has_tiles))
    if has_tiles and target.system is not System.LINUX:
        raise Unsupported(
            f"the matrix unit needs the permission of Linux, and this is for {target.platform}: leave it out"
        )
    system = [system_object(parsed[0].machine)] if has_tiles else []
    return [*(one for one in parsed if not _defines(one, abi.ENTER)), *_compiled(texts, target), *system]


def _compiled(texts: Iterable[str], target: Target) -> list[ObjectFile]:
    return [parse_elf(compile_object(text, target)) for text in texts]


def _defines(item: ObjectFile, name: str) -> bool:
    return any(symbol.name == name and isinstance(symbol.place, int) for symbol in item.symbols)


def _calls(item: ObjectFile, name: str) -> bool:
    return any(symbol.name == name and symbol.place is Place.UNDEFINED for symbol in item.symbols)


def _program(parts: Artifact, target: Target, interface: Interface) -> bytes:
    pool = pool_without_clock(PROCESSORS[target.arch.value])
    model = _model(parts, target, interface, pool)
    text = program_text(interface, target.arch, has_regions=any(_calls(item, _REGION) for item in model))
    objects, machine = [*model, *_compiled([text], target)], model[0].machine
    objects += [start_object(machine), spawn_object(machine)]
    if not any(_defines(item, SYSTEM) for item in objects):
        objects.append(system_object(machine))
    whole = _with_functions(objects, target)
    constants = Constants(CONSTANTS, interface.constant_data(parts))
    return executable_file(whole, machine, START, constants, _flags(parts.objects[0]))


def freestanding(parts: Artifact, prefix: str) -> tuple[Interface, list[ObjectFile]]:
    """The model as objects that need only its constants, under the name ``CONSTANTS``: ``PREFIX_run`` is the call.

    Raises as ``shipped`` does for a program, and ``Unsupported`` for shapes that are known at run time only.
    """
    target, interface = Target.parse(parts.build.target), Interface.of(parts, prefix)
    if interface.open:
        names = ", ".join(symbol.name for symbol in interface.open)
        raise Unsupported(f"{names} is known at run time only; give the sizes by shapes= or --shape")
    return interface, _with_functions(_library(parts, target, interface), target)


def _with_functions(objects: Sequence[ObjectFile], target: Target) -> list[ObjectFile]:
    """``objects``, and the functions of the C library that they call."""
    whole = list(objects)
    while missing := undefined(whole) - {CONSTANTS}:
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

"""Executables for a board without Python (``board_text``): programs that tell their time, and the agent that gets them.

board_program(parts)       an artifact's code as a program with a clock
agent_program(target)      what has such programs sent to it: one small file on the board
"""

import struct

from tilewright.backend.cpu.llvm import compile_object
from tilewright.backend.shipping.board_text import Layout, agent_text, board_text
from tilewright.backend.shipping.executable_file import Constants, executable_file
from tilewright.backend.shipping.interface import MOST_BYTES, Interface
from tilewright.backend.shipping.machine_code import START, SYSTEM, start_object, system_object
from tilewright.backend.shipping.run_text import CONSTANTS
from tilewright.backend.shipping.ship import freestanding
from tilewright.base.errors import Unsupported
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.elf import parse_elf
from tilewright.target.target import Architecture, Target

_PREFIX = "board"
_FLAGS_AT = 48
_ARCHITECTURES = (Architecture.X86_64, Architecture.AARCH64, Architecture.RISCV64)


def board_program(parts: Artifact, between_bytes: int = 0) -> tuple[Interface, bytes]:
    """The program of a compiled model or kernel, and what it takes and gives.

    ``between_bytes``: of other data that goes through the caches before each call. Raises ``Unsupported`` as
    ``shipped`` does, and if all that needs too much memory.
    """
    target = Target.parse(parts.build.target)
    _check(target)
    interface, objects = freestanding(parts, _PREFIX)
    layout = Layout.of(interface, between_bytes)
    if layout.bytes > MOST_BYTES:
        raise Unsupported(f"it takes {layout.bytes} bytes of memory, and a program reaches {MOST_BYTES}")
    text = compile_object(board_text(interface, target.arch, layout), target)
    objects += [parse_elf(text), start_object(objects[0].machine)]
    if not any(symbol.name == SYSTEM and isinstance(symbol.place, int) for item in objects for symbol in item.symbols):
        objects.append(system_object(objects[0].machine))
    constants = Constants(CONSTANTS, interface.constant_data(parts))
    return interface, executable_file(objects, objects[0].machine, START, constants, _flags(text))


def agent_program(target: Target) -> bytes:
    """The agent for boards of this architecture. Raises ``Unsupported`` if there is none."""
    _check(target)
    text = compile_object(agent_text(target.arch), Target.of(target.arch))
    compiled = parse_elf(text)
    objects = (compiled, start_object(compiled.machine), system_object(compiled.machine))
    return executable_file(objects, compiled.machine, START, Constants(CONSTANTS, b""), _flags(text))


def _check(target: Target) -> None:
    if target.arch not in _ARCHITECTURES:
        known = ", ".join(arch.value for arch in _ARCHITECTURES)
        raise Unsupported(f"there are programs without Python for {known}, not for {target.arch.value}")


def _flags(data: bytes) -> int:
    """The processor's flags of an ELF file."""
    return struct.unpack_from("<I", data, _FLAGS_AT)[0]

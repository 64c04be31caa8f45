"""The start of a thread, where no thread can run: what it asks of the system, and what the new thread does."""

import struct

import pytest

from tests.backend.shipping.emulator import Functions
from tilewright.backend.shipping.machine_code import SPAWN, spawn_object
from tilewright.runtime.linker import plan
from tilewright.runtime.objectfile import Binding, Machine, ObjectFile, Place, Section, Segment, Symbol

CLONE, EXIT = 220, 93
FLAGS = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000
"""VM, FS, FILES, SIGHAND, THREAD, SYSVSEM (Linux, ``sched.h``)."""
# Stores its argument at its argument, and returns.
BODIES = {Machine.AARCH64: (0xF9000000, 0xD65F03C0), Machine.RISCV64: (0x00A53023, 0x00008067)}


def functions(machine: Machine) -> Functions:
    code = struct.pack("<2I", *BODIES[machine])
    section = Section(".text", Segment.CODE, 16, len(code), code, ())
    symbols = (Symbol("", Binding.LOCAL, Place.UNDEFINED, 0), Symbol("body", Binding.GLOBAL, 0, 0, len(code)))
    return Functions(plan([spawn_object(machine), ObjectFile("body", machine, (section,), symbols)], machine, {}), {})


@pytest.mark.parametrize("machine", BODIES)
def test_a_new_thread_calls_its_function_and_ends(machine: Machine) -> None:
    made, calls = functions(machine), list[tuple[int, ...]]()
    top, given = made.memory(bytes(4095)) + 4096, made.memory(bytes(8))

    def system(number: int, *arguments: int) -> int | None:
        calls.append((number, *arguments[:5]))
        if number != CLONE:
            assert made.stack == top
            return None
        made.stack = arguments[1]
        return 0  # the new thread is told so

    made.system = system
    made(SPAWN, top, made.address("body"), given)
    assert calls[0] == (CLONE, FLAGS, top - 16, 0, 0, 0)
    assert calls[1][:2] == (EXIT, 0)
    assert struct.unpack("<Q", made.read(given, 8)) == (given,)


@pytest.mark.parametrize("machine", BODIES)
@pytest.mark.parametrize("answer", [1234, (1 << 64) - 11])
def test_who_starts_a_thread_gets_its_number_or_the_error(machine: Machine, answer: int) -> None:
    made = functions(machine)
    made.system = lambda *_: answer
    top = made.memory(bytes(4095)) + 4096
    assert made(SPAWN, top, made.address("body"), 0) == answer

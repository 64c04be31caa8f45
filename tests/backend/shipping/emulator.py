"""Code for other processors, run in this process by Unicorn: whole static programs, and single functions."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from tilewright.runtime.linker import Plan, link
from tilewright.runtime.objectfile import Machine

unicorn = pytest.importorskip("unicorn")
arm, riscv = unicorn.arm64_const, pytest.importorskip("unicorn.riscv_const")

_PAGE = 4096
_STACK, _STACK_BYTES = 0x7F_0000_0000, 1 << 20
_MAPPED = 0x20_0000_0000

_SECONDS = 60
TICK = 7
"""Nanoseconds between two looks at the clock of a program."""


@dataclass(frozen=True)
class _Processor:
    arguments: tuple[int, ...]
    number: int
    stack: int
    back: int
    """The register with the address to return to."""
    cause: int
    """Unicorn's number of a system call, among exceptions."""


_PROCESSORS = {
    Machine.AARCH64: _Processor(
        tuple(getattr(arm, f"UC_ARM64_REG_X{i}") for i in range(6)),
        arm.UC_ARM64_REG_X8,
        arm.UC_ARM64_REG_SP,
        arm.UC_ARM64_REG_X30,
        2,
    ),
    Machine.RISCV64: _Processor(
        tuple(getattr(riscv, f"UC_RISCV_REG_A{i}") for i in range(6)),
        riscv.UC_RISCV_REG_A7,
        riscv.UC_RISCV_REG_SP,
        riscv.UC_RISCV_REG_RA,
        8,
    ),
}


@dataclass(frozen=True)
class Result:
    code: int
    out: bytes
    errors: bytes


def emulate(program: bytes, given: bytes = b"", *arguments: str, seconds: int = _SECONDS) -> Result:
    """What a static program writes, and its exit code, with ``given`` as its standard input."""
    number, start, table = (*struct.unpack_from("<H", program, 18), *struct.unpack_from("<QQ", program, 24))
    machine = {183: Machine.AARCH64, 243: Machine.RISCV64}[number]
    processor, engine = _PROCESSORS[machine], _engine(machine)
    for i in range(*struct.unpack_from("<H", program, 56)):
        kind, flags, offset, address, _, stored, size, _ = struct.unpack_from("<IIQQQQQQ", program, table + 56 * i)
        if kind == 1:
            _map(engine, address, size, flags)
            engine.mem_write(address, program[offset : offset + stored])
    engine.reg_write(processor.stack, _with_arguments(engine, ("program", *arguments)))
    out, errors, codes, rest = bytearray(), bytearray(), list[int](), memoryview(given)
    top, now = _MAPPED, 0

    def called(_: object, cause: int, *_more: object) -> None:
        nonlocal rest, top, now
        if cause != processor.cause:
            codes.append(-cause)
            engine.emu_stop()
            return
        a, b, c = (engine.reg_read(one) for one in processor.arguments[:3])
        match engine.reg_read(processor.number):
            case 63 if a == 0:  # read
                engine.mem_write(b, bytes(rest[:c]))
                answer, rest = min(c, len(rest)), rest[c:]
            case 64:  # write
                (out if a == 1 else errors).extend(engine.mem_read(b, c))
                answer = c
            case 222:  # mmap: wherever there is room
                answer, top = top, top + -(-b // _PAGE) * _PAGE
                engine.mem_map(answer, top - answer)
            case 113:  # clock_gettime
                now += TICK
                engine.mem_write(b, struct.pack("<QQ", 0, now))
                answer = 0
            case 94:  # exit_group
                codes.append(a)
                engine.emu_stop()
                return
            case _:
                answer = -38  # no such call
        engine.reg_write(processor.arguments[0], answer % (1 << 64))

    engine.hook_add(unicorn.UC_HOOK_INTR, called)
    engine.emu_start(start, 0, seconds * 10**6)
    assert codes, f"it takes more than {seconds} s"
    return Result(codes[0], bytes(out), bytes(errors))


class Functions:
    """An image, laid out; called by the names of its functions. ``imports``: the code of others, by name."""

    def __init__(self, layout: Plan, imports: Mapping[str, bytes]) -> None:
        self._processor, self._engine = _PROCESSORS[layout.machine], _engine(layout.machine)
        self._base, self._others, self._top = 0x40_0000, 0x2_0000_0000, _MAPPED
        self._engine.mem_map(self._others, _PAGE)
        addresses = {name: self._others + 64 * i for i, name in enumerate(imports)}
        for name, code in imports.items():
            self._engine.mem_write(addresses[name], code)
        self._layout = replace(layout, imports=addresses)
        image = bytearray(layout.size)
        link(self._layout, memoryview(image), self._base)
        _map(self._engine, self._base, len(image), 7)
        self._engine.mem_write(self._base, bytes(image))
        self.system: Callable[..., int | None] = lambda *_: None
        """What a system call does: its number and six arguments in, its result out, or None to stop."""
        self._engine.hook_add(unicorn.UC_HOOK_INTR, self._interrupted)

    def __call__(self, name: str, *arguments: int) -> int:
        processor, back = self._processor, self._others + _PAGE - 8
        self._engine.reg_write(processor.stack, _STACK + _STACK_BYTES // 2)
        self._engine.reg_write(processor.back, back)
        for register, value in zip(processor.arguments, arguments, strict=False):
            self._engine.reg_write(register, value)
        self._engine.emu_start(self.address(name), back, _SECONDS * 10**6)
        return self._engine.reg_read(processor.arguments[0])

    def _interrupted(self, _: object, cause: int, *_more: object) -> None:
        processor = self._processor
        assert cause == processor.cause
        answer = self.system(*(self._engine.reg_read(one) for one in (processor.number, *processor.arguments)))
        if answer is None:
            self._engine.emu_stop()
        else:
            self._engine.reg_write(processor.arguments[0], answer)

    def address(self, name: str) -> int:
        return self._layout.address(self._layout.definitions[name], self._base)

    @property
    def stack(self) -> int:
        return self._engine.reg_read(self._processor.stack)

    @stack.setter
    def stack(self, at: int) -> None:
        self._engine.reg_write(self._processor.stack, at)

    def memory(self, data: bytes) -> int:
        """The address of new memory with ``data``."""
        at, self._top = self._top, self._top + -(-(len(data) + 1) // _PAGE) * _PAGE
        self._engine.mem_map(at, self._top - at)
        self._engine.mem_write(at, data)
        return at

    def read(self, at: int, size: int) -> bytes:
        return bytes(self._engine.mem_read(at, size))


def _engine(machine: Machine) -> "unicorn.Uc":
    if machine is Machine.AARCH64:
        engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        engine.ctl_set_cpu_model(arm.UC_CPU_ARM64_MAX)  # the usual one has no dot products, and no half precision
        # Vectors of SVE are off at first, in CPTR_EL3 and CPACR_EL1. They have 128 bits.
        engine.reg_write(arm.UC_ARM64_REG_CP_REG, (1, 1, 3, 6, 2, 1 << 8))
        engine.reg_write(arm.UC_ARM64_REG_CP_REG, (1, 0, 3, 0, 2, 3 << 20 | 3 << 16))
    else:
        engine = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV64)
        status = engine.reg_read(riscv.UC_RISCV_REG_MSTATUS)
        engine.reg_write(riscv.UC_RISCV_REG_MSTATUS, status | 3 << 13)  # floating point is off at first
    engine.mem_map(_STACK, _STACK_BYTES)
    return engine


def _map(engine: "unicorn.Uc", address: int, size: int, flags: int) -> None:
    """Map pages with the rights of ELF's ``flags``."""
    first = address // _PAGE * _PAGE
    rights = sum(right for bit, right in ((4, 1), (2, 2), (1, 4)) if flags & bit)
    engine.mem_map(first, -(-(address + size - first) // _PAGE) * _PAGE, rights)


def _with_arguments(engine: "unicorn.Uc", words: tuple[str, ...]) -> int:
    """Puts the arguments where Linux does; returns the stack pointer."""
    pointer = _STACK + _STACK_BYTES // 2
    at, places = pointer + _PAGE, list[int]()
    for word in words:
        places.append(at)
        engine.mem_write(at, word.encode() + b"\0")
        at += len(word.encode()) + 1
    engine.mem_write(pointer, struct.pack(f"<{len(words) + 2}Q", len(words), *places, 0))
    return pointer

"""The few instructions that LLVM IR can't express: the start of a process, and a system call.

Bytes, as LLVM's assemblers for other machines than this are not at hand. Conventions of calls: System V ABI for x86-64,
AAPCS64, RISC-V psABI; of system calls: Linux, ``man 2 syscall``.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.runtime.objectfile import Binding, Machine, ObjectFile, Place, Relocation, Section, Segment, Symbol

START, SYSTEM, PROGRAM = "_start", "tw_system", "tw_program"


@dataclass(frozen=True, slots=True)
class _Code:
    """``start`` calls ``tw_program`` with the stack and exits with its result; ``call``: where, and the relocation."""

    start: bytes
    call: int
    kind: int
    addend: int
    system: bytes


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


_CODE: Mapping[Machine, _Code] = {
    Machine.X86_64: _Code(
        # xor ebp, ebp; mov rdi, rsp; and rsp, -16; call; mov edi, eax; mov eax, 231 (exit_group); syscall
        bytes.fromhex("31ed 4889e7 4883e4f0 e800000000 89c7 b8e7000000 0f05"),
        10,
        4,  # R_X86_64_PLT32
        -4,
        # mov rax, rdi; rdi, rsi; rsi, rdx; rdx, rcx; r10, r8; r8, r9; r9, [rsp + 8]; syscall; ret
        bytes.fromhex("4889f8 4889f7 4889d6 4889ca 4d89c2 4d89c8 4c8b4c2408 0f05 c3"),
    ),
    Machine.AARCH64: _Code(
        # mov x29, 0; mov x30, 0; mov x0, sp; bl; mov x8, 94 (exit_group); svc 0
        _words(0xD280001D, 0xD280001E, 0x910003E0, 0x94000000, 0xD2800BC8, 0xD4000001),
        12,
        283,  # R_AARCH64_CALL26
        0,
        # mov x8, x0; x0, x1; x1, x2; x2, x3; x3, x4; x4, x5; x5, x6; svc 0; ret
        _words(
            0xAA0003E8,
            *(0xAA0003E0 | (i + 1) << 16 | i for i in range(6)),
            0xD4000001,
            0xD65F03C0,
        ),
    ),
    Machine.RISCV64: _Code(
        # mv a0, sp; andi sp, sp, -16; auipc ra; jalr ra; li a7, 94 (exit_group); ecall
        _words(0x00010513, 0xFF017113, 0x00000097, 0x000080E7, 0x05E00893, 0x00000073),
        8,
        19,  # R_RISCV_CALL_PLT
        0,
        # mv a7, a0; a0, a1; a1, a2; a2, a3; a3, a4; a4, a5; a5, a6; ecall; ret
        _words(
            0x00050893,
            *(0x00000013 | (11 + i) << 15 | (10 + i) << 7 for i in range(6)),
            0x00000073,
            0x00008067,
        ),
    ),
}


def start_object(machine: Machine) -> ObjectFile:
    """``_start``."""
    code = _CODE[machine]
    symbols = (
        Symbol("", Binding.LOCAL, Place.UNDEFINED, 0),
        Symbol(START, Binding.GLOBAL, 0, 0, len(code.start)),
        Symbol(PROGRAM, Binding.GLOBAL, Place.UNDEFINED, 0),
    )
    return _object("start", machine, code.start, symbols, (Relocation(code.call, code.kind, 2, code.addend),))


def system_object(machine: Machine) -> ObjectFile:
    """``i64 tw_system(i64 number, i64 ...)``: a system call with six arguments."""
    code = _CODE[machine].system
    symbols = (
        Symbol("", Binding.LOCAL, Place.UNDEFINED, 0),
        Symbol(SYSTEM, Binding.GLOBAL, 0, 0, len(code)),
    )
    return _object("system", machine, code, symbols, ())


def _object(
    name: str, machine: Machine, code: bytes, symbols: tuple[Symbol, ...], calls: tuple[Relocation, ...]
) -> ObjectFile:
    return ObjectFile(name, machine, (Section(".text", Segment.CODE, 16, len(code), code, calls),), symbols)

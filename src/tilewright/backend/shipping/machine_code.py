"""The few instructions that LLVM IR can't express: the start of a process, a system call, the start of a thread.

Bytes, as LLVM's assemblers for other machines than this are not at hand. Conventions of calls: System V ABI for x86-64,
AAPCS64, RISC-V psABI; of system calls: Linux, ``man 2 syscall``. A thread is a clone with the flags VM, FS,
FILES, SIGHAND, THREAD and SYSVSEM.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.runtime.objectfile import Binding, Machine, ObjectFile, Place, Relocation, Section, Segment, Symbol

START, SYSTEM, PROGRAM, SPAWN = "_start", "tw_system", "tw_program", "tw_spawn"
_C_SYSTEM = "syscall"
"""The name of a system call in C, which the pool uses; here it returns the error as the system does."""


@dataclass(frozen=True, slots=True)
class _Code:
    """``start`` calls ``tw_program`` with the stack and exits with its result; ``call``: where, and the relocation.

    ``spawn(stack, function, argument)`` calls the function on a new thread, whose stack ends at ``stack``.
    """

    start: bytes
    call: int
    kind: int
    addend: int
    system: bytes
    spawn: bytes


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
        # sub rdi, 16; mov [rdi], rsi; [rdi + 8], rdx; rsi, rdi; edi, flags; xor edx, edx; r10d, r10d; r8d, r8d;
        # mov eax, 56 (clone); syscall; test rax, rax; jz 1; ret
        bytes.fromhex("4883ef10 488937 48895708 4889fe bf000f0500 31d2 4531d2 4531c0 b838000000 0f05 4885c0 7401 c3")
        # xor ebp, ebp; pop rax; pop rdi; call rax; xor edi, edi; mov eax, 60 (exit); syscall
        + bytes.fromhex("31ed 58 5f ffd0 31ff b83c000000 0f05"),
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
        # stp x1, x2, [x0, -16]!; mov x1, x0; x0, flags; x2, 0; x3, 0; x4, 0; x8, 220 (clone); svc 0; cbz x0, 8; ret;
        # mov x29, 0; ldp x1, x0, [sp], 16; blr x1; mov x0, 0; x8, 93 (exit); svc 0
        _words(
            *(0xA9BF0801, 0xAA0003E1, 0xD281E000, 0xF2A000A0, 0xD2800002, 0xD2800003, 0xD2800004, 0xD2801B88),
            *(0xD4000001, 0xB4000040, 0xD65F03C0),
            *(0xD280001D, 0xA8C103E1, 0xD63F0020, 0xD2800000, 0xD2800BA8, 0xD4000001),
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
        # addi a0, a0, -16; sd a1, 0(a0); sd a2, 8(a0); mv a1, a0; lui a0, flags; addi a0, a0, flags; li a2, 0; a3, 0;
        # li a4, 0; a7, 220 (clone); ecall; beqz a0, 8; ret; ld a5, 0(sp); ld a0, 8(sp); addi sp, sp, 16; jalr a5;
        # li a0, 0; li a7, 93 (exit); ecall
        _words(
            *(0xFF050513, 0x00B53023, 0x00C53423, 0x00050593, 0x00051537, 0xF0050513, 0x00000613, 0x00000693),
            *(0x00000713, 0x0DC00893, 0x00000073, 0x00050463, 0x00008067),
            *(0x00013783, 0x00813503, 0x01010113, 0x000780E7, 0x00000513, 0x05D00893, 0x00000073),
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
    """``i64 tw_system(i64 number, i64 ...)``: a system call with six arguments. Also as ``syscall``."""
    code = _CODE[machine].system
    symbols = (
        Symbol("", Binding.LOCAL, Place.UNDEFINED, 0),
        *(Symbol(name, Binding.GLOBAL, 0, 0, len(code)) for name in (SYSTEM, _C_SYSTEM)),
    )
    return _object("system", machine, code, symbols, ())


def spawn_object(machine: Machine) -> ObjectFile:
    """``i64 tw_spawn(ptr stack, ptr function, ptr argument)``: a new thread; its number, or an error below 0."""
    code = _CODE[machine].spawn
    symbols = (
        Symbol("", Binding.LOCAL, Place.UNDEFINED, 0),
        Symbol(SPAWN, Binding.GLOBAL, 0, 0, len(code)),
    )
    return _object("spawn", machine, code, symbols, ())


def _object(
    name: str, machine: Machine, code: bytes, symbols: tuple[Symbol, ...], calls: tuple[Relocation, ...]
) -> ObjectFile:
    return ObjectFile(name, machine, (Section(".text", Segment.CODE, 16, len(code), code, calls),), symbols)

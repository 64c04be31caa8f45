"""Relocation types: the formula and encoding of each, one table per machine; and stubs for far calls.

S is the symbol's address, A the addend, P the address of the patched place, G the address of the symbol's entry in the
table of addresses. Source: the processor supplements of the ELF ABI (x86-64 psABI 1.0, table 4.9; AAELF64 2024Q3;
RISC-V ELF psABI 1.0, "Relocations").
A new machine needs a table here and its number in ``elf``.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tilewright.runtime.objectfile import Machine


class Via(Enum):
    """The target of a relocation."""

    SYMBOL = "symbol"
    CALL = "call"
    """The symbol, or a stub that jumps to it if it may be too far away."""
    TABLE = "table"
    """The symbol's entry in the table of addresses."""
    UPPER = "upper"
    """The target of the ``auipc`` at the symbol: of the relocation there, for its low bits. P is that instruction's."""


Encode = Callable[[int, int, int], int | None]
"""(S + A or G + A, P, current bits) -> the bits to store, or None if the value does not fit."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One relocation type: the field's width in bytes, its target, and its formula."""

    name: str
    width: int
    via: Via
    encode: Encode


def _absolute(bits: int, signed: bool = False) -> Encode:
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)

    def encode(target: int, place: int, old: int) -> int | None:
        del place, old
        return target % (1 << bits) if low <= target < high else None

    return encode


def _relative(bits: int) -> Encode:
    def encode(target: int, place: int, old: int) -> int | None:
        del old
        distance = target - place
        return distance % (1 << bits) if -(1 << (bits - 1)) <= distance < 1 << (bits - 1) else None

    return encode


def _branch(bits: int, shift: int) -> Encode:
    """AArch64: a signed distance in instructions, ``bits`` wide, at bit ``shift`` of the instruction."""

    def encode(target: int, place: int, old: int) -> int | None:
        distance = target - place
        if distance % 4 or not -(1 << (bits + 1)) <= distance < 1 << (bits + 1):
            return None
        mask = (1 << bits) - 1
        return old & ~(mask << shift) | (distance >> 2 & mask) << shift

    return encode


def _address(distance: int, old: int) -> int | None:
    """AArch64 ``adr``/``adrp``: a signed 21-bit number, its two low bits apart."""
    if not -(1 << 20) <= distance < 1 << 20:
        return None
    return old & ~(3 << 29 | 0x7FFFF << 5) | (distance & 3) << 29 | (distance >> 2 & 0x7FFFF) << 5


def _near(target: int, place: int, old: int) -> int | None:
    return _address(target - place, old)


def _page(target: int, place: int, old: int) -> int | None:
    return _address((target >> 12) - (place >> 12), old)


def _low12(scale: int) -> Encode:
    """AArch64: the low 12 bits of the address, in units of ``1 << scale`` bytes."""

    def encode(target: int, place: int, old: int) -> int | None:
        del place
        low = target & 0xFFF
        return None if low % (1 << scale) else old & ~(0xFFF << 10) | (low >> scale) << 10

    return encode


def _upper20(distance: int) -> int | None:
    """RISC-V ``auipc``: the distance's upper 20 bits, so that what is left fits in 12 bits with a sign."""
    upper = distance + 0x800 >> 12
    return (upper & 0xFFFFF) << 12 if -(1 << 19) <= upper < 1 << 19 else None


def _pcrel_high(target: int, place: int, old: int) -> int | None:
    upper = _upper20(target - place)
    return None if upper is None else old & 0xFFF | upper


def _pcrel_low_load(target: int, place: int, old: int) -> int:
    return old & 0xFFFFF | (target - place & 0xFFF) << 20


def _pcrel_low_store(target: int, place: int, old: int) -> int:
    low = target - place & 0xFFF
    return old & ~0xFE000F80 | low >> 5 << 25 | (low & 31) << 7


def _pcrel_pair(target: int, place: int, old: int) -> int | None:
    """RISC-V ``auipc`` and ``jalr``."""
    upper = _upper20(target - place)
    if upper is None:
        return None
    return old & 0x000FFFFF_00000FFF | (target - place & 0xFFF) << 52 | upper


def _scattered(bits: int, fields: tuple[tuple[int, int, int], ...]) -> Encode:
    """RISC-V jumps: a signed distance of ``bits`` bits, in parts: (lowest bit, number of bits, place in the word)."""

    def encode(target: int, place: int, old: int) -> int | None:
        distance = target - place
        if distance % 2 or not -(1 << (bits - 1)) <= distance < 1 << (bits - 1):
            return None
        for low, count, at in fields:
            mask = (1 << count) - 1
            old = old & ~(mask << at) | (distance >> low & mask) << at
        return old

    return encode


def _added(bits: int, sign: int) -> Encode:
    """What is there, plus or minus the target: two of these make the distance of two symbols."""

    def encode(target: int, place: int, old: int) -> int:
        del place
        return (old + sign * target) % (1 << bits)

    return encode


_JAL = ((12, 8, 12), (11, 1, 20), (1, 10, 21), (20, 1, 31))
_BRANCH = ((11, 1, 7), (1, 4, 8), (5, 6, 25), (12, 1, 31))
_SHORT_BRANCH = ((5, 1, 2), (1, 2, 3), (6, 2, 5), (3, 2, 10), (8, 1, 12))
_SHORT_JUMP = ((5, 1, 2), (1, 3, 3), (7, 1, 6), (6, 1, 7), (10, 1, 8), (8, 2, 9), (4, 1, 11), (11, 1, 12))

_X86_64: Mapping[int, Rule] = {
    1: Rule("R_X86_64_64", 8, Via.SYMBOL, _absolute(64)),
    2: Rule("R_X86_64_PC32", 4, Via.SYMBOL, _relative(32)),
    4: Rule("R_X86_64_PLT32", 4, Via.CALL, _relative(32)),
    9: Rule("R_X86_64_GOTPCREL", 4, Via.TABLE, _relative(32)),
    10: Rule("R_X86_64_32", 4, Via.SYMBOL, _absolute(32)),
    11: Rule("R_X86_64_32S", 4, Via.SYMBOL, _absolute(32, signed=True)),
    24: Rule("R_X86_64_PC64", 8, Via.SYMBOL, _relative(64)),
    41: Rule("R_X86_64_GOTPCRELX", 4, Via.TABLE, _relative(32)),
    42: Rule("R_X86_64_REX_GOTPCRELX", 4, Via.TABLE, _relative(32)),
}
_AARCH64: Mapping[int, Rule] = {
    257: Rule("R_AARCH64_ABS64", 8, Via.SYMBOL, _absolute(64)),
    260: Rule("R_AARCH64_PREL64", 8, Via.SYMBOL, _relative(64)),
    261: Rule("R_AARCH64_PREL32", 4, Via.SYMBOL, _relative(32)),
    274: Rule("R_AARCH64_ADR_PREL_LO21", 4, Via.SYMBOL, _near),
    275: Rule("R_AARCH64_ADR_PREL_PG_HI21", 4, Via.SYMBOL, _page),
    277: Rule("R_AARCH64_ADD_ABS_LO12_NC", 4, Via.SYMBOL, _low12(0)),
    278: Rule("R_AARCH64_LDST8_ABS_LO12_NC", 4, Via.SYMBOL, _low12(0)),
    279: Rule("R_AARCH64_TSTBR14", 4, Via.SYMBOL, _branch(14, 5)),
    280: Rule("R_AARCH64_CONDBR19", 4, Via.SYMBOL, _branch(19, 5)),
    282: Rule("R_AARCH64_JUMP26", 4, Via.CALL, _branch(26, 0)),
    283: Rule("R_AARCH64_CALL26", 4, Via.CALL, _branch(26, 0)),
    284: Rule("R_AARCH64_LDST16_ABS_LO12_NC", 4, Via.SYMBOL, _low12(1)),
    285: Rule("R_AARCH64_LDST32_ABS_LO12_NC", 4, Via.SYMBOL, _low12(2)),
    286: Rule("R_AARCH64_LDST64_ABS_LO12_NC", 4, Via.SYMBOL, _low12(3)),
    299: Rule("R_AARCH64_LDST128_ABS_LO12_NC", 4, Via.SYMBOL, _low12(4)),
    311: Rule("R_AARCH64_ADR_GOT_PAGE", 4, Via.TABLE, _page),
    312: Rule("R_AARCH64_LD64_GOT_LO12_NC", 4, Via.TABLE, _low12(3)),
}
_RISCV64: Mapping[int, Rule] = {
    1: Rule("R_RISCV_32", 4, Via.SYMBOL, _absolute(32)),
    2: Rule("R_RISCV_64", 8, Via.SYMBOL, _absolute(64)),
    16: Rule("R_RISCV_BRANCH", 4, Via.SYMBOL, _scattered(13, _BRANCH)),
    17: Rule("R_RISCV_JAL", 4, Via.CALL, _scattered(21, _JAL)),
    18: Rule("R_RISCV_CALL", 8, Via.CALL, _pcrel_pair),
    19: Rule("R_RISCV_CALL_PLT", 8, Via.CALL, _pcrel_pair),
    20: Rule("R_RISCV_GOT_HI20", 4, Via.TABLE, _pcrel_high),
    23: Rule("R_RISCV_PCREL_HI20", 4, Via.SYMBOL, _pcrel_high),
    24: Rule("R_RISCV_PCREL_LO12_I", 4, Via.UPPER, _pcrel_low_load),
    25: Rule("R_RISCV_PCREL_LO12_S", 4, Via.UPPER, _pcrel_low_store),
    35: Rule("R_RISCV_ADD32", 4, Via.SYMBOL, _added(32, 1)),
    36: Rule("R_RISCV_ADD64", 8, Via.SYMBOL, _added(64, 1)),
    39: Rule("R_RISCV_SUB32", 4, Via.SYMBOL, _added(32, -1)),
    40: Rule("R_RISCV_SUB64", 8, Via.SYMBOL, _added(64, -1)),
    44: Rule("R_RISCV_RVC_BRANCH", 2, Via.SYMBOL, _scattered(9, _SHORT_BRANCH)),
    45: Rule("R_RISCV_RVC_JUMP", 2, Via.SYMBOL, _scattered(12, _SHORT_JUMP)),
    57: Rule("R_RISCV_32_PCREL", 4, Via.SYMBOL, _relative(32)),
}
_RULES: Mapping[Machine, Mapping[int, Rule]] = {
    Machine.X86_64: _X86_64,
    Machine.AARCH64: _AARCH64,
    Machine.RISCV64: _RISCV64,
}

STUB_BYTES: Final = 16


def rule(machine: Machine, kind: int) -> Rule | None:
    """The rule of a relocation type, or None if it is not known."""
    return _RULES[machine].get(kind)


def stub(machine: Machine, place: int, entry: int) -> bytes:
    """Code at address ``place`` that jumps to the address stored at ``entry`` (both in one image, so within 2 GiB)."""
    match machine:
        case Machine.X86_64:
            jump = b"\xff\x25" + struct.pack("<i", entry - (place + 6))  # jmp *[rip + distance]
            return jump.ljust(STUB_BYTES, b"\xcc")
        case Machine.AARCH64:
            # adrp x16; ldr x16, [x16]; br x16; brk
            words = (_page(entry, place, 0x90000010), _low12(3)(entry, place, 0xF9400210), 0xD61F0200, 0xD4200000)
        case Machine.RISCV64:
            # auipc t3; ld t3, (t3); jr t3; ebreak
            words = (_pcrel_high(entry, place, 0xE17), _pcrel_low_load(entry, place, 0xE3E03), 0xE0067, 0x100073)
    return struct.pack("<4I", *(word or 0 for word in words))

"""The part of Capstone's API that Tilewright uses, typed (Capstone ships no stubs)."""

from collections.abc import Iterator

CS_ARCH_ARM64: int
CS_MODE_ARM: int

class CsInsn:
    address: int
    mnemonic: str
    op_str: str
    def regs_access(self) -> tuple[list[int], list[int]]: ...
    def reg_name(self, number: int) -> str: ...

class Cs:
    detail: bool
    def __init__(self, arch: int, mode: int) -> None: ...
    def disasm(self, code: bytes, offset: int) -> Iterator[CsInsn]: ...
